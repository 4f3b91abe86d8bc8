"""Reads a directory tree into entries: by directory handles, never through a symlink.

A file counts as unchanged, and is not opened, when size, mtime, ctime and inode are those of the earlier
snapshot; ctime cannot be faked, and one within the racy window of the start is not trusted next time.
What cannot be read is an entry with a problem, never a silent gap.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from proctor.protocol.errors import RefusedError, UnavailableError
from proctor.workspace.manifest import Entry, Extra
from proctor.workspace.packs import CHUNK_BYTES

__all__ = ["Progress", "ProgressCallback", "TreeReader", "file_xattrs"]

RACY_NS = 2_000_000_000
TRIES = 3
MAX_OPEN_DIRS = 64  # deeper ones are reopened by "..", so no tree can use up the handles
PROGRESS_EVERY = 2_000

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIR_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_NO_XATTRS = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EACCES, errno.ENODATA}


class Progress(NamedTuple):
    """How far a long operation is."""

    stage: str
    entries: int
    bytes: int


ProgressCallback = Callable[[Progress], None]


@dataclass(slots=True)
class _Frame:
    handle: int
    prefix: str
    key: tuple[int, int]
    folders: list[str] = field(default_factory=list)


def file_xattrs(handle: int) -> tuple[tuple[str, bytes], ...]:
    """Read the extended attributes (and ACLs) of an open file, as far as we may."""
    if not hasattr(os, "listxattr"):
        return ()  # macOS: Python has no call for them
    try:
        names = os.listxattr(handle)
        return tuple((name, os.getxattr(handle, name)) for name in sorted(names)) if names else ()
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return ()
        raise


class TreeReader:
    """One walk over one tree; `sink` takes the bytes of a chunk and gives its digest."""

    def __init__(
        self,
        root: str,
        sink: Callable[[bytes], bytes],
        *,
        previous: Mapping[str, Entry] | None = None,
        exclude: Callable[[str, bool], bool] | None = None,
        forbidden: Collection[tuple[int, int]] = (),
        progress: ProgressCallback | None = None,
    ) -> None:
        self._root = root
        self._sink = sink
        self._previous = previous or {}
        self._exclude = exclude
        self._forbidden = frozenset(forbidden)
        self._progress = progress
        self._racy_after = time.time_ns() - RACY_NS
        self._entries: list[Entry] = []
        self._bytes = 0
        self._told = 0

    def run(self) -> list[Entry]:
        """Walk; the root comes first and parents before children."""
        frames: list[_Frame] = []
        try:
            self._enter(frames, os.open(self._root, _DIR_FLAGS), "")
            while frames:
                if frames[-1].folders:
                    self._descend(frames)
                else:
                    self._ascend(frames)
        finally:
            for frame in frames:
                if frame.handle >= 0:
                    os.close(frame.handle)
        self._tell(force=True)
        return self._entries

    def _descend(self, frames: list[_Frame]) -> None:
        here = frames[-1]
        name = here.folders.pop()
        try:
            handle = os.open(name, _DIR_FLAGS, dir_fd=here.handle)
        except OSError as error:
            self._unopened(here, name, error)
            return
        self._enter(frames, handle, here.prefix + name)
        if len(frames) > MAX_OPEN_DIRS:
            far = frames[-MAX_OPEN_DIRS - 1]
            os.close(far.handle)
            far.handle = -1

    def _ascend(self, frames: list[_Frame]) -> None:
        done = frames.pop()
        try:
            if frames and frames[-1].handle < 0:
                frames[-1].handle = os.open("..", _DIR_FLAGS, dir_fd=done.handle)
                found = os.fstat(frames[-1].handle)
                if (found.st_dev, found.st_ino) != frames[-1].key:
                    raise _moving(done.prefix)
        finally:
            os.close(done.handle)

    def _enter(self, frames: list[_Frame], handle: int, path: str) -> None:
        frame = _Frame(handle, f"{path}/" if path else "", (0, 0))
        frames.append(frame)  # from here on `run` closes it, whatever happens
        state = os.fstat(handle)
        frame.key = (state.st_dev, state.st_ino)
        if frame.key in self._forbidden:
            raise RefusedError(
                reason=f"the backup store lies inside the workspace, at {path or '.'!r}",
                cure="Set XDG_DATA_HOME to a directory outside of it, or choose a narrower workspace.",
            )
        self._add_folder(handle, path, state)
        self._list(frame)

    def _add_folder(self, handle: int, path: str, state: os.stat_result) -> None:
        old = self._previous.get(path)
        if old is not None and _unchanged(old, state):
            self._entries.append(old)
            return
        xattrs = file_xattrs(handle)
        self._entries.append(self._entry(path, state, extra=Extra(xattrs=xattrs) if xattrs else None))

    def _list(self, frame: _Frame) -> None:
        """Read one directory; the hot loop of a repeated snapshot, so it stays flat."""
        handle, prefix, previous, add, exclude = (
            frame.handle,
            frame.prefix,
            self._previous.get,
            self._entries.append,
            self._exclude,
        )
        with os.scandir(handle) as listing:
            for item in listing:
                name = item.name
                path = prefix + name
                folder = item.is_dir(follow_symlinks=False)
                if exclude is not None and exclude(path, folder):
                    continue
                if folder:
                    frame.folders.append(name)
                    continue
                try:
                    state = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone between listing and looking: as if deleted before
                except OSError as error:
                    add(_blind(path, stat.S_IFLNK if item.is_symlink() else stat.S_IFREG, error))
                    continue
                old = previous(path)
                if (
                    old is not None
                    and old.ctime_ns == state.st_ctime_ns
                    and old.mtime_ns == state.st_mtime_ns
                    and old.size == state.st_size
                    and old.ino == state.st_ino
                    and old.mode == state.st_mode
                ):
                    add(old)
                else:
                    self._read(handle, name, path, state)
        if self._progress is not None:
            self._tell()

    def _read(self, handle: int, name: str, path: str, state: os.stat_result) -> None:
        try:
            if stat.S_ISREG(state.st_mode):
                entry = self._file(handle, name, path, state)
            elif stat.S_ISLNK(state.st_mode):
                entry = self._entry(path, state, target=os.readlink(name, dir_fd=handle))
            else:
                device = stat.S_ISCHR(state.st_mode) or stat.S_ISBLK(state.st_mode)
                entry = self._entry(path, state, extra=Extra(rdev=state.st_rdev) if device else None)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise
            entry = self._entry(path, state, extra=Extra(problem=error.strerror or type(error).__name__))
        self._entries.append(entry)

    def _file(self, folder: int, name: str, path: str, state: os.stat_result) -> Entry:
        """Read a file until it held still from the look before to the look after."""
        for _ in range(TRIES):
            handle = os.open(name, _FILE_FLAGS, dir_fd=folder)
            try:
                content, segments = self._content(handle, state)
                xattrs = file_xattrs(handle)
                after = os.fstat(handle)
            finally:
                os.close(handle)
            if (
                after.st_ctime_ns == state.st_ctime_ns
                and after.st_size == state.st_size
                and after.st_ino == state.st_ino
                and after.st_mtime_ns == state.st_mtime_ns
            ):
                extra = Extra(xattrs=xattrs, segments=segments) if xattrs or segments is not None else None
                return self._entry(path, state, content=content, extra=extra)
            if not stat.S_ISREG(after.st_mode):
                break
            state = after
        return self._entry(path, state, extra=Extra(problem="it kept changing while it was read"))

    def _content(
        self, handle: int, state: os.stat_result
    ) -> tuple[bytes, tuple[tuple[int, int], ...] | None]:
        size = state.st_size
        if state.st_blocks * 512 < size:
            segments = _data_segments(handle, size)
            if segments != ((0, size),):
                return b"".join([self._span(handle, start, length) for start, length in segments]), segments
        return self._span(handle, 0, size), None

    def _span(self, handle: int, start: int, length: int) -> bytes:
        digests: list[bytes] = []
        end = start + length
        while start < end:
            data = os.pread(handle, min(CHUNK_BYTES, end - start), start)
            while len(data) < min(CHUNK_BYTES, end - start):
                more = os.pread(handle, min(CHUNK_BYTES, end - start) - len(data), start + len(data))
                if not more:
                    return b"".join(digests)  # it shrank: the look after tells
                data += more
            digests.append(self._sink(data))
            start += len(data)
            self._bytes += len(data)
            if len(data) == CHUNK_BYTES:
                self._tell(force=True)
        return digests[0] if len(digests) == 1 else b"".join(digests)

    def _entry(
        self,
        path: str,
        state: os.stat_result,
        *,
        content: bytes = b"",
        target: str = "",
        extra: Extra | None = None,
    ) -> Entry:
        ctime = state.st_ctime_ns
        return Entry(
            path,
            state.st_mode,
            state.st_uid,
            state.st_gid,
            state.st_size,
            state.st_mtime_ns,
            0 if ctime >= self._racy_after or (extra is not None and extra.problem) else ctime,
            state.st_ino,
            state.st_dev,
            state.st_nlink,
            content,
            target,
            extra,
        )

    def _unopened(self, here: _Frame, name: str, error: OSError) -> None:
        """Keep a directory that cannot be opened as a problem; one that changed its type, as it is now."""
        path = here.prefix + name
        try:
            state = os.stat(name, dir_fd=here.handle, follow_symlinks=False)
        except FileNotFoundError:
            return
        except OSError as unseen:
            self._entries.append(_blind(path, stat.S_IFDIR, unseen))
            return
        if stat.S_ISDIR(state.st_mode):
            problem = Extra(problem=error.strerror or type(error).__name__)
            self._entries.append(self._entry(path, state, extra=problem))
        else:
            self._read(here.handle, name, path, state)

    def _tell(self, *, force: bool = False) -> None:
        if self._progress is not None and (force or len(self._entries) - self._told >= PROGRESS_EVERY):
            self._told = len(self._entries)
            self._progress(Progress("read", self._told, self._bytes))


def _blind(path: str, kind: int, error: OSError) -> Entry:
    """An entry of which only name and type are known."""
    problem = Extra(problem=error.strerror or type(error).__name__)
    return Entry(path, kind, 0, 0, 0, 0, 0, 0, 0, 0, extra=problem)


def _unchanged(old: Entry, state: os.stat_result) -> bool:
    return (
        old.ctime_ns == state.st_ctime_ns
        and old.mtime_ns == state.st_mtime_ns
        and old.size == state.st_size
        and old.ino == state.st_ino
        and old.mode == state.st_mode
    )


def _data_segments(handle: int, size: int) -> tuple[tuple[int, int], ...]:
    """Find where a sparse file has data."""
    segments = []
    at = 0
    while at < size:
        try:
            start = os.lseek(handle, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                break  # only a hole is left
            return ((0, size),)  # the file system does not tell
        at = min(os.lseek(handle, start, os.SEEK_HOLE), size)
        if start >= size:
            break
        segments.append((start, at - start))
    return tuple(segments)


def _moving(path: str) -> UnavailableError:
    return UnavailableError(
        what="The workspace",
        reason=f"the directory {path!r} was moved while it was read",
        cure="Stop what writes there and run the command again.",
    )
