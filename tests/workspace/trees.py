"""Trees for tests: build them, damage them, and compare every fact a restore must bring back."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

Facts = dict[str, tuple[object, ...]]


def xattrs_work(root: Path) -> bool:
    """Tell whether this file system keeps user attributes."""
    if not hasattr(os, "setxattr"):
        return False
    probe = root / ".probe"
    probe.write_text("")
    try:
        os.setxattr(probe, "user.probe", b"1")
    except OSError:
        return False
    finally:
        probe.unlink()
    return True


def facts(root: Path) -> Facts:
    """Everything about a tree: type, mode, owner, mtime, bytes, target, blocks, attributes, hard links."""
    found: Facts = {}
    inodes: dict[int, list[str]] = {}
    for path in [root, *_walk(root)]:
        state = path.lstat()
        name = os.fsdecode(os.path.relpath(path, root))
        body: object = None
        holes: object = None
        if stat.S_ISREG(state.st_mode):
            body = path.read_bytes()
            holes = state.st_blocks * 512 < state.st_size
            inodes.setdefault(state.st_ino, []).append(name)
        elif stat.S_ISLNK(state.st_mode):
            body = path.readlink()
        attributes: object = ()
        if hasattr(os, "listxattr") and not stat.S_ISLNK(state.st_mode):
            attributes = tuple((key, os.getxattr(path, key)) for key in sorted(os.listxattr(path)))
        found[name] = (
            oct(state.st_mode),
            state.st_uid,
            state.st_gid,
            state.st_mtime_ns,
            body,
            holes,
            attributes,
        )
    for paths in inodes.values():
        for name in paths:
            found[name] += (tuple(sorted(paths)),)
    return found


def _walk(root: Path) -> list[Path]:
    return [
        Path(folder) / name for folder, folders, files in os.walk(root) for name in sorted(folders + files)
    ]


def differences(before: Facts, after: Facts) -> list[str]:
    """Name what is not as it was, in a line each."""
    return [
        f"{name!r}: {str(before.get(name))[:300]} -> {str(after.get(name))[:300]}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def make_tree(root: Path) -> None:
    """Build a workspace with everything that is hard to keep."""
    root.mkdir(parents=True, exist_ok=True)
    for number in range(12):
        folder = root / f"src{number % 3}"
        folder.mkdir(exist_ok=True)
        (folder / f"file{number}.py").write_text(f"x = {number}\n" * (number + 1))
    (root / "empty").mkdir()
    (root / "empty.txt").write_bytes(b"")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    os.symlink("src0/file0.py", root / "link")
    os.symlink("nowhere", root / "broken")
    os.symlink("src1", root / "dirlink")
    (root / "one").write_text("shared")
    os.link(root / "one", root / "src0" / "two")
    os.link(root / "one", root / "src1" / "three")
    with (root / "sparse").open("wb") as file:
        file.write(b"head")
        file.seek(3 << 20)
        file.write(b"tail")
        file.truncate(5 << 20)
    (root / "big").write_bytes(os.urandom(5 << 20))
    (root / os.fsdecode(b"caf\xe9-\xff")).write_text("not UTF-8")
    (root / "new\nline").write_text("odd")
    os.mkfifo(root / "fifo")
    _socket(root)
    _repository(root / ".git")
    _repository(root / "vendor" / ".git")
    if xattrs_work(root):
        os.setxattr(root / "run.sh", "user.note", b"kept")
        os.setxattr(root / "src2", "user.note", b"folder")
    locked = root / "locked"
    locked.mkdir()
    (locked / "in").write_text("inside")
    for number, path in enumerate(sorted(_walk(root), reverse=True)):
        os.utime(path, ns=(10**18, 10**18 + number * 1_000_007), follow_symlinks=False)
    locked.chmod(0o555)
    os.utime(root, ns=(10**18, 10**18 + 123_456_789))


def _socket(root: Path) -> None:
    """Bind by a short relative name: a socket's path may not be long."""
    folder = os.open(root, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{folder}/sock")
    finally:
        os.close(folder)


def _repository(git: Path) -> None:
    (git / "objects" / "ab").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "objects" / "ab" / "cd").write_bytes(b"\x78\x01object")
    (git / "objects" / "ab" / "cd").chmod(0o444)


def mutate(root: Path) -> None:
    """Do to a tree what agents and accidents do."""
    (root / "src0" / "file0.py").write_text("edited")
    (root / "src0" / "file3.py").unlink()
    (root / "run.sh").chmod(0o644)
    os.utime(root / "src1" / "file1.py", ns=(5, 5))
    _fake_edit(root / "src1" / "file4.py")
    (root / "src1" / "file7.py").unlink()
    (root / "src1" / "file7.py").mkdir()
    (root / "src1" / "file7.py" / "x").write_text("x")
    shutil.rmtree(root / "src2")
    os.symlink("/etc", root / "src2")
    (root / "src0" / "two").unlink()
    (root / "src0" / "two").write_text("shared")
    (root / "link").unlink()
    os.symlink("elsewhere", root / "link")
    (root / "locked").chmod(0o755)
    (root / "locked" / "in").write_text("changed inside")
    (root / "empty").rmdir()
    shutil.rmtree(root / "vendor")
    (root / ".git" / "HEAD").write_text("damaged")
    with (root / "sparse").open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"x" * 8192)
    os.link(root / "secret", root / "secret-too")
    (root / "fifo").unlink()
    (root / "fifo").write_text("now a file")
    (root / "sock").unlink()
    (root / "added" / "deep" / "er").mkdir(parents=True)
    (root / "added" / "deep" / "er" / "file").write_text("new")
    (root / os.fsdecode(b"caf\xe9-\xff")).unlink()
    (root / "broken").unlink()
    if xattrs_work(root):
        os.setxattr(root / "run.sh", "user.note", b"other")
        os.setxattr(root / "secret", "user.more", b"added")


def _fake_edit(path: Path) -> None:
    """Change bytes but neither size nor mtime."""
    state = path.stat()
    path.write_bytes(b"?" * state.st_size)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
