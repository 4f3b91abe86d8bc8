"""Submodules of a checkout, filled from what is on this machine: the module store of the user's repository. No network.

A submodule that the user's own checkout does not have either stays empty and is named; one whose commit is missing
although the submodule is in use is an error with the cure.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import RefusedError
from proctor.workspace.git import Git, GitError
from proctor.workspace.worktree import delete_tree

__all__ = ["MissingSubmoduleError", "fill_submodules"]

_DEPTH = 8
MakeGit = Callable[[Path, Sequence[str]], None]


class MissingSubmoduleError(RefusedError):
    """The submodule {path} cannot be filled: its commit {commit} is not on this machine. Run `git submodule update --init
    --recursive` in your checkout once.
    """

    code = "missing_submodule"


@dataclass(frozen=True, slots=True)
class _Link:
    """One submodule of a tree."""

    path: str
    commit: str


def fill_submodules(root: Path, git: Git, slot: Path, make_git: MakeGit, tree: str) -> tuple[str, ...]:
    """Bring every submodule of a checkout to the commit its tree names; gives the paths that stay empty.

    `root` is the user's checkout, `git` reads the slot's tree, `make_git` makes a git directory that borrows objects.
    """
    if not (slot / "files" / ".gitmodules").is_file():
        return ()
    store = Git(root)("rev-parse", "--path-format=absolute", "--git-path", "modules")
    return tuple(_fill(root, git, slot, make_git, tree, Path(store), "", _DEPTH))


def _fill(
    root: Path, git: Git, slot: Path, make_git: MakeGit, tree: str, store: Path, prefix: str, depth: int
) -> Iterator[str]:  # fmt: skip
    names = _names(slot / "files" / prefix / ".gitmodules", git)
    for link in _links(git, tree):
        path = f"{prefix}{link.path}"
        place = slot / "files" / path
        objects = _objects(root / path, store, names.get(link.path))
        if objects is None:
            _empty(place)
            yield path
            continue
        inner = slot / "modules" / hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        make_git(inner, [str(objects)])
        own = Git(place, inner)
        _check_out(own, inner, place, path, link.commit)
        if depth and (place / ".gitmodules").is_file():
            yield from _fill(
                root, own, slot, make_git, link.commit, objects.parent / "modules", f"{path}/", depth - 1
            )


def _check_out(own: Git, inner: Path, place: Path, path: str, commit: str) -> None:
    if not own.ok("cat-file", "-e", f"{commit}^{{tree}}"):
        raise MissingSubmoduleError(path=path, commit=commit[:12])
    place.mkdir(parents=True, exist_ok=True)
    (inner / "index.lock").unlink(missing_ok=True)
    try:
        if (inner / "index").exists():
            own("clean", "-ffdxq")
        own("read-tree", "--reset", "-u", commit)
        if not own("ls-files", "--modified", "--deleted", "--others", "-z"):
            return
    except GitError:
        pass  # whatever a command made of it, it is made anew
    _empty(place)
    (inner / "index").unlink(missing_ok=True)
    own("read-tree", "--reset", "-u", commit)


def _empty(place: Path) -> None:
    if place.is_symlink() or place.is_file():
        place.unlink()
    elif place.is_dir():
        delete_tree(place)
    place.mkdir(parents=True, exist_ok=True)


def _links(git: Git, tree: str) -> list[_Link]:
    rows = git("ls-tree", "-r", "-z", tree).split("\0")
    parted = [row.partition("\t") for row in rows if row.startswith("160000 ")]
    return [_Link(path, facts.split()[2]) for facts, _, path in parted]


def _names(file: Path, git: Git) -> dict[str, str]:
    """Which name the module store knows a path by."""
    if file.is_symlink() or not file.is_file():
        return {}
    listed = git.run("config", "--file", str(file), "-z", "--get-regexp", r"^submodule\..*\.path$").stdout
    found: dict[str, str] = {}
    for row in filter(None, listed.split("\0")):
        key, _, path = row.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        # A name is a path in the store: one that leads out of it is no name.
        if name and not name.startswith("/") and ".." not in name.split("/"):
            found[path] = name
    return found


def _objects(there: Path, store: Path, name: str | None) -> Path | None:
    """The objects of a submodule: where the user's checkout has them, else in the module store."""
    if (there / ".git").exists():
        found = Git(there).run("rev-parse", "--path-format=absolute", "--git-path", "objects")
        if found.returncode == 0:
            return Path(found.stdout.strip())
    kept = store / name / "objects" if name else None
    return kept if kept is not None and kept.is_dir() else None
