"""The two directories of the exchange: `orchestrator/outgoing` and `orchestrator/incoming` of a workspace.

Invariants: a sequence number is given out once, whoever asks at the same time; a file appears whole or not at all; a file
that is there is never overwritten by a new one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.proof.names import LAST_SEQUENCE, FileName, FileNameError, parse_name, sequence_of
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.workspace.locks import directory_lock

__all__ = ["MAX_FILES", "Exchange", "Listed"]

MAX_FILES: Final = 5000


@dataclass(frozen=True, slots=True)
class Listed:
    """One file of the exchange; `problem` says why its name is wrong."""

    path: Path
    box: str
    name: FileName | None
    problem: str = ""


class Exchange:
    """The exchange of one workspace."""

    def __init__(self, root: Path, directory: str = "orchestrator") -> None:
        self.root = root
        self.outgoing = root / directory / "outgoing"
        self.incoming = root / directory / "incoming"

    def files(self) -> list[Listed]:
        """All files in both directories, by name; capped."""
        return [
            _listed(path, box)
            for box, place in (("outgoing", self.outgoing), ("incoming", self.incoming))
            for path in _regular(place)
        ]

    def find(self, word: str) -> Path:
        """A file by path, by name, or by its sequence number; what came back wins over what went out."""
        given = Path(word)
        if given.is_absolute() or "/" in word or os.path.lexists(given):
            return given
        matching = [
            one.path for one in reversed(self.files()) if one.path.name == word or _numbered(one, word)
        ]
        incoming = [path for path in matching if path.parent == self.incoming]
        found = incoming or matching
        if not found:
            raise NotFoundError(kind="fix file", name=word, cure="See `proctor fixes list`.")
        if len({path.name for path in found}) > 1:
            names = ", ".join(sorted(path.name for path in found))
            raise UsageError(message=f"{word} names several files: {names}. Give the name of one.")
        return found[0]

    def create(self, focus: str, kind: str, text: str, *, extension: str = "json", after: int = 0) -> Path:
        """Write a new outgoing file under the next free sequence number, greater than `after`."""
        with self.allocated(focus, kind, extension=extension, after=after) as name:
            return self.put(name, text)

    @contextlib.contextmanager
    def allocated(
        self, focus: str, kind: str, *, extension: str = "json", after: int = 0
    ) -> Iterator[FileName]:
        """Hold the next free name while the block writes it with `put`."""
        self.outgoing.mkdir(parents=True, exist_ok=True)
        with directory_lock(self.outgoing):
            name = FileName(max(self._last(), after) + 1, focus, kind, extension)
            if name.sequence > LAST_SEQUENCE:
                cure = "Move finished files elsewhere to free the numbers."
                raise UsageError(message=f"The sequence numbers up to {LAST_SEQUENCE} are used up. {cure}")
            parse_name(str(name))  # a focus area from outside obeys the rule too
            yield name

    def put(self, name: FileName, text: str) -> Path:
        """Let a new file appear, whole; fails if one of that name is there."""
        target = self.outgoing / str(name)
        handle, scratch = tempfile.mkstemp(dir=self.outgoing, prefix=f".{name}.", suffix=".new")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
                stream.write(text)
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            os.link(scratch, target)  # unlike a rename, a link never overwrites
        finally:
            Path(scratch).unlink(missing_ok=True)
        return target

    def deliver(self, name: str) -> Path:
        """Move an answered file from outgoing to incoming; one that came back before is kept."""
        source, target = self.outgoing / name, self.incoming / name
        self.incoming.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileExistsError:
            if not source.samefile(target):
                cure = "Look at both and remove the one that is not wanted."
                raise UsageError(message=f"{name} lies in {self.incoming} already. {cure}") from None
        except FileNotFoundError:
            raise NotFoundError(kind="outgoing file", name=name, cure="See `proctor fixes list`.") from None
        source.unlink()
        return target

    def _last(self) -> int:
        names = [path.name for place in (self.outgoing, self.incoming) for path in _regular(place)]
        return max((number for name in names if (number := sequence_of(name)) is not None), default=0)


def _listed(path: Path, box: str) -> Listed:
    try:
        return Listed(path, box, parse_name(path.name))
    except FileNameError as error:
        return Listed(path, box, None, str(error.facts["problem"]))


def _numbered(one: Listed, word: str) -> bool:
    """`7` names what `007` names."""
    return one.name is not None and word.isdecimal() and (word.lstrip("0") or "0") == str(one.name.sequence)


def _regular(place: Path) -> list[Path]:
    """The regular files of a directory, by name; links are left alone."""
    found: list[Path] = []
    try:
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                    found.append(Path(entry.path))
                if len(found) > MAX_FILES:
                    cure = "Move finished files elsewhere."
                    raise UsageError(message=f"{place} holds more than {MAX_FILES} files. {cure}")
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)
