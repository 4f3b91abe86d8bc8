"""The hands of a restore: carries out Changes inside one root, by directory handles, never through a symlink.

All bytes are staged and synced beside their places first; then only renames, deletions and attributes follow.
Before a path is replaced or deleted it must still be what the safety snapshot saw, so nobody's work is lost.
Every step may be the last one: a second run over a fresh comparison ends in the same tree.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from proctor.protocol.errors import UnavailableError
from proctor.workspace.changes import Changes
from proctor.workspace.manifest import Entry, Extra, Manifest
from proctor.workspace.packs import PackReader
from proctor.workspace.tree import Progress, ProgressCallback, file_xattrs

__all__ = ["STAGING_PREFIX", "Rebuilder"]

STAGING_PREFIX = ".proctor-restore-"
MAX_OPEN = 64
SYNC_EACH = 64  # up to so many files are synced one by one; more by one sync of the file system

_DIR_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folders:
    """Handles of directories below a root; a symlink on the way is refused by the kernel."""

    def __init__(self, root: int) -> None:
        self._open = {"": root}

    def __call__(self, path: str) -> int:
        """Open a directory, or give the handle that is open."""
        held = self._open.get(path)
        if held is not None:
            return held
        at = path.rpartition("/")[0]
        while at not in self._open:
            at = at.rpartition("/")[0]
        handle = os.dup(self._open[at])
        for name in path[len(at) :].strip("/").split("/"):
            try:
                below = os.open(name, _DIR_FLAGS, dir_fd=handle)
            finally:
                os.close(handle)
            handle = below
        if len(self._open) >= MAX_OPEN:
            self.forget(next(key for key in self._open if key))
        self._open[path] = handle
        return handle

    def forget(self, path: str) -> None:
        """Close one; needed before the directory goes away."""
        handle = self._open.pop(path, None)
        if handle is not None:
            os.close(handle)

    def close(self) -> None:
        """Close all, the root too."""
        for path in list(self._open):
            self.forget(path)


class Rebuilder:
    """One restore into one root; `step` is called before every act, for tests that end the process there."""

    def __init__(
        self,
        root: Path,
        reader: PackReader,
        *,
        staging: str,
        progress: ProgressCallback | None = None,
        step: Callable[[], None] | None = None,
    ) -> None:
        self._folders = Folders(os.open(root, _DIR_FLAGS))
        self._reader = reader
        self._staging_name = staging
        self._staging = -1
        self._progress = progress
        self._step = step or (lambda: None)
        self._touched: set[str] = set()
        self._seen: dict[str, Entry] = {}
        self._staged: dict[str, str] = {}
        self.notes: list[str] = []

    def run(self, changes: Changes, now: Manifest, wanted: Manifest) -> None:
        """Carry the changes out; returns when they are durable."""
        self._seen = dict(now.by_path)
        try:
            self._begin()
            self._stage(changes.write)
            self._remove(changes.remove)
            self._make_folders(changes.folders)
            self._place(changes.write)
            self._link(changes.link)
            self._make_special(changes.special)
            for entry in changes.amend:
                self._amend(entry)
            self._end(changes, wanted)
        finally:
            if self._staging >= 0:
                os.close(self._staging)
            self._folders.close()

    def _begin(self) -> None:
        self._step()
        root = self._unlock("")
        self._clear_staging()
        self._step()
        os.mkdir(self._staging_name, 0o700, dir_fd=root)
        self._staging = os.open(self._staging_name, _DIR_FLAGS, dir_fd=root)

    def _clear_staging(self) -> None:
        try:
            shutil.rmtree(self._staging_name, dir_fd=self._folders(""))
        except FileNotFoundError:
            return

    def _stage(self, entries: list[Entry]) -> None:
        """Write all bytes beside their places, in the order in which the packs hold them."""
        place = self._reader.index.get
        order = sorted(entries, key=lambda entry: place(entry.content[:32]) or ("", 0, 0, 0))
        done = 0
        with _Syncs(self._staging, len(order)) as sync:
            for number, entry in enumerate(order):
                self._step()
                self._write_file(self._staging, str(number), entry, sync)
                self._staged[entry.path] = str(number)
                done += entry.size
                if self._progress is not None and (number % 500 == 0 or number + 1 == len(order)):
                    self._progress(Progress("write", number + 1, done))

    def _write_file(self, folder: int, name: str, entry: Entry, sync: Callable[[int], None]) -> None:
        handle = os.open(name, _NEW_FLAGS, 0o600, dir_fd=folder)
        try:
            for offset, digest in entry.chunks():
                _write_at(handle, self._reader.read(digest), offset)
            os.ftruncate(handle, entry.size)
            self._dress(handle, entry)
            sync(handle)
        finally:
            os.close(handle)

    def _dress(self, handle: int, entry: Entry) -> None:
        """Give an open file or directory its owner, attributes, mode and times; this order keeps them."""
        state = os.fstat(handle)
        if (state.st_uid, state.st_gid) != (entry.uid, entry.gid):
            self._own(handle, entry)
        self._set_xattrs(handle, entry)
        if stat.S_IMODE(os.fstat(handle).st_mode) != stat.S_IMODE(entry.mode):
            os.fchmod(handle, stat.S_IMODE(entry.mode))
        os.utime(handle, ns=(time.time_ns(), entry.mtime_ns))

    def _own(self, handle: int, entry: Entry) -> None:
        try:
            os.fchown(handle, entry.uid, entry.gid)
        except PermissionError:
            self.notes.append(f"{entry.path}: owner {entry.uid}:{entry.gid} not restored (not permitted)")

    def _set_xattrs(self, handle: int, entry: Entry) -> None:
        wanted = dict((entry.extra or Extra()).xattrs)
        found = dict(file_xattrs(handle))
        if wanted == found:
            return
        try:
            for name in found.keys() - wanted.keys():
                os.removexattr(handle, name)
            for name, value in wanted.items():
                if found.get(name) != value:
                    os.setxattr(handle, name, value)
        except OSError as error:
            self.notes.append(f"{entry.path}: extended attributes not restored ({error.strerror})")

    def _remove(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._step()
            folder, name = self._spot(entry.path)
            self._expect(folder, name, entry.path)
            if entry.is_dir:
                self._folders.forget(entry.path)
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
            self._seen.pop(entry.path, None)

    def _make_folders(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._step()
            folder, name = self._spot(entry.path)
            os.mkdir(name, 0o700, dir_fd=folder)
            self._touched.add(entry.path)

    def _place(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._step()
            self._put(entry, self._staged[entry.path], self._again_beside)

    def _again_beside(self, folder: int, name: str, entry: Entry) -> bool:
        """Files are staged already; only beside a place on another file system they are written once more."""
        if folder != self._staging:
            self._write_file(folder, name, entry, os.fsync)
        return True

    def _link(self, pairs: list[tuple[Entry, str]]) -> None:
        for number, (entry, shared) in enumerate(pairs):
            self._step()
            source, source_name = self._spot(shared)

            def make(folder: int, name: str, _entry: Entry, at: int = source, old: str = source_name) -> bool:
                os.link(old, name, src_dir_fd=at, dst_dir_fd=folder, follow_symlinks=False)
                return True

            self._put(entry, f"link-{number}", make)

    def _make_special(self, entries: list[Entry]) -> None:
        for number, entry in enumerate(entries):
            self._step()
            self._put(entry, f"special-{number}", self._make_node)

    def _put(self, entry: Entry, staged: str, make: Callable[[int, str, Entry], bool]) -> None:
        """Make something in the scaffold and rename it into place; beside its place where a mount is between."""
        folder, name = self._spot(entry.path)
        self._expect(folder, name, entry.path)
        try:
            if make(self._staging, staged, entry):
                os.rename(staged, name, src_dir_fd=self._staging, dst_dir_fd=folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            beside = f"{STAGING_PREFIX}{staged}"
            if make(folder, beside, entry):
                os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)

    def _make_node(self, folder: int, name: str, entry: Entry) -> bool:
        try:
            if stat.S_ISLNK(entry.mode):
                os.symlink(entry.target, name, dir_fd=folder)
            else:
                device = (entry.extra or Extra()).rdev
                os.mknod(name, entry.mode, device, dir_fd=folder)
                os.chmod(name, stat.S_IMODE(entry.mode), dir_fd=folder)
        except PermissionError:
            self.notes.append(f"{entry.path}: a node of this type may not be made by this user")
            return False
        self._dress_node(folder, name, entry)
        return True

    def _dress_node(self, folder: int, name: str, entry: Entry) -> None:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (state.st_uid, state.st_gid) != (entry.uid, entry.gid):
            try:
                os.chown(name, entry.uid, entry.gid, dir_fd=folder, follow_symlinks=False)
            except PermissionError:
                self.notes.append(f"{entry.path}: owner {entry.uid}:{entry.gid} not restored (not permitted)")
        os.utime(name, ns=(time.time_ns(), entry.mtime_ns), dir_fd=folder, follow_symlinks=False)

    def _amend(self, entry: Entry) -> None:
        self._step()
        folder, name = self._spot(entry.path, change=False)
        self._expect(folder, name, entry.path)
        if stat.S_ISLNK(entry.mode):
            self._dress_node(folder, name, entry)
            return
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            self._dress(handle, entry)
        finally:
            os.close(handle)

    def _end(self, changes: Changes, wanted: Manifest) -> None:
        """Take the scaffold away and give every touched directory its mode and times, the deepest first."""
        self._step()
        os.close(self._staging)
        self._staging = -1
        self._clear_staging()
        paths = self._touched | {entry.path for entry in changes.amend_folders}
        found = [entry for path in paths if (entry := wanted.by_path.get(path)) is not None and entry.is_dir]
        with _Syncs(self._folders(""), len(found)) as sync:
            for entry in sorted(found, key=_depth, reverse=True):
                self._step()
                if not entry.problem:
                    handle = self._folders(entry.path)
                    self._dress(handle, entry)
                    sync(handle)
                    if entry.path:
                        self._folders.forget(entry.path)

    def _spot(self, path: str, *, change: bool = True) -> tuple[int, str]:
        parent, _, name = path.rpartition("/")
        return (self._unlock(parent) if change else self._folders(parent)), name

    def _unlock(self, path: str) -> int:
        """Open a directory for change; one that forbids it even to its owner is put right at the end."""
        handle = self._folders(path)
        if path not in self._touched:
            self._touched.add(path)
            mode = stat.S_IMODE(os.fstat(handle).st_mode)
            if mode & 0o700 != 0o700:
                os.fchmod(handle, mode | 0o700)
        return handle

    def _expect(self, folder: int, name: str, path: str) -> None:
        """Make sure that the path is still what the safety snapshot saw."""
        old = self._seen.get(path)
        try:
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if old is None:
                return
            raise _changed(path) from None
        if old is None or stat.S_IFMT(old.mode) != stat.S_IFMT(state.st_mode) or old.ino != state.st_ino:
            raise _changed(path)
        if not old.is_dir and (old.size != state.st_size or old.mtime_ns != state.st_mtime_ns):
            raise _changed(path)


def _changed(path: str) -> UnavailableError:
    return UnavailableError(
        what="The workspace",
        reason=f"{path!r} was changed by someone else during the restore",
        cure="Stop what writes there (agents, editors, builds) and run the command again.",
    )


def _depth(entry: Entry) -> int:
    return entry.path.count("/") + bool(entry.path)


class _Syncs:
    """Makes what was handed to it durable at the end: a few one by one, many by one sync of the file system.

    Together at the end, because the first sync then carries what the others would each have to wait for.
    """

    def __init__(self, place: int, count: int) -> None:
        self._place = place
        self._each = count <= SYNC_EACH
        self._waiting: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __call__(self, handle: int) -> None:
        """Take an open file or directory; its handle may be closed meanwhile, its mode may forbid to open it again."""
        if self._each:
            self._waiting.append(os.dup(handle))
            if hasattr(os, "posix_fadvise"):
                with contextlib.suppress(OSError):  # Linux begins to write it out; elsewhere it is no help
                    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is not None:
                return
            for handle in self._waiting:
                os.fsync(handle)
            if not self._each:
                _sync_filesystem(self._place)
        finally:
            for handle in self._waiting:
                os.close(handle)


def _write_at(handle: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(handle, view, offset)
        view = view[done:]
        offset += done


def _sync_filesystem(handle: int) -> None:
    """Make everything on that file system durable in one go."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(handle) != 0:
        raise OSError(ctypes.get_errno(), "syncfs failed")
