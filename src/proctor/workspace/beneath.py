"""Opens paths beneath a directory so that no link, `..` or race leads out: openat2, or a walk where there is none.

Invariant: the kernel (or each step of the walk) decides at the moment of opening; nothing is checked first and opened later.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterator
from functools import cache

from proctor.protocol.errors import RefusedError

__all__ = ["Opener", "PathEscapeError", "kernel_opener", "walking_opener"]

_OPENAT2 = 437
_RESOLVE = 0x08 | 0x02  # RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
_TRIES = 200
_MAX_LINKS = 40
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathEscapeError(RefusedError):
    """Refused: {path!r} leads out of {root}. Give a path inside the workspace."""

    code = "path_escape"


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Opener:
    """One way to open `path` beneath a directory handle; raises PathEscapeError when it would lead out."""

    def open(self, root: int, path: str, flags: int, mode: int = 0) -> int:
        """Give a new handle."""
        raise NotImplementedError


class _Kernel(Opener):
    """openat2 with RESOLVE_BENEATH: links that stay inside work, all else is refused by the kernel."""

    def open(self, root: int, path: str, flags: int, mode: int = 0) -> int:
        """Give a new handle; a rename elsewhere in the tree makes the kernel ask to try again."""
        for _ in range(_TRIES):
            handle = _openat2(root, path, flags | os.O_CLOEXEC, mode)
            if handle >= 0:
                return handle
            problem = ctypes.get_errno()
            if problem == errno.EXDEV:
                raise PathEscapeError(path=path, root="its root")
            if problem not in {errno.EAGAIN, errno.EINTR}:
                raise OSError(problem, os.strerror(problem), path)
        raise PathEscapeError(path=path, root="its root (it was being moved all the time)")


class _Walk(Opener):
    """Component by component with O_NOFOLLOW; links are read and walked too, so that the answers equal the kernel's."""

    def open(self, root: int, path: str, flags: int, mode: int = 0) -> int:
        """Give a new handle."""
        with contextlib.ExitStack() as stack:
            handles = [root]
            rest = _parts(path)
            links = 0
            while rest:
                part = rest.pop(0)
                if part == ".":
                    continue
                if part == "..":
                    if len(handles) == 1:
                        raise PathEscapeError(path=path, root="its root")
                    handles.pop()
                    continue
                link = _link_target(handles[-1], part)
                if link is not None and not (not rest and flags & os.O_NOFOLLOW):
                    links += 1
                    if link.startswith("/"):
                        raise PathEscapeError(path=path, root="its root")
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    rest = [*_parts(link), *rest]
                    continue
                if not rest:
                    return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=handles[-1])
                handles.append(os.open(part, _STEP, dir_fd=handles[-1]))
                stack.callback(os.close, handles[-1])
            return os.open(".", flags | os.O_CLOEXEC, mode, dir_fd=handles[-1])


def _parts(path: str) -> list[str]:
    """Split a path; a slash or dot at its end stays, because it demands a directory."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return [*parts, "."] if parts and path.endswith(("/", "/.")) else parts


def _link_target(folder: int, name: str) -> str | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return os.readlink(name, dir_fd=folder) if stat.S_ISLNK(found.st_mode) else None
    except OSError:
        return None  # the open that follows says what is wrong


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(root: int, path: str, flags: int, mode: int) -> int:
    how = _How(flags, mode if flags & os.O_CREAT else 0, _RESOLVE)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    name = os.fsencode(path)
    return int(
        _libc().syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_int(root), ctypes.c_char_p(name), ctypes.byref(how), size
        )
    )


@cache
def kernel_opener() -> Opener | None:
    """Give the kernel's way, or None where there is no openat2 (other systems, old kernels, strict filters)."""
    if not sys.platform.startswith("linux"):
        return None
    with _directory("/") as root:
        handle = _openat2(root, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0)
    if handle < 0:
        return None
    os.close(handle)
    return _Kernel()


@cache
def walking_opener() -> Opener:
    """Give the way that works everywhere."""
    return _Walk()


@contextlib.contextmanager
def _directory(path: str) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
