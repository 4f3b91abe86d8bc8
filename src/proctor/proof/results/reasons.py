"""Why a test failed: the check said no, something did not exist yet, or the surroundings were broken.

Invariant: only the error itself is read, not the code around it; in doubt about the surroundings it is infrastructure,
because a broken environment must never count as "failed before".
"""

from __future__ import annotations

import re
from typing import Final

from proctor.proof.kinds import is_test_file
from proctor.proof.results.model import Context, Reason

__all__ = ["classify", "overall", "summary_of"]

_MOST_TEXT: Final = 16_000
_MOST_LINE: Final = 1_000
_MISSING: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"cannot import name '([\w.]+)'",
        r"No module named '?([\w.]+)'?",
        r"module '[\w.]+' has no attribute '(\w+)'",
        r"type object '\w+' has no attribute '(\w+)'",
        r"'(?!NoneType)\w+' object has no attribute '(\w+)'",
        r"NameError: name '(\w+)' is not defined",
        r"got an unexpected keyword argument '(\w+)'",
        r"(?:TypeError|Error)[^\n]*?: (?:\(0 , )?([\w.$]+)\)? is not a (?:function|constructor)",
        r"(?m)^([\w.$]+) is not a (?:function|constructor)",
        r"ReferenceError[^\n]*?: (\w+) is not defined",
        r"(?m)^(\w+) is not defined",
        r"Cannot find module '([^']+)'",
        r"does not provide an export named '(\w+)'",
        r"cannot find [\w ,]+ `(\w+)` in",
        r"cannot find [\w ,]+ `(\w+)`",
        r"unresolved imports? `[\w:]*?(\w+)`",
        r"no (?:method|function|associated item|function or associated item|variant[\w ]*) (?:named )?`(\w+)`",
        r"no field `(\w+)`",
        r"undefined: ([\w.]+)",
        r"has no field or method (\w+)",
        r"(?m)^[^\n]*?([\w./-]+): (?:command )?not found$",
        r"can't open file '([^']+)'",
        r"([\w./-]+): No such file or directory",
        r"No such file or directory: '([^']+)'",
        r"ENOENT[^\n]*? '([^']+)'",
        r"cannot access '([^']+)'",
    )
)  # fmt: skip
_SURROUNDINGS: Final = re.compile(
    r"\b(?:ModuleNotFoundError|ImportError|MemoryError|SyntaxError|IndentationError|ConnectionRefusedError|ConnectionError|"
    r"fixture '\w+' not found|command not found|ECONNREFUSED|EADDRINUSE|ENOSPC|No space left|Killed|Segmentation fault|"
    r"core dumped|could not compile|build failed|setup failed|MODULE_NOT_FOUND|ERR_MODULE_NOT_FOUND|Cannot find module|"
    r"No module named|"
    r"Permission denied|INTERNALERROR|Could not connect|Name or service not known|Temporary failure in name resolution)"
)
_FILES: Final = re.compile(
    r"\b(?:FileNotFoundError|PermissionError|NotADirectoryError|No such file or directory|ENOENT|EACCES|not found$)",
    re.MULTILINE,
)
_NAMES: Final = re.compile(r"\b(?:NameError|module '[\w.]+' has no attribute|ReferenceError)")
_TIMEOUT: Final = re.compile(
    r"Failed: Timeout|Timeout >|timed out after|Exceeded timeout of|panic: test timed out|testTimeoutFailure|"
    r"Test timed out in|TIMEOUT \["
)
_CRASH: Final = re.compile(
    r"^(\S+?\.\w+):\d+: (?:in )?\w+|File \"([^\"]+)\", line \d+|\(?((?:/|\./)?[\w./@-]+\.[cm]?[jt]sx?):\d+:\d+\)?",
    re.MULTILINE,
)
_RUNTIME: Final = ("node:", "/usr/lib", "site-packages", "importlib", "unittest/", "node_modules", "/rustc/")


def classify(text: str, context: Context, *, setup: bool = False) -> tuple[Reason, str]:
    """Say why one test failed; `setup` for failures before the test itself, such as collecting or a fixture."""
    text = _bounded(text)
    said = _errors(text)
    if _TIMEOUT.search(said):
        return Reason.TIMEOUT, summary_of(said)
    missing = _missing_names(said)
    if any(_added(name, context) for name in missing):
        name = next(name for name in missing if _added(name, context))
        return Reason.MISSING_SYMBOL, f"did not exist: {name}"
    if _SURROUNDINGS.search(said):
        return Reason.INFRASTRUCTURE, summary_of(said)
    if not setup and "AssertionError" in said:
        return Reason.ASSERTION, summary_of(said)
    if _FILES.search(said) or _NAMES.search(said):
        own = not setup and _crashed_in_product(text)
        return (Reason.ASSERTION if own else Reason.INFRASTRUCTURE), summary_of(said)
    if setup:
        return Reason.INFRASTRUCTURE, summary_of(said)
    return Reason.ASSERTION, summary_of(said)


def overall(reasons: list[Reason]) -> Reason:
    """One word for a run: a check that said no counts most, then what did not exist, then the surroundings."""
    for reason in (Reason.ASSERTION, Reason.MISSING_SYMBOL, Reason.TIMEOUT, Reason.INFRASTRUCTURE):
        if reason in reasons:
            return reason
    return Reason.UNKNOWN


def summary_of(text: str, limit: int = 300) -> str:
    """The line that says it best: the error's own, else the last one."""
    lines = [line.strip().removeprefix("E ").strip() for line in text.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if re.match(r"[\w.]*(?:Error|Exception|assert|assertion|panicked|Failed|FAIL)\b|assert |error", line)
    ]
    plain = [
        line
        for line in lines
        if not re.match(r"(?:duration_ms|location|code|name|operator|exitCode|signal|at) ?:? ", line)
    ]
    best = telling[0] if telling else plain[-1] if plain else ""
    return best[:limit]


def _bounded(text: str) -> str:
    """Beginning and end, in lines of bearable length: some patterns look at each place of a line many times."""
    if len(text) > _MOST_TEXT:
        half = _MOST_TEXT // 2
        text = f"{text[:half]}\n{text[-half:]}"
    return "\n".join(line[:_MOST_LINE] for line in text.split("\n"))


def _errors(text: str) -> str:
    """pytest marks the error with E; elsewhere the whole text is the error."""
    marked = [line[1:].strip() for line in text.splitlines() if re.match(r"E(?:\s{2,}|$)", line)]
    return "\n".join(marked) if marked else text


def _missing_names(said: str) -> list[str]:
    return [found[1] for pattern in _MISSING for found in pattern.finditer(said)]


def _added(name: str, context: Context) -> bool:
    plain = name.strip("./")
    last = re.split(r"[./]", re.sub(r"\.(?:py|[cm]?[jt]sx?|sh)$", "", plain))[-1]
    in_files = any(
        path == plain or path.endswith("/" + plain) or plain.endswith("/" + path)
        for path in context.changed_files
    )
    if "/" in name or re.search(r"\.(?:py|[cm]?[jt]sx?|sh)$", name):
        return in_files or plain in context.added_symbols or last in context.added_symbols
    return last in context.added_symbols or plain in context.added_symbols


def _crashed_in_product(text: str) -> bool:
    """Whether the innermost place that belongs to the project is product code: then the error is the bug itself."""
    places = [next(part for part in found if part) for found in _CRASH.findall(text) if any(found)]
    own = [place for place in places if not any(word in place for word in _RUNTIME)]
    return bool(own) and not own[-1].startswith("<") and not is_test_file(_tail(own[-1]))


def _tail(path: str) -> str:
    return "/".join(path.split("/")[-3:])
