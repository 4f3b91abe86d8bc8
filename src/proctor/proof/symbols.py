"""Names a change brings into being: functions, classes, constants, modules. Told from the texts, never by running them.

A test that fails before the change only because such a name is missing is weak evidence: it did not exist.
"""

from __future__ import annotations

import ast
import re
from typing import Final

from proctor.proof.change import Change, short_lines
from proctor.proof.kinds import language_of

__all__ = ["added_symbols", "module_names", "names_in"]

_SCRIPT_NAMES: Final = re.compile(
    r"(?:\b(?:function\*?|class|const|let|var|interface|type|enum)\s+"
    r"|^[ \t]*(?:async\s+|static\s+|get\s+|set\s+)*(?=\w+\s*\([^)]{0,500}\)\s*\{)"
    r"|\bexports\.|^[ \t]*)([A-Za-z_$][\w$]*)(?=\s*(?:[=:({<]|$|extends))",
    re.MULTILINE,
)  # fmt: skip
_OTHER_NAMES: Final = re.compile(
    r"\b(?:func|fn|def|class|struct|enum|trait|type|const|static|let|var|module)\s+(?:\([^)]{0,500}\)\s*)?([A-Za-z_]\w*)"
)
_SHELL_NAMES: Final = re.compile(
    r"^[ \t]*(?:function\s+)?([A-Za-z_][\w-]*)\s*\(\)|^[ \t]*(?:export\s+|readonly\s+)?([A-Za-z_]\w*)=",
    re.MULTILINE,
)


def added_symbols(change: Change) -> frozenset[str]:
    """Names that no touched file defined before and one defines after, and the modules that are new."""
    before = {
        name
        for file in change.files
        if file.before
        for name in names_in(file.old_path or file.path, file.before)
    }
    after = {name for file in change.files if file.after for name in names_in(file.path, file.after)}
    new = {name for file in change.files if file.before is None for name in module_names(file.path)}
    return frozenset((after - before) | new)


def names_in(path: str, text: str) -> set[str]:
    """Every name a file defines."""
    language = language_of(path)
    if language == "python":
        return _python(text)
    text = short_lines(text)
    if language == "javascript":
        return set(_SCRIPT_NAMES.findall(text))
    pattern = _SHELL_NAMES if language == "shell" else _OTHER_NAMES
    return {name for found in pattern.finditer(text) for name in found.groups() if name}


def _python(text: str) -> set[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return set(_OTHER_NAMES.findall(text))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            if not isinstance(node, ast.ClassDef):
                names |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def module_names(path: str) -> set[str]:
    """The names under which others import a file."""
    stem = re.sub(r"\.\w+$", "", path)
    parts = [part for part in stem.split("/") if part not in {"src", "lib", "."}]
    if parts and parts[-1] in {"__init__", "index", "mod"}:
        parts = parts[:-1]
    dotted = [".".join(parts[start:]) for start in range(len(parts))]
    return {*dotted, *(["/".join(parts), parts[-1]] if parts else [])}
