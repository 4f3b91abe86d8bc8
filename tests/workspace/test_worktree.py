"""Worktrees: the user's checkout never changes, no work is lost, and an agent's tricks with `.git` do
nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.protocol.errors import UsageError
from proctor.workspace.worktree import (
    DirtyWorktreeError,
    NoCommitError,
    NotARepositoryError,
    create,
    find,
    prune,
)

Sh = Callable[..., str]


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """No git configuration of the user's takes part."""


def git(place: Path, *arguments: str) -> str:
    """Run git as a user would."""
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": "U",
        "GIT_AUTHOR_EMAIL": "u@x",
        "GIT_COMMITTER_NAME": "U",
        "GIT_COMMITTER_EMAIL": "u@x",
    }
    ran = subprocess.run(["git", *arguments], cwd=place, env=env, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit and work of the user's that is not committed."""
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "a.txt").write_text("one\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    (place / "a.txt").write_text("mine\n")
    (place / "new.txt").write_text("mine too\n")
    return place


def state(repo: Path) -> tuple[str, str, str, str]:
    """What the user would notice."""
    return (
        git(repo, "status", "--porcelain=v1"),
        git(repo, "rev-parse", "HEAD"),
        git(repo, "branch", "--show-current"),
        (repo / "a.txt").read_text(),
    )


def test_work_becomes_a_commit_on_a_branch_and_the_checkout_stays(repo: Path, tmp_path: Path) -> None:
    """All changes, new and deleted files are on the branch; the user's checkout is as it was."""
    before = state(repo)
    tree = create(repo, tmp_path / "wt/s/t")
    assert (tree.path / "a.txt").read_text() == "one\n"
    (tree.path / "a.txt").unlink()
    (tree.path / "dir").mkdir()
    (tree.path / "dir/ü.txt").write_text("x")
    commit = tree.commit_all("Add ü\n\nBody", "proctor/task_1")
    assert commit is not None
    assert commit.branch == "proctor/task_1"
    assert git(repo, "rev-parse", "proctor/task_1") == commit.id
    assert git(repo, "-c", "core.quotePath=false", "ls-tree", "-r", "--name-only", commit.id) == "dir/ü.txt"
    assert git(repo, "log", "-1", "--format=%an|%s|%b", commit.id).strip() == "Proctor|Add ü|Body"
    assert tree.changes() == []
    assert state(repo) == before


def test_nothing_changed_is_no_commit(repo: Path, tmp_path: Path) -> None:
    """An agent that only said so leaves no branch."""
    tree = create(repo, tmp_path / "wt")
    assert tree.commit_all("m", "proctor/t") is None
    assert git(repo, "branch", "--list", "proctor/*") == ""


def test_second_commit_moves_the_branch_forward(repo: Path, tmp_path: Path) -> None:
    """A resumed attempt in the same worktree continues its branch; the worktree is found again by its path."""
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    first = tree.commit_all("one", "proctor/t")
    again = find(repo, tmp_path / "wt", tree.base)
    assert again == tree
    (tree.path / "x").write_text("2")
    second = again.commit_all("two", "proctor/t")
    assert first
    assert second
    assert second.branch == "proctor/t"
    assert git(repo, "rev-parse", f"{second.id}^") == first.id


def test_other_work_on_the_branch_is_never_lost(repo: Path, tmp_path: Path) -> None:
    """A second worktree from the same base takes the next name instead of overwriting."""
    commits = []
    for name in ("1", "2", "3"):
        tree = create(repo, tmp_path / name)
        (tree.path / "x").write_text(name)
        commits.append(tree.commit_all(name, "proctor/t"))
    assert [c.branch for c in commits if c] == ["proctor/t", "proctor/t-2", "proctor/t-3"]


def test_checked_out_branch_is_not_moved(repo: Path, tmp_path: Path) -> None:
    """When the user has the branch checked out, a new name is taken and no reverse diff appears."""
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    tree.commit_all("one", "proctor/t")
    git(repo, "worktree", "add", "-q", str(tmp_path / "look"), "proctor/t")
    (tree.path / "x").write_text("2")
    second = tree.commit_all("two", "proctor/t")
    assert second
    assert second.branch == "proctor/t-2"
    assert git(tmp_path / "look", "status", "--porcelain") == ""


def test_agent_commits_are_kept(repo: Path, tmp_path: Path) -> None:
    """Commits the agent made itself, and what it left uncommitted, both arrive."""
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    git(tree.path, "checkout", "-qb", "agents-own")
    git(tree.path, "add", ".")
    git(tree.path, "commit", "-qm", "by the agent")
    (tree.path / "y").write_text("2")
    commit = tree.commit_all("the rest", "proctor/t")
    assert commit
    assert git(repo, "log", "--format=%s", commit.id) == "the rest\nby the agent\nfirst"


def test_hooks_and_planted_git_directories_do_not_run(repo: Path, tmp_path: Path) -> None:
    """Neither hooks of the repository nor a `.git` written by the agent execute anything."""
    sign = tmp_path / "ran"
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction"):
        hook = repo / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {sign}\n")
        hook.chmod(0o755)
    tree = create(repo, tmp_path / "wt")
    (tree.path / ".git").unlink()
    git(tree.path, "init", "-q")
    git(tree.path, "config", "core.fsmonitor", f"touch {sign}")
    (tree.path / "x").write_text("1")
    commit = tree.commit_all("m", "proctor/t")
    assert commit
    assert git(repo, "ls-tree", "--name-only", commit.id) == "a.txt\nx"
    assert not sign.exists()


def test_stale_index_lock_of_a_killed_agent_is_no_obstacle(repo: Path, tmp_path: Path) -> None:
    """An agent killed inside git add does not block the commit of its work."""
    tree = create(repo, tmp_path / "wt")
    (tree.git_dir / "index.lock").touch()
    (tree.path / "x").write_text("1")
    assert tree.commit_all("m", "proctor/t")


def test_remove_refuses_to_lose_work(repo: Path, tmp_path: Path) -> None:
    """Uncommitted files and commits on no branch are refused; committed work or force is not."""
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    with pytest.raises(DirtyWorktreeError, match="'x'"):
        tree.remove()
    git(tree.path, "add", ".")
    git(tree.path, "commit", "-qm", "loose")
    with pytest.raises(DirtyWorktreeError, match="commit"):
        tree.remove()
    assert tree.commit_all("m", "proctor/t")
    tree.remove()
    assert not tree.path.exists()
    assert find(repo, tree.path, tree.base) is None
    assert str(tree.path) not in git(repo, "worktree", "list")
    forced = create(repo, tmp_path / "wt2")
    (forced.path / "x").write_text("1")
    (forced.path / "ro").mkdir(mode=0o500)
    forced.remove(force=True)
    assert not forced.path.exists()


def test_many_at_once_all_succeed(repo: Path, tmp_path: Path) -> None:
    """Eight at once make eight worktrees and eight branches."""

    def one(number: int) -> str:
        tree = create(repo, tmp_path / f"wt{number}")
        (tree.path / "x").write_text(str(number))
        commit = tree.commit_all(str(number), f"proctor/t{number}")
        assert commit
        return commit.branch

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(8))) == {f"proctor/t{n}" for n in range(8)}


def test_prune_forgets_only_ours(repo: Path, tmp_path: Path) -> None:
    """A lost worktree of ours is forgotten, one of the user's on an absent disk is not."""
    ours = create(repo, tmp_path / "root/wt")
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "usb"))
    shutil.rmtree(ours.path)
    shutil.rmtree(tmp_path / "usb")
    assert prune(repo, tmp_path / "root") == 1
    assert len(list((repo / ".git/worktrees").iterdir())) == 1
    assert create(repo, tmp_path / "root/wt").path.exists()


def test_half_made_worktree_does_not_block_the_next(repo: Path, tmp_path: Path) -> None:
    """After a crash that lost the directory, the same place can be used again."""
    tree = create(repo, tmp_path / "wt")
    shutil.rmtree(tree.path)
    tree = create(repo, tmp_path / "wt")
    (tree.git_dir / "locked").write_text(
        "initializing\n"
    )  # what git itself leaves when it is killed in between
    (tree.path / "a.txt").unlink()
    assert find(repo, tree.path, tree.base) is None
    assert (create(repo, tmp_path / "wt").path / "a.txt").exists()


def test_git_variables_of_the_caller_do_not_matter(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started from a git hook, Proctor still works on the repository it was told."""
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    assert tree.commit_all("m", "proctor/t")


def test_what_is_no_repository_says_so(tmp_path: Path, repo: Path) -> None:
    """No repository, no commit, a wrong base and a wrong branch name are told apart."""
    (tmp_path / "plain").mkdir()
    for place in (tmp_path / "plain", tmp_path / "nowhere"):
        with pytest.raises(NotARepositoryError, match="git init"):
            create(place, tmp_path / "wt")
    git(tmp_path / "plain", "init", "-q")
    with pytest.raises(NoCommitError):
        create(tmp_path / "plain", tmp_path / "wt")
    with pytest.raises(NoCommitError, match="v9"):
        create(repo, tmp_path / "wt", "v9")
    tree = create(repo, tmp_path / "wt")
    (tree.path / "x").write_text("1")
    with pytest.raises(UsageError, match="branch name"):
        tree.commit_all("m", "bad..name")
