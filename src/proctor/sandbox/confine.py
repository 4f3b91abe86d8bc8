"""Landlock and seccomp for the calling thread, by system call alone: level 2.

Both are inherited by every child and can only be tightened. Landlock is allow-only: what no rule names is
closed. The filter closes what Landlock does not see: UDP, raw and unix sockets, io_uring, user namespaces.
Standard library only: the keeper applies this between fork and exec.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import stat
import struct
from collections.abc import Iterable

__all__ = ["apply", "landlock_abi", "no_new_privs", "seccomp_program", "seccomp_works"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ = 0b1101  # execute, read file, read directory
_FILE_ONLY = 0b111 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl: the rights of a file
_MAKE_DEVICE = 1 << 6 | 1 << 11  # never allowed: a device node in the workspace is the whole disk for root
_FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # number of file rights by ABI; 16 from 5 on
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract unix sockets and signals

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _PR_GET_SECCOMP = 38, 22, 21
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = {
    "x86_64": {
        "socket": 41, "clone": 56, "ptrace": 101, "unshare": 272, "setns": 308, "io_uring_setup": 425,
        "clone3": 435, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
        "request_key": 249, "kexec_load": 246, "init_module": 175, "finit_module": 313,
        "capset": 126,
    },
    "aarch64": {
        "socket": 198, "clone": 220, "ptrace": 117, "unshare": 97, "setns": 268, "io_uring_setup": 425,
        "clone3": 435, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217,
        "request_key": 218, "kexec_load": 104, "init_module": 105, "finit_module": 273,
        "capset": 91,
    },
}  # fmt: skip
_CLOSED = (
    *("setns", "io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key"),
    *("kexec_load", "init_module", "finit_module"),
)
_PR_CAPBSET_DROP, _CAPABILITY_V3 = 24, 0x20080522
_CLONE_NEWUSER = 0x10000000
_X32 = 0x40000000
_INTERNET = (2, 10, 16)  # AF_INET, AF_INET6, and AF_NETLINK, by which programs list interfaces

_libc = ctypes.CDLL(None, use_errno=True)


def _syscall(*arguments: object) -> int:
    answer: int = _libc.syscall(*arguments)
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def landlock_abi() -> int:
    """Ask the kernel for its Landlock version; 0 when there is none."""
    try:
        return _syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def seccomp_works() -> bool:
    """Say whether filters are known for this machine and this kernel."""
    return platform.machine() in _NUMBERS and _libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def no_new_privs() -> None:
    """Make set-user-id programs run without their privilege, for ever, in this thread and its children."""
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no_new_privs: {os.strerror(number)}")


def apply(read: Iterable[str], write: Iterable[str], *, network: bool) -> None:
    """Confine the calling thread to these files; without network also from every socket but socket pairs."""
    _drop_capabilities()
    no_new_privs()
    _landlock(landlock_abi(), list(read), list(write), network=network)
    _load(seccomp_program(sockets="inet" if network else "none"))


def _drop_capabilities() -> None:
    """Leave root only its name: without capabilities it cannot look into other processes of root either."""
    if os.geteuid() != 0:
        return
    capability = 0
    while _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    header, nothing = struct.pack("=Ii", _CAPABILITY_V3, 0), bytes(24)
    _syscall(ctypes.c_long(_NUMBERS[platform.machine()]["capset"]), header, nothing)


def _landlock(abi: int, read: list[str], write: list[str], *, network: bool) -> None:
    every = (1 << _FS_BITS.get(abi, 16)) - 1
    ruleset = _ruleset(abi, every, network=network)
    try:
        for path in read:
            _allow(ruleset, path, _READ & every)
        for path in write:
            _allow(ruleset, path, every & ~_MAKE_DEVICE)
        _syscall(ctypes.c_long(_RESTRICT), ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _ruleset(abi: int, every: int, *, network: bool) -> int:
    words = [every]
    if abi >= 4:
        words.append(0 if network else _TCP)
    if abi >= 6:
        words.append(_SCOPES)
    data = struct.pack(f"={len(words)}Q", *words)
    return _syscall(ctypes.c_long(_CREATE), data, ctypes.c_size_t(len(data)), ctypes.c_uint32(0))


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow what exists; a path that is not there cannot be reached either."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _FILE_ONLY
        rule = struct.pack("=Qi", rights, fd)
        _syscall(ctypes.c_long(_ADD), ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
    finally:
        os.close(fd)


def _op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


@functools.cache
def seccomp_program(*, sockets: str) -> bytes:
    """Build the filter: no user namespaces, io_uring, kernel keys, modules; sockets `all`, `inet` or `none`.

    `inet` leaves TCP and UDP but closes unix sockets, behind which daemons of the user listen.
    """
    numbers = _NUMBERS[platform.machine()]
    load, equal, anyof, at_least, give = 0x20, 0x15, 0x45, 0x35, 0x06
    allow, deny = _op(give, 0x7FFF0000), _op(give, 0x00050000 | errno.EPERM)
    missing = _op(give, 0x00050000 | errno.ENOSYS)
    code = [_op(load, 4), _op(equal, _AUDIT_ARCH[platform.machine()], 1, 0), deny, _op(load, 0)]
    code += [_op(at_least, _X32, 0, 1), missing]
    # clone3 hides its flags behind a pointer: programs fall back to clone when it does not exist.
    code += [_op(equal, numbers["clone3"], 0, 1), missing]
    for name in _CLOSED:
        code += [_op(equal, numbers[name], 0, 1), deny]
    for name in ("clone", "unshare"):
        code += [
            _op(equal, numbers[name], 0, 3),
            _op(load, 16),
            _op(anyof, _CLONE_NEWUSER, 0, 1),
            deny,
            _op(load, 0),
        ]
    if sockets != "all":
        families = _INTERNET if sockets == "inet" else ()
        checks = [_op(equal, family, len(families) - i, 0) for i, family in enumerate(families)]
        code += [_op(equal, numbers["socket"], 0, len(checks) + 2), _op(load, 16), *checks, deny]
    return b"".join([*code, allow])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _load(program: bytes) -> None:
    held = ctypes.create_string_buffer(program, len(program))
    wanted = _Program(len(program) // 8, ctypes.cast(held, ctypes.c_void_p))
    if _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(wanted), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
