"""Laws of the house that the source tree itself can prove."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.layers.tree import PACKAGE, ROOT, modules, parse, tracked

HEAVY = {
    "alembic",
    "dbos",
    "fastapi",
    "psycopg",
    "pydantic",
    "pydantic_ai",
    "rich",
    "sqlalchemy",
    "tree_sitter",
}


def test_help_imports_nothing_heavy() -> None:
    """`proctor --help` stays light: by module name, because milliseconds flake."""
    code = (
        "import sys; from proctor.cli.main import main; code = main(['--help']); "
        "print('MODULES', *sorted({m.split('.')[0] for m in sys.modules})); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    loaded = set(done.stdout.split("MODULES", 1)[1].split())
    assert loaded & HEAVY == set()


def _in_config(path: Path) -> bool:
    return path == PACKAGE / "config.py" or (PACKAGE / "config") in path.parents


@pytest.mark.parametrize("path", modules(PACKAGE), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_environment_is_read_only_in_config(path: Path) -> None:
    """Settings come in at one place; everything else gets values."""
    if _in_config(path) or (PACKAGE / "testing") in path.parents:
        return
    reads = [
        n.lineno
        for n in ast.walk(parse(path))
        if isinstance(n, ast.Attribute) and ast.unparse(n) in _ENVIRONMENT
    ]
    assert reads == []


_ENVIRONMENT = {"os.environ", "os.getenv", "os.environb"}


@pytest.mark.parametrize("path", modules(PACKAGE), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_exports_are_sorted_and_exist(path: Path) -> None:
    """`__all__` is sorted, without doubles, and names what the module defines."""
    for node in parse(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            # ruff RUF022's order: CONSTANTS, Classes, functions
            assert len(names) == len(set(names))
            assert set(names) <= _defined(parse(path))


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.If | ast.Try):
            names |= _defined(ast.Module(body=[*node.body, *node.orelse], type_ignores=[]))
    return names


# Pieces, so that this file does not contain what it forbids.
_FORBIDDEN_HOSTS = re.compile(
    "|".join(
        re.escape(a + b)
        for a, b in [
            ("pypi.", "org"),
            ("pythonhosted.", "org"),
            ("registry.npm", "js.org"),
            ("deb.debian.", "org"),
        ]
    )
)
_FORBIDDEN_PATHS = re.compile("(?<![\\w.])/(" + "|".join(["wo" + "rk", "fa" + "rm", "ro" + "ot"]) + ")/")


def test_no_registry_host_stands_in_the_tree() -> None:
    """Packages are named, never the host they come from."""
    assert [str(p.relative_to(ROOT)) for p in tracked() if _FORBIDDEN_HOSTS.search(_text(p))] == []


def test_no_path_of_a_build_machine_stands_in_the_tree() -> None:
    """What is committed works on any machine."""
    assert [str(p.relative_to(ROOT)) for p in tracked() if _FORBIDDEN_PATHS.search(_text(p))] == []


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.stat().st_size < 4_000_000 else ""


def test_tests_mirror_the_source_tree() -> None:
    """Every room with code has a directory of tests."""
    rooms = {
        p.name
        for p in PACKAGE.iterdir()
        if p.is_dir() and any(p.glob("*.py")) and p.name not in {"web", "testing"}
    }
    assert {room for room in rooms if not any((ROOT / "tests" / room).glob("test_*.py"))} == set()
