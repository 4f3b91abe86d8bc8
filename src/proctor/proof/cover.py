"""Which changed lines the evidence really executed: Python and bash by a tracer, JavaScript by V8, else unknown.

The tracer is put before the project's own start-up by PYTHONPATH (bash: BASH_ENV); it looks at the changed files alone
and writes each line at once, so that a killed process loses nothing. It costs next to nothing from Python 3.12 on;
below that, and in bash, it works only when asked. Who measures differently (or not at all) gives "unknown".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Coverage", "cover_environment", "prepare_tracer", "read_coverage"]

PYTHON = (".py",)
SCRIPT = (".js", ".mjs", ".cjs")
SHELL = (".sh", ".bash")
_TRACER = '''\
"""Placed here by Proctor: tells which lines of the changed files were executed."""
import os
import sys
import threading


def _begin():
    wanted = set(os.environ.get("PROCTOR_COVER", "").split("\\n")) - {""}
    place = os.environ.get("PROCTOR_COVER_OUT", "")
    if not wanted or not place:
        return
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None and not os.environ.get("PROCTOR_COVER_TRACE"):
        return
    known, seen = {}, set()
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return

    def mine(name):
        if name not in known:
            full = os.path.realpath(name) if not name.startswith("<") else ""
            known[name] = full if full in wanted else ""
        return known[name]

    def note(path, line):
        if (path, line) not in seen:
            seen.add((path, line))
            try:
                os.write(handle, f"{line}\\t{path}\\n".encode("utf-8", "surrogateescape"))
            except OSError:
                pass

    if monitoring is not None:
        def on_line(code, line):
            path = mine(code.co_filename)
            if path:
                note(path, line)
            return monitoring.DISABLE
        try:
            monitoring.use_tool_id(4, "proctor")
        except ValueError:
            return
        monitoring.register_callback(4, monitoring.events.LINE, on_line)
        monitoring.set_events(4, monitoring.events.LINE)
        note("ready", 0)
    else:
        def local(frame, event, _argument):
            if event == "line":
                note(mine(frame.f_code.co_filename), frame.f_lineno)
            return local

        def call(frame, _event, _argument):
            path = mine(frame.f_code.co_filename)
            if not path:
                return None
            note(path, frame.f_lineno)
            return local
        threading.settrace(call)
        sys.settrace(call)
        note("ready", 0)


_begin()
'''
_BASH = r"""# Placed here by Proctor: tells which lines of scripts were executed.
if [ -n "$PROCTOR_COVER_SH" ]; then
  exec {BASH_XTRACEFD}>>"$PROCTOR_COVER_SH"
  PS4='+proctor:${PWD}:${BASH_SOURCE}:${LINENO}: '
  set -x
fi
"""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Changed lines that can be executed: which were, which were not, and of which files nothing is known."""

    executed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    missed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Every changed line that can be executed was."""
        return bool(self.executed) and not self.missed and not self.unknown

    def as_dict(self) -> dict[str, Any]:
        """As receipts and JSON show it."""
        return {
            "executed": {path: len(lines) for path, lines in sorted(self.executed.items())},
            "missed": {path: list(lines) for path, lines in sorted(self.missed.items())},
            "unknown": sorted(self.unknown),
        }


def prepare_tracer(home: Path) -> Path:
    """Write the tracers where runs can read them; equal ones are left as they are."""
    folder = home / "tracer"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("sitecustomize.py", _TRACER), ("bash.sh", _BASH)):
        place = folder / name
        if not place.is_file() or place.read_text() != text:
            partly = folder / f"{name}.new"
            partly.write_text(text)
            partly.replace(place)
    return folder


def cover_environment(
    root: Path, paths: Iterable[str], tracer: str, pythonpath: str, *, trace: bool
) -> dict[str, str]:
    """Build the variables that switch measuring on for these changed files; `{out}` is filled in by the runner."""
    chosen = sorted(paths)
    found: dict[str, str] = {}
    if python := [path for path in chosen if path.endswith(PYTHON)]:
        found["PROCTOR_COVER"] = "\n".join(str(root / path) for path in python)
        found["PROCTOR_COVER_OUT"] = "{out}/python-lines"
        found["PYTHONPATH"] = f"{tracer}:{pythonpath}" if pythonpath else tracer
        if trace:
            found["PROCTOR_COVER_TRACE"] = "1"
    if trace and any(path.endswith(SHELL) for path in chosen):
        found |= {"BASH_ENV": f"{tracer}/bash.sh", "PROCTOR_COVER_SH": "{out}/bash-lines"}
    if any(path.endswith(SCRIPT) for path in chosen):
        found["NODE_V8_COVERAGE"] = "{out}/v8"
    return found


def read_coverage(
    files: Mapping[str, bytes], changed: Mapping[str, Iterable[int]], contents: Mapping[str, bytes], root: str
) -> Coverage:
    """Compare what was executed with the changed lines; `root` is the repository as the command saw it."""
    python = _python_lines(files.get("python-lines"), root)
    shell = files.get("bash-lines")
    scripts = [data for name, data in sorted(files.items()) if name.startswith("v8/")]
    executed: dict[str, tuple[int, ...]] = {}
    missed: dict[str, tuple[int, ...]] = {}
    unknown: list[str] = []
    for path, lines in sorted(changed.items()):
        source = contents.get(path)
        ran: set[int] | None = None
        able: set[int] = set()
        if source is not None and path.endswith(PYTHON) and python is not None:
            able, ran = _executable(source) & set(lines), python.get(path, set())
        elif source is not None and path.endswith(SHELL) and shell is not None:
            able, ran = _shell_able(source) & set(lines), _shell_lines(shell, path, root)
        elif source is not None and path.endswith(SCRIPT) and scripts:
            able = _worded(source) & set(lines)
            ran = _script_lines(scripts, f"{root}/{path}", source, able)
        if ran is None:
            unknown.append(path)
            continue
        if hit := sorted(able & ran):
            executed[path] = tuple(hit)
        if lost := sorted(able - ran):
            missed[path] = tuple(lost)
    return Coverage(executed, missed, tuple(unknown))


_TRACED = re.compile(r"^\++proctor:(?P<place>[^:\n]*):(?P<file>[^:\n]*):(?P<line>\d+): ", re.MULTILINE)
_STRUCTURE = re.compile(
    r"^\s*(?:fi|done|else|then|do|esac|;;|[{}]|in|[\w-]+\s*\(\)\s*\{?|function\b.*)[\s;]*$"
)


def _shell_lines(data: bytes, path: str, root: str) -> set[int]:
    found: set[int] = set()
    for row in _TRACED.finditer(data.decode("utf-8", "replace")):
        name = row["file"].removeprefix("./")
        full = name if name.startswith("/") else f"{row['place']}/{name}"
        # A script may have left the directory its name was relative to.
        if full == f"{root}/{path}" or (not name.startswith("/") and path == name):
            found.add(int(row["line"]))
    return found


def _shell_able(source: bytes) -> set[int]:
    """Lines of a script that begin a command: no structure alone, no continuation of the line above."""
    lines = source.decode("utf-8", "replace").split("\n")
    goes_on = {
        number + 1 for number, line in enumerate(lines, 1) if line.rstrip().endswith(("\\", "|", "&&", "||"))
    }
    return {number for number in _worded(source) - goes_on if not _STRUCTURE.match(lines[number - 1])}


def _python_lines(data: bytes | None, root: str) -> dict[str, set[int]] | None:
    """Lines by path from the repository's root; None when no tracer reported at all."""
    if data is None:
        return None
    found: dict[str, set[int]] = {}
    for row in data.decode("utf-8", "surrogateescape").splitlines():
        number, _, path = row.partition("\t")
        if number.isdigit() and path.startswith(f"{root}/"):
            found.setdefault(path.removeprefix(f"{root}/"), set()).add(int(number))
    return found


def _executable(source: bytes) -> set[int]:
    """Lines of a Python file that carry code; none when it does not compile."""
    try:
        queue = [compile(source, "<changed>", "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return set()
    found: set[int] = set()
    while queue:
        code = queue.pop()
        found |= {line for _start, _end, line in code.co_lines() if line}
        queue += [each for each in code.co_consts if isinstance(each, CodeType)]
    return found & _worded(source)


_COMMENT = re.compile(r"^\s*(//|/?\*|#|[{}()\[\];,]*\s*$)")


def _worded(source: bytes) -> set[int]:
    """Lines that say something: neither blank, nor a comment, nor brackets alone."""
    text = source.decode("utf-8", "replace")
    return {number for number, line in enumerate(text.split("\n"), 1) if not _COMMENT.match(line)}


def _script_lines(reports: Iterable[bytes], path: str, source: bytes, lines: set[int]) -> set[int] | None:
    """Which of the lines V8 saw executed; None when no process loaded the file under this name."""
    starts = _line_starts(source.decode("utf-8", "replace"))
    ran: set[int] = set()
    for report in reports:
        for functions in _functions(report, path):
            ran |= {line for line in lines if line in starts and _count(functions, starts[line]) > 0}
    return ran


def _line_starts(text: str) -> dict[int, int]:
    """Where the first word of each line stands, in UTF-16 units as V8 counts."""
    found: dict[int, int] = {}
    offset = 0
    for number, line in enumerate(text.split("\n"), 1):
        indent = len(line) - len(line.lstrip())
        found[number] = offset + indent
        offset += len(line.encode("utf-16-le", "surrogatepass")) // 2 + 1
    return found


def _functions(report: bytes, path: str) -> Iterable[list[Any]]:
    try:
        scripts = json.loads(report)["result"]
        found = [s["functions"] for s in scripts if unquote(urlsplit(s["url"]).path) == path]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [functions for functions in found if isinstance(functions, list)]


def _count(functions: list[Any], offset: int) -> int:
    """How often the innermost block around a place ran."""
    best, size = 0, float("inf")
    for function in functions:
        for block in function.get("ranges", ()):
            start, end = block.get("startOffset", 0), block.get("endOffset", 0)
            if start <= offset < end and end - start <= size:
                best, size = int(block.get("count", 0)), end - start
    return best
