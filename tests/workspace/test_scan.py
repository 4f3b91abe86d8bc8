"""Listings follow the ignore rules, are capped, survive what is odd, and never give a stale answer."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from proctor.protocol.errors import NotFoundError
from proctor.workspace.scan import Scanner


def git(place: Path, *words: str) -> None:
    """Run git as a user would, with a name."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgSign=false"]
    subprocess.run(["git", "-C", str(place), *who, *words], check=True, capture_output=True)


def fill(root: Path) -> None:
    """Build a small project with things to leave out."""
    for name in ("src/a.py", "src/b.pyc", "node_modules/x/y.js", "docs/read.me", "build/out.o", "keep/z.log"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / ".gitignore").write_text("*.pyc\nnode_modules/\n/build\n*.log\n!keep/z.log\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git work tree with one commit."""
    root = tmp_path / "repo"
    fill(root)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


WANTED = (".gitignore", "docs/read.me", "keep/z.log", "src/a.py")


def test_git_and_walk_agree(repository: Path, tmp_path: Path) -> None:
    """The same rules give the same files with git and without."""
    fill(tmp_path / "plain")
    by_git, by_walk = Scanner().files(repository), Scanner().files(tmp_path / "plain")
    assert (by_git.by, by_walk.by) == ("git", "walk")
    assert by_git.paths == by_walk.paths == WANTED


def test_untracked_files_come_and_deleted_ones_go_at_once(repository: Path) -> None:
    """A listing is never given again after a file came or went."""
    scanner = Scanner()
    assert scanner.files(repository).paths == WANTED
    (repository / "src" / "new.py").write_text("new")
    (repository / "docs" / "read.me").unlink()
    assert scanner.files(repository).paths == (".gitignore", "keep/z.log", "src/a.py", "src/new.py")
    (repository / ".gitignore").write_text("src/\nnode_modules/\nbuild/\n")
    assert "src/new.py" not in scanner.files(repository).paths


def test_an_unchanged_tree_is_answered_from_memory(repository: Path) -> None:
    """Two calls in a row give the very same listing; `fresh` looks again."""
    scanner = Scanner()
    time.sleep(0.15)  # what has just changed is not kept
    first = scanner.files(repository)
    assert scanner.files(repository) is first
    assert scanner.files(repository, fresh=True) is not first


@pytest.mark.parametrize("git_there", [True, False])
def test_the_cap_is_kept_and_said(tmp_path: Path, git_there: bool) -> None:
    """More files than the cap: exactly the cap, marked truncated."""
    root = tmp_path / "many"
    root.mkdir()
    for number in range(30):
        (root / f"f{number}").write_text("")
    if git_there:
        git(root, "init", "-q")
    listing = Scanner(cap=10).files(root)
    assert len(listing.paths) == 10
    assert listing.truncated
    assert not Scanner(cap=30).files(root).truncated


@pytest.mark.parametrize("git_there", [True, False])
def test_odd_names_and_broken_links_are_listed(tmp_path: Path, git_there: bool) -> None:
    """Broken symlinks, loops, odd bytes and line ends neither fail nor vanish."""
    root = tmp_path / "odd"
    root.mkdir()
    os.symlink("nowhere", root / "broken")
    os.symlink(".", root / "loop")
    names = [os.fsdecode(b"\xff\xfe"), "a\nb", "c\rd", "ü"]
    for name in names:
        (root / name).write_text("")
    (root / ".gitignore").write_text("x*/y\n")
    if git_there:
        git(root, "init", "-q")
    assert set(Scanner().files(root).paths) == {".gitignore", "broken", "loop", *names}


def test_nested_repositories_are_looked_into(repository: Path) -> None:
    """Files of a repository inside the work tree are listed by its own rules."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "code.py").write_text("")
    (inner / "junk.tmp").write_text("")
    (inner / ".gitignore").write_text("*.tmp\n")
    assert {"inner/code.py", "inner/.gitignore"} <= set(Scanner().files(repository).paths)
    assert "inner/junk.tmp" not in Scanner().files(repository).paths


def test_a_hostile_repository_runs_nothing(repository: Path, tmp_path: Path) -> None:
    """A configured fsmonitor program is not started by a listing."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(trap))
    assert Scanner().files(repository).paths == WANTED
    assert not (tmp_path / "sprung").exists()


def test_nested_ignore_files_and_negation_without_git(tmp_path: Path) -> None:
    """The nearest rule decides, and a pruned directory is not entered."""
    root = tmp_path / "walk"
    for name in ("a/x.txt", "a/y.log", "b/x.txt", "b/keep.txt", "b/c/x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / ".gitignore").write_text("*.txt\n")
    (root / "b" / ".gitignore").write_text("!keep.txt\n/c/\n")
    assert Scanner().files(root).paths == (".gitignore", "a/y.log", "b/.gitignore", "b/keep.txt")


def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    """A name that does not exist is an error with a cure, not an empty listing."""
    with pytest.raises(NotFoundError):
        Scanner().files(tmp_path / "none")
