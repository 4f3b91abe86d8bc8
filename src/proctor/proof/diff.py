"""Unified diffs as git writes them: read into files, hunks and lines, rendered, applied and reversed.

Invariants: lines are told by the counts in the hunk headers, so a removed `-- x` is never taken for a file header; what is
not a diff is refused with its line; `parse_diff(render_diff(d)) == d`; lines end only at a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NoReturn

from proctor.protocol.errors import UsageError

__all__ = ["Diff", "DiffError", "FileDiff", "Hunk", "Line", "apply", "parse_diff", "render_diff", "reverse"]

Status = Literal["added", "deleted", "modified", "renamed", "copied"]

_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
_ESCAPES: Final = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_NO_END: Final = "\\ No newline at end of file"


class DiffError(UsageError):
    """The diff cannot be read at line {line}: {problem}. Make it with `git diff`."""

    code = "diff"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a hunk: kind is " ", "+" or "-"; `ended` is false for a last line without a line end."""

    kind: str
    text: str
    ended: bool = True


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that stand together."""

    old_start: int
    new_start: int
    lines: tuple[Line, ...]
    section: str = ""

    @property
    def old_count(self) -> int:
        """How many lines of the old file it covers."""
        return sum(line.kind != "+" for line in self.lines)

    @property
    def new_count(self) -> int:
        """How many lines of the new file it covers."""
        return sum(line.kind != "-" for line in self.lines)

    def numbered(self) -> Iterator[tuple[int, Line]]:
        """Each line with its number: of the old file for removed lines, of the new file for all others."""
        old, new = max(self.old_start, 1), max(self.new_start, 1)
        for line in self.lines:
            yield (old if line.kind == "-" else new), line
            old += line.kind != "+"
            new += line.kind != "-"


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What became of one file."""

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...] = ()
    old_mode: str | None = None
    new_mode: str | None = None
    binary: bool = False
    similarity: int | None = None
    copied: bool = False

    @property
    def path(self) -> str:
        """The path after the change; the old one if the file is gone."""
        return self.new_path or self.old_path or ""

    @property
    def status(self) -> Status:
        """What happened to the file."""
        if self.old_path is None:
            return "added"
        if self.new_path is None:
            return "deleted"
        if self.copied:
            return "copied"
        return "renamed" if self.old_path != self.new_path else "modified"

    @property
    def added(self) -> list[tuple[int, str]]:
        """Added lines with their number in the new file."""
        return [
            (number, line.text) for hunk in self.hunks for number, line in hunk.numbered() if line.kind == "+"
        ]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """Removed lines with their number in the old file."""
        return [
            (number, line.text) for hunk in self.hunks for number, line in hunk.numbered() if line.kind == "-"
        ]


@dataclass(frozen=True, slots=True)
class Diff:
    """What became of all files."""

    files: tuple[FileDiff, ...] = ()

    def of(self, path: str) -> FileDiff | None:
        """The part about one file, by its new or old path."""
        return next((file for file in self.files if path in {file.new_path, file.old_path}), None)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all files that are touched."""
        return tuple(file.path for file in self.files)


def parse_diff(text: str) -> Diff:
    """Read the output of `git diff`, `git show` or `diff -u`; text before the first file is skipped."""
    return Diff(tuple(_Reader(text).files()))


class _Reader:
    """One pass over one diff."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        if self._lines and not self._lines[-1]:
            self._lines.pop()
        self._at = 0

    def _fail(self, problem: str) -> NoReturn:
        raise DiffError(line=self._at + 1, problem=problem)

    def _peek(self) -> str | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def files(self) -> Iterator[FileDiff]:
        """Read file after file."""
        while (line := self._peek()) is not None:
            if line.startswith("diff --git "):
                yield self._git()
            elif line.startswith(("diff --cc ", "diff --combined ")):
                self._fail("a combined diff of a merge has more than two sides")
            elif line.startswith("--- ") and (self._following() or "").startswith("+++ "):
                yield self._plain()
            else:
                self._at += 1

    def _following(self) -> str | None:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else None

    def _plain(self) -> FileDiff:
        old = _stripped(self._lines[self._at][4:], "a/")
        new = _stripped(self._lines[self._at + 1][4:], "b/")
        self._at += 2
        return FileDiff(old, new, tuple(self._hunks()))

    def _git(self) -> FileDiff:
        file = _from_header(self._lines[self._at][len("diff --git ") :])
        self._at += 1
        added = deleted = False
        while (line := self._peek()) is not None and not line.startswith(("diff ", "@@ ")):
            word, _, rest = line.partition(" ")
            if word in {"new", "deleted"} and rest.startswith("file mode "):
                added, deleted = added or word == "new", deleted or word == "deleted"
                mode = rest.removeprefix("file mode ")
                file = replace(file, new_mode=mode) if word == "new" else replace(file, old_mode=mode)
            elif line.startswith(("--- ", "+++ ")):
                file = _sided(file, line)
            else:
                file = _headed(file, line)
            self._at += 1
            if line.startswith("GIT binary patch"):
                self._skip_binary()
        file = replace(file, hunks=tuple(self._hunks()))
        return replace(
            file, old_path=None if added else file.old_path, new_path=None if deleted else file.new_path
        )

    def _skip_binary(self) -> None:
        while (line := self._peek()) is not None and not line.startswith("diff "):
            self._at += 1

    def _hunks(self) -> Iterator[Hunk]:
        while (line := self._peek()) is not None and line.startswith("@@ "):
            found = _HUNK.fullmatch(line)
            if found is None:
                self._fail("the hunk header is not complete")
            self._at += 1
            counts = int(found[2] or 1), int(found[4] or 1)
            if found[2] == "0" or found[4] == "0":
                counts = (
                    int(found[2] if found[2] is not None else 1),
                    int(found[4] if found[4] is not None else 1),
                )
            yield Hunk(int(found[1]), int(found[3]), tuple(self._body(*counts)), found[5].removeprefix(" "))

    def _body(self, old: int, new: int) -> list[Line]:
        lines: list[Line] = []
        while old > 0 or new > 0:
            line = self._peek()
            if line is None:
                self._fail("the hunk ends too early")
            kind = line[:1] or " "  # some tools strip the blank of an empty context line
            if kind == "\\" and lines:
                lines[-1] = replace(lines[-1], ended=False)
                self._at += 1
                continue
            if kind not in " +-":
                self._fail(f"a line of a hunk begins with {kind!r}")
            old -= kind != "+"
            new -= kind != "-"
            if old < 0 or new < 0:
                self._fail("the hunk has more lines than its header says")
            lines.append(Line(kind, line[1:]))
            self._at += 1
        if lines and (self._peek() or "").startswith("\\"):
            lines[-1] = replace(lines[-1], ended=False)
            self._at += 1
        return lines


def _stripped(name: str, prefix: str) -> str | None:
    """A path of a header without quotes, prefix and the time some tools add."""
    name = _unquoted(name) if name.startswith('"') else name.partition("\t")[0]
    return None if name == "/dev/null" else name.removeprefix(prefix)


def _unquoted(name: str) -> str:
    """Read git's C-style quoting; octal escapes are bytes of UTF-8."""
    end = name.rfind('"')
    raw = bytearray()
    letters = iter(name[1:end])
    for letter in letters:
        if letter != "\\":
            raw += letter.encode("utf-8", "surrogateescape")
            continue
        code = next(letters, "\\")
        if code in "01234567":
            raw.append(int(code + next(letters, "0") + next(letters, "0"), 8) & 255)
        else:
            raw.append(_ESCAPES.get(code, ord(code) & 255))
    return raw.decode("utf-8", "surrogateescape")


def _from_header(rest: str) -> FileDiff:
    """Take the paths from `diff --git a/X b/Y`; without quotes they are equal unless renamed, which other lines tell."""
    if rest.startswith('"'):
        first = re.match(r'"(?:[^"\\]|\\.)*"', rest)
        old = first[0] if first else rest
        new = rest[len(old) + 1 :]
    else:
        half = (len(rest) - 1) // 2
        same = rest[half : half + 1] == " " and rest[:half].removeprefix("a/") == rest[
            half + 1 :
        ].removeprefix("b/")
        old, new = (
            (rest[:half], rest[half + 1 :])
            if same
            else (rest.partition(" b/")[0], "b/" + rest.partition(" b/")[2])
        )
    return FileDiff(_stripped(old, "a/"), _stripped(new, "b/"))


def _sided(file: FileDiff, line: str) -> FileDiff:
    if line.startswith("--- "):
        path = _stripped(line[4:], "a/")
        return replace(file, old_path=path) if path is not None else file
    path = _stripped(line[4:], "b/")
    return replace(file, new_path=path) if path is not None else file


def _headed(file: FileDiff, line: str) -> FileDiff:
    for head, member in (("old mode ", "old_mode"), ("new mode ", "new_mode")):
        if line.startswith(head):
            mode = line.removeprefix(head)
            return replace(file, old_mode=mode) if member == "old_mode" else replace(file, new_mode=mode)
    for head in ("rename from ", "copy from "):
        if line.startswith(head):
            return replace(
                file, old_path=_stripped(line.removeprefix(head), ""), copied=head.startswith("copy")
            )
    for head in ("rename to ", "copy to "):
        if line.startswith(head):
            return replace(file, new_path=_stripped(line.removeprefix(head), ""))
    if found := re.fullmatch(r"similarity index (\d+)%", line):
        return replace(file, similarity=int(found[1]))
    if line.startswith(("Binary files ", "GIT binary patch")):
        return replace(file, binary=True)
    return file


def render_diff(diff: Diff) -> str:
    """Write a diff as git would."""
    return "".join(_rendered(file) for file in diff.files)


def _rendered(file: FileDiff) -> str:
    old, new = file.old_path or file.path, file.new_path or file.path
    lines = [f"diff --git {_quoted('a/' + old)} {_quoted('b/' + new)}", *_modes(file)]
    if file.status in {"renamed", "copied"}:
        word = "copy" if file.copied else "rename"
        lines += [f"similarity index {100 if file.similarity is None else file.similarity}%"]
        lines += [f"{word} from {_quoted(old)}", f"{word} to {_quoted(new)}"]
    if file.binary:
        lines.append("Binary files differ")
    if file.hunks:
        lines.append(f"--- {_quoted('a/' + old) if file.old_path else '/dev/null'}")
        lines.append(f"+++ {_quoted('b/' + new) if file.new_path else '/dev/null'}")
    for hunk in file.hunks:
        lines.extend(_hunk_lines(hunk))
    return "\n".join(lines) + "\n"


def _modes(file: FileDiff) -> list[str]:
    if file.old_path is None:
        return [f"new file mode {file.new_mode or '100644'}"]
    if file.new_path is None:
        return [f"deleted file mode {file.old_mode or '100644'}"]
    pairs = (("old mode", file.old_mode), ("new mode", file.new_mode))
    return [f"{word} {mode}" for word, mode in pairs if mode is not None]


def _hunk_lines(hunk: Hunk) -> Iterator[str]:
    section = f" {hunk.section}" if hunk.section else ""
    yield f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count} @@{section}"
    for line in hunk.lines:
        yield line.kind + line.text
        if not line.ended:
            yield _NO_END


def _quoted(path: str) -> str:
    raw = path.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in raw):
        return path
    names = {code: letter for letter, code in _ESCAPES.items()}
    return (
        '"'
        + "".join(f"\\{names[b]}" if b in names else chr(b) if 32 <= b < 127 else f"\\{b:03o}" for b in raw)
        + '"'
    )


def apply(file: FileDiff, before: str) -> str:
    """Make the new content of a file from the old one; the hunks must fit exactly where they say."""
    lines = before.split("\n")
    ended = lines[-1] == ""
    old = [(text, True) for text in lines[:-1]] + ([] if ended else [(lines[-1], False)])
    new: list[tuple[str, bool]] = []
    at = 0
    for hunk in file.hunks:
        start = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        new += old[at:start]
        at = start
        for line in hunk.lines:
            if line.kind != "+":
                if at >= len(old) or old[at] != (line.text, line.ended):
                    raise DiffError(line=at + 1, problem=f"{file.path} does not have the line the diff names")
                at += 1
            if line.kind != "-":
                new.append((line.text, line.ended))
    new += old[at:]
    return "".join(text + ("\n" if end else "") for text, end in new)


def reverse(diff: Diff) -> Diff:
    """Turn a diff around."""
    return Diff(tuple(_reversed(file) for file in diff.files))


def _reversed(file: FileDiff) -> FileDiff:
    swap = {"+": "-", "-": "+", " ": " "}
    hunks = tuple(
        Hunk(
            h.new_start,
            h.old_start,
            tuple(replace(line, kind=swap[line.kind]) for line in h.lines),
            h.section,
        )
        for h in file.hunks
    )
    return replace(
        file,
        old_path=file.new_path,
        new_path=file.old_path,
        old_mode=file.new_mode,
        new_mode=file.old_mode,
        hunks=hunks,
    )
