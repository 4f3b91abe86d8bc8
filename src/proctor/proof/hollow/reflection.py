"""Product code that looks at the interpreter around it: who called, what is loaded, what surrounds it, under any name.

Such code can know that it is judged, take its answer from the test that asks, or change the framework from afar. Some of
it is honest, so a person looks; names that are put together from pieces are read as what they become.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

__all__ = ["equals_too_much", "framework_names", "origins", "patches", "reflections"]

_FRAMEWORKS: Final = frozenset({"unittest", "pytest", "_pytest", "doctest", "nose", "hypothesis", "pluggy"})
_LOOKS: Final = frozenset(
    {
        *("sys.modules", "sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile"),
        *("inspect.stack", "inspect.currentframe", "inspect.getouterframes", "inspect.trace"),
        *("traceback.extract_stack", "traceback.walk_stack", "threading.settrace", "threading.setprofile"),
        *("os.environ.values", "ctypes.pythonapi"),
        *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.addaudithook", "sys.monitoring"),
    }
)
#: They end the process past everything that waits for its end.
_ENDS: Final = re.compile(r"os\.exec\w+|posix\._exit|ctypes\.(?:CDLL|PyDLL)\._?exit")
_FRAME: Final = frozenset({"f_back", "f_code", "f_lineno", "f_locals", "co_consts", "co_names"})
_SURROUNDINGS: Final = frozenset({"os.environ", "os.getenv", "sys.argv", "os.environb", "sys.orig_argv"})
_NUMBERS: Final = frozenset({"os.getpid", "os.getppid"})
_LOADS: Final = frozenset({"__import__", "importlib.import_module", "exec", "eval", "compile"})
_JUDGES: Final = re.compile(r"py_?test|unittest|nose2?$|\btox\b|junit", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"proctor-canary|/run/proctor|PROCTOR_[A-Z]|PYTEST_(?:ADDOPTS|CURRENT)|junitxml")
_SETTERS: Final = frozenset({"setattr", "__setattr__", "patch", "object", "update", "setitem", "__setitem__"})


def reflections(tree: ast.Module, added: set[int]) -> Iterator[tuple[int, str]]:
    """Places in added lines, each with what it does."""
    known = origins(tree)
    own = _own_modules(tree)
    for statement in _statements(tree):
        lines = set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        if not lines & added:
            continue
        names: dict[str, int] = {}
        for node in _inside(statement):
            if node not in own and (name := _name(node, known)):
                names.setdefault(name, getattr(node, "lineno", 0))
            if isinstance(node, ast.Attribute) and node.attr in _FRAME:
                names.setdefault("sys._getframe", node.lineno)
        looked = sorted(
            line
            for name, line in names.items()
            if (name in _LOOKS or _ENDS.fullmatch(name)) and line in added
        )
        if looked:
            yield looked[0], f"it looks at what calls or surrounds it: `{_shown(statement)}`"
        elif _in_pieces(statement):
            yield (
                statement.lineno,
                f"it looks for what judges it, under a name in pieces: `{_shown(statement)}`",
            )
        elif set(names) & (_SURROUNDINGS | _LOADS) and _names_judges(statement):
            yield statement.lineno, f"it asks for what judges it: `{_shown(statement)}`"
        elif set(names) & _NUMBERS and any(_by_number(one) for one in _inside(statement)):
            yield statement.lineno, f"the number of its process decides: `{_shown(statement)}`"


def _in_pieces(statement: ast.stmt) -> bool:
    """A name of ours that stands nowhere whole; one that does is found by its text."""
    texts = [one.value for one in _ordered(statement) if isinstance(one, ast.Constant)]
    whole = any(isinstance(text, str) and _HIDDEN.search(text) for text in texts)
    return not whole and _HIDDEN.search(_joined(statement)) is not None


def _by_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(side, ast.Constant) and isinstance(side.value, int)
        for side in (node.left, *node.comparators)
    )


def _shown(node: ast.AST) -> str:
    return ast.unparse(node).split("\n")[0][:80]


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement; of one with a body only its head is looked at, the rest comes by itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _inside(statement: ast.stmt) -> Iterator[ast.AST]:
    queue: list[ast.AST] = [statement]
    while queue:
        node = queue.pop()
        yield node
        queue += [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]


def origins(tree: ast.Module) -> dict[str, str]:
    """What each imported name is really called."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.split(".")[0]] = (
                    one.name if one.asname else one.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _name(node: ast.AST, known: dict[str, str]) -> str:
    """The full name of what an expression means; `__import__('sys').x` too."""
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        below = _name(node.value, known)
        return f"{below}.{node.attr}" if below else ""
    if isinstance(node, ast.Call):
        called = _name(node.func, known)
        if called in {"__import__", "importlib.import_module"}:
            return _joined(node.args[0]) if node.args else ""
        return called if called in {"ctypes.CDLL", "ctypes.PyDLL"} else ""
    return ""


def _own_modules(tree: ast.Module) -> set[ast.AST]:
    """`sys.modules[__name__]` is a module that means itself."""
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Name)
        and node.slice.id == "__name__"
    }


def _joined(node: ast.AST) -> str:
    """All texts in an expression in the order they stand, as one."""
    texts = [one for one in _ordered(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return "".join(str(one.value) for one in texts)


def _ordered(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, ast.stmt):
            yield from _ordered(one)


def _names_judges(statement: ast.stmt) -> bool:
    text = _joined(statement)
    return bool(_JUDGES.search(text) or _JUDGES.search(text[::-1]))


def framework_names(tree: ast.Module) -> set[str]:
    """Names under which a file knows a test framework or a part of one, also after it was given another name."""
    found: set[str] = set()
    for name, origin in origins(tree).items():
        if origin.split(".")[0] in _FRAMEWORKS:
            found.add(name)
    given = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    for _ in range(3):
        for node in given:
            if _root(node.value) in found and not isinstance(node.value, ast.Call):
                found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return found


def patches(node: ast.AST, frameworks: set[str]) -> bool:
    """Whether something of the framework is replaced, by assignment or by a call that sets."""
    if isinstance(node, ast.Assign):
        return any(
            isinstance(one, ast.Attribute | ast.Subscript) and _root(one) in frameworks
            for one in node.targets
        )
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    name = (
        called.attr
        if isinstance(called, ast.Attribute)
        else called.id
        if isinstance(called, ast.Name)
        else ""
    )
    held = [called.value] if isinstance(called, ast.Attribute) and name == "update" else node.args[:1]
    return name in _SETTERS and any(_root(one) in frameworks for one in held)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def equals_too_much(node: ast.AST) -> str:
    """Whether an `__eq__` does not compare the two: "sure" if it says true, "perhaps" if it looks at one side only."""
    if isinstance(node, ast.FunctionDef) and node.name in {"__eq__", "__req__"}:
        returns = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value]
        return _judged(returns, node.args, node)
    if isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id == "__eq__" for t in node.targets
    ):
        if isinstance(node.value, ast.Lambda):
            return _judged([node.value.body], node.value.args, node.value)
        return "perhaps"
    return ""


def _judged(returns: list[ast.expr], arguments: ast.arguments, whole: ast.AST) -> str:
    if all(isinstance(one, ast.Constant) and one.value is True for one in returns):
        return "sure" if returns else ""  # a declaration says nothing
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    if len(names) < 2:
        return "perhaps"
    own, other = _drawn_from({names[0], "super"}, whole), _drawn_from({names[1]}, whole)
    return "" if any(_compares(one, own, other) for one in ast.walk(whole)) else "perhaps"


def _drawn_from(names: set[str], whole: ast.AST) -> set[str]:
    """These names and all that were worked out from them."""
    found = set(names)
    for _ in range(3):
        for node in ast.walk(whole):
            if isinstance(node, ast.Assign | ast.NamedExpr | ast.For | ast.comprehension) and found & _used(
                node.value if isinstance(node, ast.Assign | ast.NamedExpr) else node.iter
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {name for target in targets for name in _used(target)}
    return found


def _used(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _compares(node: ast.AST, own: set[str], other: set[str]) -> bool:
    if not isinstance(node, ast.Compare | ast.Call | ast.BoolOp | ast.BinOp):
        return False
    named = _used(node)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"isinstance", "type"}
    ):
        return bool(named & other)
    return bool(named & other and named & own)
