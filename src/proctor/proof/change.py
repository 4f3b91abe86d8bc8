"""A change as the checks see it: every touched file with its text before and after, and the diff between them.

Invariant: what could not be read (binary, too large, too many) is listed in `unread`, so that no check takes it for fine.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from proctor.proof.diff import Diff, FileDiff, Hunk, Line, parse_diff
from proctor.proof.kinds import FileKind, file_kind
from proctor.workspace.git import Git

__all__ = ["Change", "ChangedFile", "change_of", "diff_texts", "read_change", "short_lines"]

MAX_FILES: Final = 400
MAX_TEXT: Final = 1024 * 1024
MAX_LINE: Final = 2000
_LONG_LINE: Final = re.compile(rf"[^\n]{{{MAX_LINE},}}")
_CAREFUL: Final = 2000


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One touched file; no text before means it is new, none after means it is gone."""

    path: str
    before: str | None
    after: str | None
    old_path: str | None = None

    @property
    def kind(self) -> FileKind:
        """What the file is for."""
        return file_kind(self.path)


@dataclass(frozen=True)
class Change:
    """All touched files and the diff."""

    files: tuple[ChangedFile, ...]
    diff: Diff
    unread: tuple[str, ...] = ()

    def of_kind(self, *kinds: FileKind) -> list[ChangedFile]:
        """The files of some kinds."""
        return [file for file in self.files if file.kind in kinds]

    @cached_property
    def empty(self) -> bool:
        """Whether nothing was changed at all."""
        return not self.diff.files and not self.files


def short_lines(text: str) -> str:
    """The same lines, each with its beginning only, for rules that read text and not a tree.

    Minified code is one line of a megabyte, and such rules look at each place of a line many times.
    """
    return _LONG_LINE.sub(lambda found: found[0][:MAX_LINE], text) if len(text) > MAX_LINE else text


def change_of(
    texts: Mapping[str, tuple[str | None, str | None]], renames: Mapping[str, str] | None = None
) -> Change:
    """Make a change from texts before and after by path; `renames` tells the old path of a moved file."""
    old = dict(renames or {})
    files = tuple(
        ChangedFile(path, before, after, old.get(path))
        for path, (before, after) in texts.items()
        if before != after or path in old
    )
    return Change(
        files, Diff(tuple(diff_texts(f.before, f.after, f.path, old_path=f.old_path) for f in files))
    )


def diff_texts(
    before: str | None, after: str | None, path: str, *, old_path: str | None = None, context: int = 3
) -> FileDiff:
    """Compare two texts line by line."""
    old, new = _lines(before), _lines(after)
    # difflib can take minutes for thousands of lines that are all different; its shortcut is good enough there.
    quick = len(old) + len(new) > _CAREFUL
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=quick)
    groups = matcher.get_grouped_opcodes(context)
    hunks = tuple(_hunk(group, old, new) for group in groups)
    return FileDiff(None if before is None else old_path or path, None if after is None else path, hunks)


def _lines(text: str | None) -> list[tuple[str, bool]]:
    parts = (text or "").split("\n")
    return [(part, True) for part in parts[:-1]] + ([(parts[-1], False)] if parts[-1] else [])


def _hunk(
    group: list[tuple[str, int, int, int, int]], old: list[tuple[str, bool]], new: list[tuple[str, bool]]
) -> Hunk:
    lines: list[Line] = []
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [Line(" ", *one) for one in old[i1:i2]]
        else:
            lines += [Line("-", *one) for one in old[i1:i2]] + [Line("+", *one) for one in new[j1:j2]]
    first, last = group[0], group[-1]
    old_start = first[1] + (1 if last[2] > first[1] else 0)
    new_start = first[3] + (1 if last[4] > first[3] else 0)
    return Hunk(old_start, new_start, tuple(lines))


def read_change(git: Git, base: str, head: str | None = None) -> Change:
    """Read a change between two commits, or between a commit and the checkout, with git; runs nothing of the project."""
    where = [base] if head is None else [base, head]
    text = git("diff", "--no-ext-diff", "--no-textconv", "--find-renames", "--no-color", *where, "--")
    diff = parse_diff(text + "\n")
    files: list[ChangedFile] = []
    unread: list[str] = []
    for file in diff.files:
        read = None if file.binary or len(files) >= MAX_FILES else _read(git, file, base, head)
        if read is None:
            unread.append(file.path)
        else:
            files.append(read)
    return Change(tuple(files), diff, tuple(unread))


def _read(git: Git, file: FileDiff, base: str, head: str | None) -> ChangedFile | None:
    before = _shown(git, base, file.old_path) if file.old_path else None
    after = (
        (_shown(git, head, file.new_path) if head else _on_disk(git, file.new_path))
        if file.new_path
        else None
    )
    if (file.old_path and before is None) or (file.new_path and after is None):
        return None
    return ChangedFile(file.path, before, after, file.old_path if file.status == "renamed" else None)


def _shown(git: Git, revision: str, path: str | None) -> str | None:
    ran = git.run("cat-file", "blob", f"{revision}:{path}")
    return ran.stdout if ran.returncode == 0 and len(ran.stdout) <= MAX_TEXT else None


def _on_disk(git: Git, path: str | None) -> str | None:
    place = git.place / (path or "")
    if path is None or re.search(r"(?:^|/)\.\.(?:/|$)", path) or place.is_symlink() or not place.is_file():
        return None
    if place.stat().st_size > MAX_TEXT:
        return None
    return place.read_bytes().decode("utf-8", "surrogateescape").replace("\r\n", "\n")
