"""Files of the workspace: read, write, list. Nothing outside it is opened, whatever the path says.

Outputs carry the words of both seed dialects: `path` and `file_path`, `size` and `size_bytes`, `modified` and
`last_modified`. Every answer has a cap and says when it cut.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
)

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError, ProctorError
from proctor.protocol.tools import Reads, SideEffect, Tool, Touch, Writes
from proctor.tools.models import (
    MARK,
    Moment,
    PathText,
    ToolInput,
    ToolOutput,
    disk_errors,
    json_text,
    moment_of,
    now,
    to_its_end,
)
from proctor.tools.registry import declare
from proctor.workspace.files import READ_CAP, FileContent, ListedEntry, Root

__all__ = ["FILE_TOOLS", "SKIPPED", "FileEntry", "ListOut", "ReadOut", "WriteOut"]

WRITE_CAP: Final = 10_000_000
LIST_DEFAULT: Final = 2_000
LIST_MOST: Final = 10_000
DEEPEST: Final = 100
# Listed, but not walked into: what is in them was made by machines and would push everything else out of the cap.
SKIPPED: Final = frozenset(
    {".git", "node_modules", "__pycache__", ".venv", "venv", ".vs", ".tox", ".mypy_cache", ".pytest_cache"}
)


class ReadIn(ToolInput):
    """Which file."""

    path: PathText = Field(description="Path of the file, relative to the workspace.")
    max_bytes: int = Field(default=READ_CAP, ge=1, le=READ_CAP, description="Read no more than this.")


class ReadOut(ToolOutput):
    """What is in it."""

    path: str
    file_path: str
    content: str = Field(description="The text, or `[BINARY FILE: …]` for what is not UTF-8.")
    content_hash: str | None = Field(description="SHA-256 of the whole file; null when it was cut.")
    size_bytes: int
    last_modified: Moment
    binary: bool = False
    truncated: bool = False


class WriteIn(ToolInput):
    """Which file, and its whole new content."""

    path: PathText = Field(description="Path of the file, relative to the workspace.")
    content: str = Field(max_length=WRITE_CAP, description="The whole content; may be empty.")

    @field_validator("path")
    @classmethod
    def _not_too_deep(cls, path: str) -> str:
        """Make no tree that other programs cannot walk or remove."""
        if path.count("/") > DEEPEST:
            raise ValueError(f"more than {DEEPEST} directories deep")
        return path


class WriteOut(ToolOutput):
    """What was written."""

    success: bool = True
    message: str
    path: str
    file_path: str
    size: int
    size_bytes: int
    content_hash: str
    created: bool


class ListIn(ToolInput):
    """Which directory, and how deep."""

    path: PathText = Field(default=".", description="Directory, relative to the workspace.")
    recursive: bool = Field(default=True, description="Also what lies below its directories.")
    max_depth: int = Field(default=5, ge=1, le=100, description="Levels; 5 means exactly five.")
    limit: int = Field(default=LIST_DEFAULT, ge=1, le=LIST_MOST, description="List no more than this.")


def _missing(value: object) -> bool:
    """Leave out what this kind of entry does not have."""
    return value is None


class FileEntry(BaseModel):
    """One name; links are named, never followed."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="Relative to the workspace.")
    name: str
    type: str = Field(description="file, directory, symlink, pipe, socket, device or other.")
    is_dir: bool
    size: int | None = Field(default=None, exclude_if=_missing, description="In bytes; files only.")
    size_bytes: int
    modified: Moment
    last_modified: Moment
    target: str | None = Field(default=None, exclude_if=_missing, description="Where a link points.")
    problem: str | None = Field(
        default=None, exclude_if=_missing, description="Why a directory was not walked into."
    )


class ListOut(ToolOutput):
    """The names, sorted by path."""

    path: str
    dir_path: str
    files: list[FileEntry]
    count: int
    truncated: bool = False


# ── reading ────────────────────────────────────────────────────────────────────────────────────────────────


async def _read(context: Context, call: ReadIn) -> ReadOut:
    return await asyncio.to_thread(_read_now, context, call)


def _read_now(context: Context, call: ReadIn) -> ReadOut:
    with disk_errors(call.path), Root(context.root) as root:
        found = root.read(call.path, call.max_bytes)
    text = _text(found)
    whole = None if found.truncated else hashlib.sha256(found.data).hexdigest()
    return ReadOut(
        path=json_text(found.path),
        file_path=json_text(found.path),
        content=_marker(found) if text is None else text,
        content_hash=whole,
        size_bytes=found.size,
        last_modified=moment_of(found.mtime),
        binary=text is None,
        truncated=found.truncated,
    )


def _text(found: FileContent) -> str | None:
    """The text exactly, so that writing it back changes nothing; None for what is not UTF-8."""
    if found.binary:
        return None
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(found.data, final=not found.truncated)
    except UnicodeDecodeError:
        return None


def _marker(found: FileContent) -> str:
    return f"[BINARY FILE: {json_text(found.path)}, Size: {found.size} bytes]"


async def _read_mock(_context: Context, call: ReadIn) -> ReadOut:
    text = f"{MARK} content of {call.path}\n"
    return ReadOut(
        simulated=True,
        path=call.path,
        file_path=call.path,
        content=text,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        size_bytes=len(text.encode()),
        last_modified=now(),
    )


# ── writing ────────────────────────────────────────────────────────────────────────────────────────────────


async def _write(context: Context, call: WriteIn) -> WriteOut:
    return await to_its_end(lambda: _write_now(context, call))


def _write_now(context: Context, call: WriteIn) -> WriteOut:
    data = call.content.encode()
    with disk_errors(call.path), Root(context.root) as root:
        created = not _exists(root, call.path)
        root.write_atomic(call.path, data, permit=context.permit, fsync=True)
    return _written(call, data, created=created)


def _exists(root: Root, path: str) -> bool:
    try:
        root.read(path, 0)
    except NotFoundError:
        return False
    return True


def _written(call: WriteIn, data: bytes, *, created: bool, simulated: bool = False) -> WriteOut:
    return WriteOut(
        simulated=simulated,
        message=f"{MARK}: nothing was written" if simulated else "File written successfully",
        path=call.path,
        file_path=call.path,
        size=len(data),
        size_bytes=len(data),
        content_hash=hashlib.sha256(data).hexdigest(),
        created=created,
    )


async def _write_mock(_context: Context, call: WriteIn) -> WriteOut:
    return _written(call, call.content.encode(), created=True, simulated=True)


# ── listing ────────────────────────────────────────────────────────────────────────────────────────────────


async def _list(context: Context, call: ListIn) -> ListOut:
    return await asyncio.to_thread(_list_now, context, call)


def _list_now(context: Context, call: ListIn) -> ListOut:
    with disk_errors(call.path), Root(context.root) as root:
        walk = _Walk(root, call.limit)
        walk.level([call.path], call.max_depth if call.recursive else 1, context.cancel.is_set)
    files = sorted(walk.found, key=lambda entry: entry.path)
    return ListOut(
        path=call.path, dir_path=call.path, files=files, count=len(files), truncated=walk.truncated
    )


@dataclass
class _Walk:
    """Level by level, so that a cap cuts the deepest first."""

    root: Root
    limit: int
    found: list[FileEntry] = field(default_factory=list)
    truncated: bool = False

    def level(self, places: Iterable[str], depth: int, cancelled: Callable[[], bool]) -> None:
        """List these directories, then all that lie in them, until the depth or the cap is reached."""
        top = True
        while places and depth > 0:
            below: list[str] = []
            for place in places:
                if cancelled() or not self._one(place, below, top=top):
                    self.truncated = True
                    return
            places, depth, top = below, depth - 1, False

    def _one(self, place: str, below: list[str], *, top: bool) -> bool:
        """List one directory; False when there is more than the cap lets in."""
        room = self.limit - len(self.found)
        try:
            listing = self.root.list(place, cap=max(room, 1))
        except (ProctorError, OSError) as error:
            if top:
                raise
            self._mark(place, str(error))
            return True
        kept = listing.entries[:room]
        self.found += map(_entry, kept)
        below += [one.path for one in kept if one.kind == "directory" and _name(one) not in SKIPPED]
        return not listing.truncated and len(listing.entries) <= room

    def _mark(self, place: str, problem: str) -> None:
        """Say at the directory's own line why it was not walked into."""
        shown = json_text(place)
        for index, entry in enumerate(self.found):
            if entry.path == shown:
                self.found[index] = entry.model_copy(update={"problem": problem[:200]})


def _name(entry: ListedEntry) -> str:
    return entry.path.rpartition("/")[2]


def _entry(found: ListedEntry) -> FileEntry:
    at, folder = moment_of(found.mtime), found.kind == "directory"
    path = json_text(found.path)
    return FileEntry(
        path=path,
        name=path.rpartition("/")[2],
        type=found.kind,
        is_dir=folder,
        size=None if folder else found.size,
        size_bytes=found.size,
        modified=at,
        last_modified=at,
        target=None if found.target is None else json_text(found.target),
        problem=found.problem,
    )


async def _list_mock(_context: Context, call: ListIn) -> ListOut:
    at = now()
    entry = FileEntry(
        path=f"{MARK}.txt",
        name=f"{MARK}.txt",
        type="file",
        is_dir=False,
        size=0,
        size_bytes=0,
        modified=at,
        last_modified=at,
    )
    return ListOut(simulated=True, path=call.path, dir_path=call.path, files=[entry], count=1)


def _reads(call: ReadIn | ListIn) -> Sequence[Touch]:
    return (Reads(call.path),)


def _writes(call: WriteIn) -> Sequence[Touch]:
    return (Writes(call.path, call.content.encode()),)


FILE_TOOLS: tuple[Tool, ...] = (
    declare(
        name="read_file",
        summary="Read file contents from the repository.",
        input=ReadIn,
        output=ReadOut,
        domain="filesystem",
        side_effect=SideEffect.READ_ONLY,
        handler=_read,
        mock=_read_mock,
        touches=_reads,
        seconds=60.0,
    ),
    declare(
        name="write_file",
        summary="Write or create a file in the repository, whole; parent directories are made.",
        input=WriteIn,
        output=WriteOut,
        domain="filesystem",
        side_effect=SideEffect.PROPOSE,
        handler=_write,
        mock=_write_mock,
        touches=_writes,
        seconds=60.0,
    ),
    declare(
        name="list_directory",
        summary="List directory contents recursively, with type, size and time of each entry.",
        input=ListIn,
        output=ListOut,
        domain="filesystem",
        side_effect=SideEffect.READ_ONLY,
        handler=_list,
        mock=_list_mock,
        touches=_reads,
        seconds=60.0,
    ),
)
