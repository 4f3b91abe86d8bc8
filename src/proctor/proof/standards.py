"""Code standards as checks: size, documentation header, usage, type hints, loguru. Every rule is off until it is set.

Pure over texts, but for `check_tree`, which reads the files a repository tracks. Python is read by its syntax tree; size
and header hold for every language that is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pathspec

from proctor.config import RawTable
from proctor.proof.hollow.python_tests import read_python
from proctor.proof.kinds import language_of
from proctor.protocol.errors import ConfigError, NotFoundError
from proctor.workspace.git import Git

__all__ = ["RULES", "StandardsSettings", "Violation", "check_text", "check_tree", "standards_settings"]

MAX_FILES: Final = 50_000
MAX_BYTES: Final = 4 * 1024 * 1024
RULES: Final = {
    "max_lines": "Files stay short.",
    "header": "Every file begins by saying what it is.",
    "usage": "A file shows how it is used.",
    "type_hints": "Every parameter and result has a type.",
    "loguru": "Logging is done with loguru; print and logging are not used.",
}
_USAGE: Final = ("off", "runnable", "main")
_SKIPPED: Final = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", "dist", "build", ".tox", "target"}
)


@dataclass(frozen=True, slots=True)
class StandardsSettings:
    """The table `[standards]`."""

    max_lines: int = 0
    header: bool = False
    header_words: tuple[str, ...] = ()
    usage: str = "off"
    type_hints: bool = False
    loguru: bool = False
    print_allowed: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @property
    def on(self) -> bool:
        """Whether any rule is set."""
        return bool(self.max_lines or self.header or self.usage != "off" or self.type_hints or self.loguru)


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule."""

    rule: str
    file: str
    line: int
    sentence: str
    cure: str

    def as_dict(self) -> dict[str, object]:
        """As JSON shows it."""
        return {
            "rule": self.rule,
            "file": self.file,
            "line": self.line,
            "sentence": self.sentence,
            "cure": self.cure,
        }

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.sentence} {self.cure} [{self.rule}]"


def standards_settings(table: RawTable) -> StandardsSettings:
    """Read the table; what is wrong is named with its line."""
    values: dict[str, Any] = {}
    for name, value in table.values.items():
        if name not in _KINDS:
            allowed = f"Allowed: {', '.join(_KINDS)}."
            raise ConfigError(
                where=table.where(name),
                problem=f"{name[:80]!r} is not a setting in [standards]",
                allowed=allowed,
            )
        values[name] = _valued(table, name, value, _KINDS[name])
    return StandardsSettings(**values)


_KINDS: Final = {
    "max_lines": "number",
    **dict.fromkeys(("header", "type_hints", "loguru"), "flag"),
    "usage": "usage",
    **dict.fromkeys(("header_words", "print_allowed", "include", "exclude"), "texts"),
}


def _valued(table: RawTable, name: str, value: object, kind: str) -> Any:
    if (
        kind == "number"
        and isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value <= 1_000_000
    ):
        return value
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind == "usage" and value in _USAGE:
        return value
    if (
        kind == "texts"
        and isinstance(value, list)
        and all(isinstance(one, str) and one.strip() for one in value)
    ):
        return tuple(value)
    words = {
        "number": "a whole number, 0 for off",
        "flag": "true or false",
        "usage": f"one of {', '.join(_USAGE)}",
        "texts": "a list of texts",
    }
    raise ConfigError(
        where=table.where(name),
        problem=f"standards.{name} must be {words[kind]}",
        allowed="See docs/howto/fix-files.md.",
    )


def check_tree(root: Path, settings: StandardsSettings, paths: Sequence[str] = ()) -> list[Violation]:
    """Check the files of a repository that are meant, or those below some paths; links are left alone."""
    wanted = [path.removeprefix("./").rstrip("/") for path in paths]
    found: list[Violation] = []
    for path in _files(root, wanted):
        if not _meant(path, settings):
            continue
        place = root / path
        if place.is_symlink() or not place.is_file() or place.stat().st_size > MAX_BYTES:
            continue
        found += check_text(path, place.read_bytes().decode("utf-8", "replace"), settings)
    return found


def _files(root: Path, wanted: list[str]) -> list[str]:
    for path in wanted:
        if path not in {"", "."} and not (root / path).exists():
            raise NotFoundError(kind="file or directory", name=path, cure="Give a path inside the workspace.")
    everything = sorted(_listed(root))[:MAX_FILES]
    if not wanted or any(path in {"", "."} for path in wanted):
        return everything
    return [path for path in everything if any(path == one or path.startswith(f"{one}/") for one in wanted)]


def _listed(root: Path) -> Iterator[str]:
    ran = Git(root).run("ls-files", "-z", "-co", "--exclude-standard") if (root / ".git").exists() else None
    if ran is not None and ran.returncode == 0:
        yield from (name for name in ran.stdout.split("\0") if name)
        return
    for place in root.rglob("*"):
        if place.is_file() and not _SKIPPED & set(place.relative_to(root).parts):
            yield place.relative_to(root).as_posix()


def _meant(path: str, settings: StandardsSettings) -> bool:
    if language_of(path) is None:
        return False
    inside = not settings.include or _matches(path, settings.include)
    return inside and not _matches(path, settings.exclude)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return bool(patterns) and pathspec.GitIgnoreSpec.from_lines(patterns).match_file(path)


def check_text(path: str, text: str, settings: StandardsSettings) -> list[Violation]:
    """Everything one file breaks."""
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    found: list[Violation] = []
    if settings.max_lines and lines > settings.max_lines:
        sentence = f"The file has {lines} lines; at most {settings.max_lines} are allowed."
        found.append(
            Violation("max_lines", path, settings.max_lines + 1, sentence, "Split it by what it is about.")
        )
    if not text.strip():
        return found
    if language_of(path) != "python":
        return found + (list(_comment_header(path, text, settings)) if settings.header else [])
    tree = read_python(text)
    if tree is None:
        return [
            *found,
            Violation("syntax", path, 1, "The file cannot be read as Python.", "Mend the syntax error."),
        ]
    return [*found, *_python(path, text, tree, settings)]


def _python(path: str, text: str, tree: ast.Module, settings: StandardsSettings) -> Iterator[Violation]:
    head = ast.get_docstring(tree) or ""
    if settings.header and not head:
        yield Violation(
            "header",
            path,
            1,
            "The file has no documentation header.",
            "Begin it with a docstring that says what it owns.",
        )
    elif settings.header:
        yield from _words(path, head, settings)
    if settings.usage != "off":
        yield from _usage(path, head, tree, settings.usage)
    if settings.type_hints:
        yield from _hints(path, tree)
    if settings.loguru:
        yield from _logging(path, tree, printing=_matches(path, settings.print_allowed))


def _words(path: str, head: str, settings: StandardsSettings) -> Iterator[Violation]:
    for word in settings.header_words:
        if word not in head:
            yield Violation(
                "header",
                path,
                1,
                f"The documentation header does not have {word!r}.",
                f"Add a line {word!r}.",
            )


def _comment_header(path: str, text: str, settings: StandardsSettings) -> Iterator[Violation]:
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#!")), "")
    if not re.match(r"\s*(?:#|//|/\*|\*|--|;|<!--|\"\"\")", first):
        yield Violation(
            "header",
            path,
            1,
            "The file has no documentation header.",
            "Begin it with a comment that says what it owns.",
        )


def _usage(path: str, head: str, tree: ast.Module, rule: str) -> Iterator[Violation]:
    runnable = any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in tree.body)
    if (
        rule == "main"
        and not runnable
        and not any(
            isinstance(n, ast.FunctionDef) and n.name in {"usage", "usage_example"} for n in tree.body
        )
    ):
        cure = 'Add `if __name__ == "__main__":` with a call on real data.'
        yield Violation("usage", path, 1, "The file has no usage function.", cure)
    if rule == "runnable" and runnable:
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        imported |= {
            (node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
        }
        told = re.search(r"\busage\b|\bruns?\b|`[^`]*python|--help|`\w+ ", head, re.IGNORECASE)
        if not told and not imported & {"click", "argparse", "typer"}:
            cure = "Say in the docstring how to run it, or read its options with argparse or click."
            yield Violation("usage", path, 1, "The file can be run and does not say how.", cure)


def _hints(path: str, tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        every += [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
        bare = [one.arg for one in every if one.annotation is None and one.arg not in {"self", "cls"}]
        if bare:
            sentence = f"{node.name} has parameters without a type: {', '.join(bare[:4])}."
            yield Violation("type_hints", path, node.lineno, sentence, "Give each a type.")
        if node.returns is None:
            yield Violation(
                "type_hints", path, node.lineno, f"{node.name} does not say what it returns.", "Write `-> …`."
            )


def _logging(path: str, tree: ast.Module, *, printing: bool) -> Iterator[Violation]:
    for node in ast.walk(tree):
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == "logging" for name in named) and isinstance(
            node, ast.Import | ast.ImportFrom
        ):
            yield Violation(
                "loguru",
                path,
                node.lineno,
                "It uses the standard library's logging.",
                "Use `from loguru import logger`.",
            )
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "print" and not printing:
            yield Violation(
                "loguru",
                path,
                called.lineno,
                "It prints.",
                "Use loguru, or allow the place in print_allowed.",
            )
