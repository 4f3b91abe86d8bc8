"""Reading and writing fix files: refused as a whole with line and field of every problem, written back byte by byte.

Invariants: nothing of a file that is not wholly right is used; a read is capped before it is parsed; a write changes only
the value it is about and appears at once (atomic replace), so a reader never sees half a file.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError

from proctor.proof.dialects import dialect_problems
from proctor.proof.jsontext import JsonText, JsonTextError, Path, path_name, scan_json
from proctor.proof.schema import STATUSES, Fix, FixFile, Result
from proctor.protocol.errors import NotFoundError, UsageError

__all__ = [
    "MAX_BYTES",
    "MAX_FIXES",
    "FixDocument",
    "FixFileError",
    "Problem",
    "load_fix_file",
    "parse_fix_file",
    "read_capped",
    "replace_file",
    "with_result",
]

MAX_BYTES: Final = 8 * 1024 * 1024
MAX_FIXES: Final = 5000
MAX_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file: where it stands, which member, and a sentence."""

    line: int
    field: str
    sentence: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.field}: {self.sentence}" if self.line else self.sentence


class FixFileError(UsageError):
    """{name} is not a fix file, nothing was run: {listed}"""

    code = "fix_file"

    def __init__(self, *, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        shown = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        if len(self.problems) > MAX_PROBLEMS:
            shown.append(f"and {len(self.problems) - MAX_PROBLEMS} more")
        super().__init__(name=name, listed="; ".join(shown).rstrip(".") + ".")


@dataclass(frozen=True, slots=True)
class FixDocument:
    """A fix file that is right: what it says, and the text it was read from with all places."""

    name: str
    data: FixFile
    source: JsonText

    @property
    def text(self) -> str:
        """The text as it was read."""
        return self.source.text

    @property
    def fixes(self) -> list[Fix]:
        """The fixes in the order of the file."""
        return self.data.fixes

    def line_of(self, index: int, *members: str) -> int:
        """The line in the file on which a fix or a member of it stands."""
        return self.source.line(("fixes", index, *members))

    def raw_fix(self, index: int) -> dict[str, Any]:
        """A fix with all members, extra ones too, in their order."""
        fix: dict[str, Any] = self.source.value["fixes"][index]
        return fix


def load_fix_file(path: FilePath) -> FixDocument:
    """Read a fix file from disk, or say in one sentence each what is wrong with it."""
    return parse_fix_file(_decoded(read_capped(path), path.name), path.name)


def parse_fix_file(text: str, name: str = "text") -> FixDocument:
    """Read a fix file from text."""
    if len(text) > MAX_BYTES:
        raise FixFileError(name=name, problems=[_too_large(len(text))])
    try:
        source = scan_json(text, name)
    except JsonTextError as error:
        line = error.facts["line"]
        assert isinstance(line, int)
        raise FixFileError(name=name, problems=[Problem(line, "JSON", str(error.facts["problem"]))]) from None
    if problems := list(_dialects(source)):
        raise FixFileError(name=name, problems=problems)
    problems = list(_counted(source))
    data = None
    try:
        data = FixFile.model_validate(source.value)
    except ValidationError as error:
        problems.extend(_said(error, source))
    if problems or data is None:
        raise FixFileError(name=name, problems=sorted(problems, key=lambda one: one.line))
    return FixDocument(name, data, source)


def with_result(document: FixDocument, index: int, result: Mapping[str, Any]) -> FixDocument:
    """Set the result of one fix; every other byte stays, and what comes out is checked like what comes in."""
    text = document.source.with_member(("fixes", index), "result", dict(result))
    return parse_fix_file(text, document.name)


def read_capped(path: FilePath, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file of limited size without following a link at its end or waiting for a pipe."""
    handle = _open(path)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise FixFileError(name=path.name, problems=[Problem(0, "", "it is not a regular file")])
        if found.st_size > limit:
            raise FixFileError(name=path.name, problems=[_too_large(found.st_size, limit)])
        with os.fdopen(os.dup(handle), "rb") as stream:
            content = stream.read(limit + 1)
    finally:
        os.close(handle)
    if len(content) > limit:  # it grew while it was read
        raise FixFileError(name=path.name, problems=[_too_large(len(content), limit)])
    return content


def _open(path: FilePath) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFoundError(kind="file", name=str(path), cure="See `proctor fixes list`.") from None
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0).lower()
        raise FixFileError(
            name=path.name, problems=[Problem(0, "", f"it cannot be read: {reason}")]
        ) from None


def replace_file(path: FilePath, text: str) -> None:
    """Put a text in the place of a file at once and durably; a crash leaves the old one or the new one."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fchmod(stream.fileno(), _mode(path))
            os.fsync(stream.fileno())
        FilePath(scratch).replace(path)
    finally:
        FilePath(scratch).unlink(missing_ok=True)  # gone already if it was put in place
    _sync_directory(path.parent)


def _mode(path: FilePath) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o644


def _sync_directory(path: FilePath) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _too_large(size: int, limit: int = MAX_BYTES) -> Problem:
    return Problem(
        0, "", f"it has {size:,} bytes and {limit:,} are read at most; split it into several files"
    )


def _decoded(content: bytes, name: str) -> str:
    if b"\0" in content[:8192]:
        raise FixFileError(name=name, problems=[Problem(0, "", "it is binary, not JSON text")])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FixFileError(name=name, problems=[Problem(line, "text", "it is not UTF-8 text")]) from None


def _dialects(source: JsonText) -> Iterator[Problem]:
    """Another shape altogether, or another dialect: what else is wrong would only confuse."""
    if not isinstance(source.value, dict):
        yield Problem(1, "the file", "must be a JSON object with review_id, component, date and fixes")
        return
    for path, sentence in dialect_problems(source.value):
        yield Problem(source.line(path), path_name(path), sentence)


def _counted(source: JsonText) -> Iterator[Problem]:
    """What the models cannot say: too many fixes, ids that stand twice."""
    fixes = source.value.get("fixes")
    if not isinstance(fixes, list):
        return
    if len(fixes) > MAX_FIXES:
        many = f"{len(fixes)} fixes are too many; at most {MAX_FIXES} in a file"
        yield Problem(source.line(("fixes",)), "fixes", many)
    yield from _double_ids(fixes, source)


def _double_ids(fixes: list[Any], source: JsonText) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, fix in enumerate(fixes):
        name = fix.get("id") if isinstance(fix, dict) else None
        if not isinstance(name, int | str) or isinstance(name, bool):
            continue
        path: Path = ("fixes", index, "id")
        if str(name) in first:
            taken = f"the id {str(name)[:64]!r} is taken by line {first[str(name)]}; ids are unique"
            yield Problem(source.line(path), path_name(path), taken)
        first.setdefault(str(name), source.line(path))


_SENTENCES: Final = {
    "missing": "is missing",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "list_type": "must be a list",
    "bool_type": "must be true or false",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "string_too_short": "must not be empty",
    "too_short": "must have at least one element",
    "string_pattern_mismatch": "must be a number, or a text of letters, digits, dot, dash and underscore",
}


def _said(error: ValidationError, source: JsonText) -> Iterator[Problem]:
    seen: set[Path] = set()
    for one in error.errors(include_url=False, include_input=False):
        path = _known(one["loc"], source)
        if path in seen:  # one sentence for each member; unions report every branch
            continue
        seen.add(path)
        yield Problem(source.line(path), path_name(path), _sentence(one, path))


def _known(loc: Path, source: JsonText) -> Path:
    """Cut off what pydantic adds for branches of a union, but keep the name of a member that is missing."""
    path: Path = ()
    for part in loc:
        if (*path, part) in source.spans:
            path = (*path, part)
        elif isinstance(part, str) and part in _MEMBERS:
            return (*path, part)
        else:
            break
    return path


_MEMBERS: Final = frozenset({*FixFile.model_fields, *Fix.model_fields, *Result.model_fields})


def _sentence(one: Any, path: Path) -> str:
    kind, name = one["type"], path[-1] if path else ""
    if name == "status":
        return f"must be one of {', '.join(STATUSES)}"
    if name == "severity":
        return "must be critical, major or minor"
    if name == "id":
        return "must be a whole number, or a text of letters, digits, dot, dash and underscore"
    if name == "line" and kind != "missing":
        return 'must be a line number such as 85 or a range such as "85-92"'
    sentence: str = _SENTENCES.get(kind, one["msg"])
    if name == "hallucination_check" and kind == "missing":
        return f"{sentence}; add a one-line command that shows the change in the code"
    return sentence
