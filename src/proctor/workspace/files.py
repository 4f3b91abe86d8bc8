"""Confined file access: read, write and list beneath one root, whatever links, `..`, FIFOs or races are there.

Invariants: nothing outside the root is opened; only regular files are read or replaced; every read and listing has a
cap and says when it cut; a write is whole or not at all, and demands a permit.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import heapq
import os
import secrets
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.permits import Permit, redeem_permit
from proctor.workspace.beneath import Opener, PathEscapeError, kernel_opener, walking_opener

__all__ = [
    "LIST_CAP",
    "READ_CAP",
    "FileContent",
    "ListedEntry",
    "Listing",
    "NotRegularFileError",
    "Root",
]

READ_CAP: Final = 1_000_000
LIST_CAP: Final = 10_000
_DEEPEST: Final = 100
_SNIFF: Final = 8192
_BLOCK: Final = 1 << 20
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY


class NotRegularFileError(RefusedError):
    """Refused: {path!r} is {found}, not a regular file. Name a regular file."""

    code = "not_regular"


@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of one file."""

    path: str
    size: int
    data: bytes
    truncated: bool
    mtime: float = 0.0

    @property
    def binary(self) -> bool:
        """Whether it holds NUL near its start."""
        return b"\0" in self.data[:_SNIFF]

    @property
    def text(self) -> str:
        """The text, or the marker of a binary file; other bytes than UTF-8 are read as Latin-1."""
        if self.binary:
            return f"[BINARY FILE: {self.path}, Size: {self.size} bytes]"
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            return decoder.decode(self.data, final=not self.truncated)
        except UnicodeDecodeError:
            return self.data.decode("latin-1")


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One name in a listing; links are named, never followed."""

    path: str
    kind: str
    size: int
    mtime: float
    target: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in order, and whether there are more."""

    entries: tuple[ListedEntry, ...]
    truncated: bool


class Root:
    """One directory and everything beneath it, held by its handle, so that renaming it changes nothing."""

    def __init__(self, path: str | Path, *, opener: Opener | None = None) -> None:
        self.path = Path(path).absolute()
        self._opener = opener or kernel_opener() or walking_opener()
        try:
            self._handle = os.open(self.path, _FOLDER | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(kind="directory", name=str(self.path), cure="Name an existing one.") from None

    def __enter__(self) -> Root:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the directory go; calling it twice does no harm."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, path: str | Path, cap: int = READ_CAP) -> FileContent:
        """Read at most `cap` bytes of a regular file."""
        name = self._relative(path)
        with self._opened(name, _READ) as handle:
            found = os.fstat(handle)
            _demand_regular(name, found)
            data = _read_up_to(handle, cap + 1)
        size, cut = max(found.st_size, len(data)), len(data) > cap
        return FileContent(name, size, data[:cap], truncated=cut, mtime=found.st_mtime)

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────────

    def write_atomic(
        self, path: str | Path, data: bytes, *, permit: Permit, fsync: bool = False, make_parents: bool = True
    ) -> None:
        """Put a whole new content in place of a file, keeping its mode; refuses to replace a link or a device."""
        redeem_permit(permit, now=time.monotonic())
        folder, _, name = self._relative(path).rpartition("/")
        if name in {"", ".", ".."}:
            raise NotRegularFileError(path=str(path), found="a directory")
        if make_parents:
            self._make_folders(folder)
        with self._opened(folder or ".", _FOLDER) as parent:
            _replace(parent, name, data, fsync=fsync)

    def _make_folders(self, folder: str) -> None:
        parts = [part for part in folder.split("/") if part not in {"", "."}]
        for count in range(1, len(parts) + 1):
            above, name = "/".join(parts[: count - 1]) or ".", parts[count - 1]
            if name == "..":
                continue
            with self._opened(above, _FOLDER) as parent, contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)

    # ── listing ───────────────────────────────────────────────────────────────────────────────────────────────

    def list(
        self, path: str | Path = ".", *, recursive: bool = False, max_depth: int = 5, cap: int = LIST_CAP
    ) -> Listing:
        """List a directory by name, `max_depth` levels at most (5 means five); links are not followed."""
        name = self._relative(path)
        prefix = "" if name in {"", "."} else name.rstrip("/") + "/"
        entries: list[ListedEntry] = []
        with self._opened(name or ".", _FOLDER) as handle:
            for entry in _walk(handle, prefix, min(max_depth, _DEEPEST) if recursive else 1, cap + 1):
                entries.append(entry)
                if len(entries) > cap:
                    break
        return Listing(tuple(entries[:cap]), truncated=len(entries) > cap)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────────────

    def _relative(self, path: str | Path) -> str:
        text = os.fspath(path)
        if "\0" in text:
            raise PathEscapeError(path=text, root=str(self.path))
        if not text.startswith("/"):
            return text
        try:
            return os.fspath(Path(text).relative_to(self.path))
        except ValueError:
            raise PathEscapeError(path=text, root=str(self.path)) from None

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        try:
            handle = self._opener.open(self._handle, path, flags)
        except PathEscapeError:
            raise PathEscapeError(path=path, root=str(self.path)) from None
        except FileNotFoundError:
            raise NotFoundError(kind="file", name=path, cure=f"It is not in {self.path}.") from None
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            yield handle
        finally:
            os.close(handle)


def _refusal(path: str, error: OSError) -> RefusedError:
    special = {
        errno.ELOOP: "a loop of links",
        errno.ENXIO: "a socket or a pipe without a reader",
        errno.ENOTDIR: "not where a directory is expected",
        errno.EISDIR: "a directory",
    }
    if error.errno in special:
        return NotRegularFileError(path=path, found=special[error.errno])
    return RefusedError(
        reason=f"{path!r} cannot be opened: {error.strerror}", cure="Check its name and its rights."
    )


def _demand_regular(path: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(path=path, found=f"a {_kind(found.st_mode)}")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "pipe"}
    return {**kinds, stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}.get(
        stat.S_IFMT(mode), "other"
    )


def _read_up_to(handle: int, limit: int) -> bytes:
    """Read until the end or the limit, whatever the size said before."""
    blocks: list[bytes] = []
    while limit > 0:
        block = os.read(handle, min(limit, _BLOCK))
        if not block:
            break
        blocks.append(block)
        limit -= len(block)
    return b"".join(blocks)


def _replace(parent: int, name: str, data: bytes, *, fsync: bool) -> None:
    mode = _mode_to_keep(parent, name)
    scratch = f".{name[:80]}.{secrets.token_hex(8)}.tmp"
    handle = os.open(
        scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=parent
    )
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if mode is not None:
                os.fchmod(handle, mode)
            if fsync:
                os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(scratch, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(scratch, dir_fd=parent)
        raise
    if fsync:
        os.fsync(parent)


def _mode_to_keep(parent: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _demand_regular(name, found)
    return stat.S_IMODE(found.st_mode) & 0o777


def _walk(handle: int, prefix: str, depth: int, budget: int) -> Iterator[ListedEntry]:
    """List one directory in the order of names, then each directory below its own line."""
    with os.scandir(handle) as found:
        names = heapq.nsmallest(budget, (entry.name for entry in found))
    for name in names:
        entry = _entry(handle, name, prefix)
        if entry is None:
            continue
        if entry.kind != "directory" or depth <= 1:
            yield entry
            continue
        try:
            below = os.open(name, _FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
        except OSError as error:
            yield ListedEntry(entry.path, entry.kind, entry.size, entry.mtime, problem=error.strerror)
            continue
        yield entry
        try:
            yield from _walk(below, f"{prefix}{name}/", depth - 1, budget)
        finally:
            os.close(below)


def _entry(handle: int, name: str, prefix: str) -> ListedEntry | None:
    try:
        found = os.stat(name, dir_fd=handle, follow_symlinks=False)
        kind = _kind(found.st_mode)
        target = os.readlink(name, dir_fd=handle) if kind == "symlink" else None
    except FileNotFoundError:
        return None  # gone between naming and looking
    return ListedEntry(prefix + name, kind, found.st_size, found.st_mtime, target)
