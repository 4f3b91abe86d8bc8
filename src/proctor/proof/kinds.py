"""What a file is (test, check, docs, config, picture, source) and what kind of change a diff looks like.

The kind only chooses the rung of the ladder; the rung's word is never stretched: only proven is called proven.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.proof.diff import Diff, FileDiff

__all__ = [
    "LADDER",
    "FileKind",
    "Guess",
    "Kind",
    "Rung",
    "file_kind",
    "guess_kind",
    "is_check_file",
    "is_test_file",
    "language_of",
    "only_comments",
]


class Kind(StrEnum):
    """What a change is for."""

    FIX = "fix"
    FEATURE = "feature"
    REFACTOR = "refactor"
    DOCS = "docs"
    UI = "ui"


class Rung(StrEnum):
    """The word a change of a kind can earn at best."""

    PROVEN = "proven"
    PRESERVED = "preserved"
    CHECKED = "checked"
    SHOWN = "shown"
    NOT_APPLICABLE = "not applicable"


#: The best word for each kind of change.
LADDER: Final = {
    Kind.FIX: Rung.PROVEN,
    Kind.FEATURE: Rung.PROVEN,
    Kind.REFACTOR: Rung.PRESERVED,
    Kind.DOCS: Rung.CHECKED,
    Kind.UI: Rung.SHOWN,
}


class FileKind(StrEnum):
    """What a file is for."""

    TEST = "test"
    CHECK = "check"
    DOCS = "docs"
    CONFIG = "config"
    UI = "ui"
    SOURCE = "source"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Guess:
    """A kind, and why."""

    kind: Kind
    reason: str


_LANGUAGES: Final = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"), "javascript"),
    **dict.fromkeys((".sh", ".bash", ".zsh", ".bats"), "shell"),
    ".go": "go", ".rs": "rust", ".rb": "ruby", ".java": "java", ".kt": "kotlin", ".php": "php", ".cs": "csharp",
    **dict.fromkeys((".c", ".h", ".cc", ".cpp", ".hpp", ".cxx", ".m"), "c"),
    ".swift": "swift", ".ex": "elixir", ".exs": "elixir", ".dart": "dart", ".scala": "scala", ".pl": "perl",
}  # fmt: skip
_TEST_NAME: Final = re.compile(
    r"test_.+\.py|.+_test\.(?:py|go|rb|dart|exs|c|cc|cpp)|tests?\.py|conftest\.py|.+[._-](?:test|spec|tests|specs|cy|e2e)\.[cm]?[jt]sx?"
    r"|.+\.bats|test[_-].+\.(?:sh|bash|[cm]?[jt]s)|.+[_-]tests?\.(?:sh|bash|rs)|.+(?:Test|Tests|IT|Spec)\.(?:java|kt|cs|php|scala|swift)"
    r"|.+_spec\.rb|.+\.t"
)  # fmt: skip
_TEST_DIRS: Final = frozenset(
    {"test", "tests", "__tests__", "spec", "specs", "e2e", "testdata", "__snapshots__", "fixtures"}
)
_DOCS: Final = frozenset({".md", ".mdx", ".rst", ".adoc", ".txt", ".org"})
_DOC_NAMES: Final = re.compile(
    r"(?:README|CHANGELOG|CHANGES|LICENSE|NOTICE|AUTHORS|CONTRIBUTING|CODE_OF_CONDUCT)(?:\..*)?",
    re.IGNORECASE,
)
_UI: Final = frozenset(
    {
        ".css",
        ".scss",
        ".sass",
        ".less",
        ".html",
        ".htm",
        ".svg",
        ".png",
        ".jpg",
        ".jpeg",
        ".gif",
        ".ico",
        ".webp",
        ".woff2",
    }
)
_CONFIG: Final = frozenset(
    {
        ".toml",
        ".yaml",
        ".yml",
        ".json",
        ".jsonc",
        ".ini",
        ".cfg",
        ".conf",
        ".env",
        ".properties",
        ".lock",
        ".xml",
    }
)
_CONFIG_NAMES: Final = frozenset(
    {"Dockerfile", ".gitignore", ".dockerignore", ".editorconfig", ".gitattributes", "go.sum", "go.mod"}
)
_CHECKS: Final = re.compile(
    r"(?:.*/)?(?:\.github/(?:workflows|actions)/.+|\.gitlab-ci\.ya?ml|\.circleci/.+|\.buildkite/.+|Jenkinsfile|azure-pipelines\.ya?ml|"
    r"\.travis\.ya?ml|bitbucket-pipelines\.ya?ml|\.pre-commit-config\.yaml|tox\.ini|noxfile\.py|pytest\.ini|\.pytest\.ini|\.coveragerc|"
    r"codecov\.ya?ml|\.codecov\.ya?ml|conftest\.py|(?:jest|vitest|playwright|cypress|karma|ava|mocha)\.(?:config|setup)\.[cm]?[jt]s(?:on)?|"
    r"\.mocharc\..+|\.nycrc.*|\.?eslint(?:rc)?(?:\.config)?\..+|\.?ruff\.toml|mypy\.ini|\.flake8|\.pylintrc|\.golangci\.ya?ml|clippy\.toml|"
    r"\.husky/.+|lefthook\.ya?ml)"
)  # fmt: skip
#: Files that are checks only in parts: the test command, the settings of the test runner.
_PARTLY_CHECKS: Final = frozenset(
    {
        "pyproject.toml",
        "setup.cfg",
        "package.json",
        "Makefile",
        "makefile",
        "GNUmakefile",
        "justfile",
        "Taskfile.yml",
        "Cargo.toml",
        "proctor.toml",
    }
)


def language_of(path: str) -> str | None:
    """The language of a source file by its name."""
    return _LANGUAGES.get(posixpath.splitext(path)[1].lower())


def is_test_file(path: str) -> bool:
    """Whether a file belongs to the tests: by the names test runners look for, or by its directory."""
    parts = path.split("/")
    if _TEST_NAME.fullmatch(parts[-1]):
        return True
    return any(part.lower() in _TEST_DIRS for part in parts[:-1]) and not _DOC_NAMES.fullmatch(parts[-1])


def is_check_file(path: str, *, partly: bool = False) -> bool:
    """Whether a file decides what is checked: CI, runner settings; `partly` adds files that do so among other things."""
    return _CHECKS.fullmatch(path) is not None or (partly and posixpath.basename(path) in _PARTLY_CHECKS)


def file_kind(path: str) -> FileKind:
    """What a file is for."""
    name, extension = posixpath.basename(path), posixpath.splitext(path)[1].lower()
    if is_check_file(path):
        return FileKind.CHECK
    if is_test_file(path):
        return FileKind.TEST
    if extension in _DOCS or _DOC_NAMES.fullmatch(name):
        return FileKind.DOCS
    if extension in _UI:
        return FileKind.UI
    if extension in _CONFIG or name in _CONFIG_NAMES or name.startswith(".env"):
        return FileKind.CONFIG
    if language_of(path) or name in {"Makefile", "justfile"}:
        return FileKind.SOURCE
    return FileKind.OTHER


_NEW: Final = re.compile(
    r"^\s*(?:export\s+(?:default\s+)?)?(?:async\s+)?(?:def|class|function|func|fn|pub\s+fn|interface|type|trait|struct|enum|public\s+\w+)"
    r"\s+(?:\([^)]*\)\s*)?([A-Za-z]\w*)|^\s*(?:export\s+)(?:const|let)\s+([A-Za-z]\w*)"
    r"|^\s*@(?:app|router|bp)\.(?:get|post|put|delete|patch|route)\b"
    r"|^([a-z_]\w*)\s*\(\)\s*\{"
)  # fmt: skip
_TOKEN: Final = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|==|!=|<=|>=|&&|\|\||[^\s\w]")
_NAME_TOKEN: Final = re.compile(r"[A-Za-z_]\w*")
_COMMENT: Final = re.compile(r"^\s*(?:#|//|\*|/\*|<!--|\"\"\"|''')")
#: What begins a comment is another thing in each language: `#` begins an attribute in Rust and a macro in C.
_HASH: Final = r"#(?!!|\[)"
_SLASHES: Final = r"//(?!go:|export |\s*\+build|[/!])|/\*(?:(?!\*/).)*(?:\*/)?\s*$"
_COMMENTS: Final = {
    "python": re.compile(rf"\s*(?:{_HASH}(?!.*coding[:=])|(\"\"\"|''')(?:(?!\1).)*(?:\1)?\s*$)"),
    **dict.fromkeys(("shell", "ruby", "perl", "elixir"), re.compile(rf"\s*{_HASH}")),
    "php": re.compile(rf"\s*(?:{_HASH}|{_SLASHES})"),
    **dict.fromkeys(
        ("javascript", "go", "rust", "c", "java", "kotlin", "csharp", "swift", "dart", "scala"),
        re.compile(rf"\s*(?:{_SLASHES})"),
    ),
}
_INNER: Final = re.compile(r"\s*\*(?:\s.*|/\s*)?$")
_MESSAGE: Final = re.compile(
    r"(fix|feat|feature|refactor|docs|doc|style|ui|perf|bug|chore)(?:\([^)]*\))?!?:", re.IGNORECASE
)
_MESSAGES: Final = {
    **dict.fromkeys(("fix", "bug"), Kind.FIX),
    **dict.fromkeys(("feat", "feature"), Kind.FEATURE),
    "refactor": Kind.REFACTOR,
}


def guess_kind(diff: Diff, message: str = "") -> Guess:
    """Guess what a change is for; a commit message of the usual form helps only where the files do not decide."""
    kinds = {file.path: file_kind(file.path) for file in diff.files}
    present = set(kinds.values())
    if not present:
        return Guess(Kind.DOCS, "nothing was changed")
    if present <= {FileKind.DOCS, FileKind.CONFIG, FileKind.CHECK}:
        return Guess(Kind.DOCS, "only documents and settings were changed")
    # What nobody knows may be code: a language that is not in the table, a script without an ending.
    source = [file for file in diff.files if kinds[file.path] in {FileKind.SOURCE, FileKind.OTHER}]
    tests = [file for file in diff.files if kinds[file.path] is FileKind.TEST]
    if not source and not tests:
        return Guess(Kind.UI, "only styles, pages and pictures were changed")
    if source and all(only_comments(file) for file in source) and not tests:
        return Guess(Kind.DOCS, "only comments were changed")
    if said := _MESSAGE.match(message.strip()):
        kind = _MESSAGES.get(said[1].lower())
        if kind is not None:
            return Guess(kind, f"the commit message says {said[1]!r}")
    return _of_code(source, tests)


def _of_code(source: list[FileDiff], tests: list[FileDiff]) -> Guess:
    new = _new_names(source)
    if not source:
        return Guess(Kind.FIX, "only tests were changed")
    if not tests and _same_tokens(source):
        return Guess(Kind.REFACTOR, "the code was moved or renamed and no test was touched")
    if new and (tests or not _removed_lines(source)):
        return Guess(Kind.FEATURE, f"it adds {', '.join(sorted(new)[:3])}")
    return Guess(Kind.FIX, "it changes existing code" + (" and its tests" if tests else ""))


def _removed_lines(files: Iterable[FileDiff]) -> bool:
    return any(text.strip() for file in files for _, text in file.removed)


def only_comments(file: FileDiff) -> bool:
    """Whether nothing but comments was changed in a file of code."""
    comment = _COMMENTS.get(language_of(file.path) or "")
    if comment is None or file.binary or file.status not in {"modified", "added"}:
        return False
    changed = 0
    for hunk in file.hunks:
        texts = [line.text for line in hunk.lines if line.kind != " " and line.text.strip()]
        # A line that begins with a star is in a comment only where one is seen to begin or to end.
        block = any(
            re.match(r"\s*/\*", line.text) or line.text.rstrip().endswith("*/") for line in hunk.lines
        )
        if not all(comment.match(text) or (block and _INNER.match(text)) for text in texts):
            return False
        changed += len(texts)
    return changed > 0


def _new_names(files: Iterable[FileDiff]) -> set[str]:
    files = list(files)
    gone = {name for file in files for _, text in file.removed if (name := _named(text))}
    found = {name for file in files for _, text in file.added if (name := _named(text))}
    return {name for name in found - gone if not name.startswith("_")}


def _named(text: str) -> str | None:
    found = _NEW.match(text)
    return (found[1] or found[2] or found[3] or text.strip()) if found else None


def _same_tokens(files: list[FileDiff]) -> bool:
    """Whether what was added is what was removed, but for names and a little structure."""
    old, new = _tokens(files, removed=True), _tokens(files, removed=False)
    total = sum((old | new).values())
    if not total:
        return True  # renamed or mode changed
    if not old:
        return False
    values = (_values(old) - _values(new)) + (_values(new) - _values(old))
    return not values and (_renamed(old, new) or sum((old & new).values()) / total >= 0.6)


def _renamed(old: Counter[str], new: Counter[str]) -> bool:
    """Whether the two differ only in names, each new one as often as an old one."""
    gone, come = old - new, new - old
    names = all(_NAME_TOKEN.fullmatch(token) for token in (*gone, *come))
    return names and sorted(gone.values()) == sorted(come.values())


def _tokens(files: list[FileDiff], *, removed: bool) -> Counter[str]:
    lines = [
        text
        for file in files
        for _, text in (file.removed if removed else file.added)
        if not _COMMENT.match(text)
    ]
    return Counter(token for text in lines for token in _TOKEN.findall(text))


def _values(tokens: Counter[str]) -> Counter[str]:
    """Tokens that decide what code does: numbers and comparisons; names and brackets may change freely."""
    return Counter(
        {t: 1 for t in tokens if t[0].isdigit() or t in {"==", "!=", "<", ">", "<=", ">=", "not", "&&", "||"}}
    )
