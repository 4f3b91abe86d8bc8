"""Law 1 in the syntax tree: only the gate names the function that mints permits."""

from __future__ import annotations

import ast
from pathlib import Path

import proctor

SOURCE = Path(proctor.__file__).parent
MINTERS = ("gate/", "testing/permits.py", "protocol/permits.py")
SECRETS = {"mint_permit", "_KEY", "_seal", "_spent"}


def _named(tree: ast.AST) -> set[str]:
    """Every identifier, attribute, imported name and string of a file: getattr is no way around."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names |= {node.name, node.asname or ""}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def _imports(tree: ast.AST, word: str) -> bool:
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom | ast.Import))
    return any(word in ast.unparse(node) for node in found)


def test_only_the_gate_names_the_mint() -> None:
    """No file outside the gate says `mint_permit`, not even as a string."""
    guilty = []
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE).as_posix()
        if inside.startswith(MINTERS):
            continue
        tree = ast.parse(path.read_text())
        wanted = SECRETS if _imports(tree, "permits") else {"mint_permit"}
        if found := _named(tree) & wanted:
            guilty.append(f"{inside}: {', '.join(sorted(found))}")
    assert not guilty, "only proctor.gate may mint permits:\n" + "\n".join(guilty)


def test_no_product_code_uses_the_permits_for_tests() -> None:
    """The tests' door is for tests and rehearsals alone."""
    guilty = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if not path.relative_to(SOURCE).as_posix().startswith("testing/")
        and _imports(ast.parse(path.read_text()), "testing.permits")
    ]
    assert guilty == []
