"""Undo beside git: commits and branches that came later are never lost, whatever is brought back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proctor.protocol.permits import Permit
from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backups
from proctor.workspace.history import HistoryMovedError, history_of, moved_since
from proctor.workspace.restore import RESTORE_TOOL, RestoreFailedError, restore
from proctor.workspace.undo import UndoPoint, choose_undo, preview_undo, save_before_write, undo


def git(place: Path, *words: str) -> str:
    """Run git as a user would, with a name."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgSign=false"]
    done = subprocess.run(["git", "-C", str(place), *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def leave() -> Permit:
    """A permit for one restore."""
    return permit_for_tests(RESTORE_TOOL)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A repository on main with one commit."""
    root = tmp_path / "w"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "f").write_text("0")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    """An empty store."""
    return Backups(tmp_path / "base")


def act(backups: Backups, workspace: Path) -> UndoPoint:
    """A governed run changes a file; what can be taken back afterwards."""
    save_before_write(backups, workspace, run_id="r", reason="before r")
    (workspace / "f").write_text("agent")
    return choose_undo(backups, workspace)


def commit(workspace: Path, text: str = "later") -> str:
    """A person goes on and commits."""
    (workspace / "g").write_text(text)
    git(workspace, "add", "-A")
    git(workspace, "commit", "-qm", text)
    return git(workspace, "rev-parse", "HEAD")


def test_without_new_history_an_undo_just_undoes(workspace: Path, backups: Backups) -> None:
    """Nothing was committed since: no question, files and index as before."""
    point = act(backups, workspace)
    git(workspace, "add", "-A")
    undo(backups, point, permit=leave())
    assert (workspace / "f").read_text() == "0"
    assert git(workspace, "status", "--porcelain") == ""


def test_an_undo_over_new_commits_asks_what_is_meant_and_changes_nothing(
    workspace: Path, backups: Backups
) -> None:
    """Refused with both ways named; files, history and the list of backups stay as they are."""
    point = act(backups, workspace)
    head = commit(workspace)
    before = [one.id for one in backups.listing()]
    with pytest.raises(HistoryMovedError, match=r"1 commit was made on main .*--keep-commits.*--with-git"):
        undo(backups, point, permit=leave())
    assert (workspace / "f").read_text() == "agent"
    assert git(workspace, "rev-parse", "HEAD") == head
    assert [one.id for one in backups.listing()] == before


def test_keeping_commits_brings_back_the_files_and_leaves_git_alone(
    workspace: Path, backups: Backups
) -> None:
    """Work tree as saved; branch, commits and index untouched, so that git shows the difference."""
    point = act(backups, workspace)
    head = commit(workspace)
    done = undo(backups, point, permit=leave(), history="keep")
    assert (workspace / "f").read_text() == "0"
    assert not (workspace / "g").exists()
    assert git(workspace, "rev-parse", "HEAD") == head
    assert set(git(workspace, "diff", "--name-only").split()) == {"f", "g"}
    assert not any(path.startswith(".git") for path in done.changed)
    undo(backups, choose_undo(backups, workspace, done.safety.name), permit=leave())
    assert (workspace / "f").read_text() == "agent"
    assert git(workspace, "status", "--porcelain") == ""


def test_bringing_git_back_keeps_every_commit_by_its_hash(workspace: Path, backups: Backups) -> None:
    """HEAD is where it was, and the later commit is still in the repository, whole."""
    first = git(workspace, "rev-parse", "HEAD")
    point = act(backups, workspace)
    head = commit(workspace)
    git(workspace, "gc", "-q")
    last = commit(workspace, "even later")
    done = undo(backups, point, permit=leave(), history="restore")
    assert git(workspace, "rev-parse", "HEAD") == first
    assert (workspace / "f").read_text() == "0"
    assert git(workspace, "status", "--porcelain") == ""
    assert done.moved is not None
    assert (done.moved.count, done.moved.now and done.moved.now.head) == (2, last)
    git(workspace, "branch", "saved", last)
    assert git(workspace, "show", "saved:g") == "even later"
    assert git(workspace, "rev-parse", "saved~1") == head
    assert git(workspace, "fsck", "--connectivity-only") == ""


def test_a_switched_branch_is_named(workspace: Path, backups: Backups) -> None:
    """On another branch the refusal says which it was and which it is."""
    point = act(backups, workspace)
    git(workspace, "checkout", "-q", "-b", "feature")
    with pytest.raises(HistoryMovedError, match=r"then main at [0-9a-f]{12}, now feature"):
        undo(backups, point, permit=leave())
    undo(backups, point, permit=leave(), history="keep")
    assert git(workspace, "symbolic-ref", "--short", "HEAD") == "feature"
    assert (workspace / "f").read_text() == "0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tag", "v1"], "branches, tags or stashes"),
        (["stash"], "branches, tags or stashes"),
        (["commit", "-q", "--amend", "-m", "other"], "main was moved from"),
        (["checkout", "-q", "--detach"], "now no branch"),
    ],
)
def test_every_move_of_history_is_seen(
    workspace: Path, backups: Backups, words: list[str], said: str
) -> None:
    """A tag, a stash, an amended commit and a detached HEAD ask too: bringing git back would take them away."""
    point = act(backups, workspace)
    git(workspace, *words)
    with pytest.raises(HistoryMovedError, match=said):
        undo(backups, point, permit=leave())


def test_a_preview_leaves_out_what_would_be_left_alone(workspace: Path, backups: Backups) -> None:
    """With commits kept, nothing of git is in the list."""
    point = act(backups, workspace)
    commit(workspace)
    kept = [path for path, _ in preview_undo(backups, point, history="keep").rows() if path]
    assert kept == ["f", "g"]
    assert any(path.startswith(".git/") for path, _ in preview_undo(backups, point).rows())


def test_an_interrupted_undo_is_finished_the_way_it_was_begun(workspace: Path, backups: Backups) -> None:
    """The journal says that git is left alone; finishing it by a plain restore leaves it alone too."""
    point = act(backups, workspace)
    head = commit(workspace)
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(backups, point.backup, permit=leave(), undoes=point.backup.id, history="keep", step=stop)
    done = restore(backups, point.backup, permit=leave())
    assert done.resumed
    assert git(workspace, "rev-parse", "HEAD") == head
    assert (workspace / "f").read_text() == "0"


def test_a_worktree_and_a_subdirectory_know_their_history_too(workspace: Path, backups: Backups) -> None:
    """Where git's own files lie elsewhere, a moved history is seen as well, and never touched."""
    tree = workspace.parent / "tree"
    git(workspace, "worktree", "add", "-q", "-b", "side", str(tree))
    point = act(backups, tree)
    head = commit(tree)
    with pytest.raises(HistoryMovedError):
        undo(backups, point, permit=leave())
    undo(backups, point, permit=leave(), history="restore")
    assert git(tree, "rev-parse", "HEAD") == head
    assert (tree / "f").read_text() == "0"


def test_without_git_there_is_no_history(tmp_path: Path, backups: Backups) -> None:
    """A plain directory, and a repository without a commit, have none, and undo asks nothing."""
    plain = tmp_path / "plain"
    plain.mkdir()
    assert history_of(plain) is None
    git(plain, "init", "-q")
    assert history_of(plain) is None
    (plain / "f").write_text("0")
    point = act(backups, plain)
    assert moved_since(point.backup.stood, plain) is None
    undo(backups, point, permit=leave())
    assert (plain / "f").read_text() == "0"


def test_a_failed_undo_puts_commits_and_files_back(workspace: Path, backups: Backups) -> None:
    """An error on the way: history and work tree as they were before."""
    point = act(backups, workspace)
    head = commit(workspace)
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise OSError(28, "No space left on device")

    with pytest.raises(RestoreFailedError):
        restore(backups, point.backup, permit=leave(), undoes=point.backup.id, history="restore", step=fail)
    assert git(workspace, "rev-parse", "HEAD") == head
    assert git(workspace, "status", "--porcelain") == ""
    assert (workspace / "f").read_text() == "agent"


def test_a_copy_elsewhere_says_nothing_of_a_history_that_moved(
    workspace: Path, backups: Backups, tmp_path: Path
) -> None:
    """An empty directory has no commits that could be lost, and gets those of the backup."""
    backup = backups.create(workspace)
    copy = tmp_path / "copy"
    copy.mkdir()
    done = restore(backups, backup, permit=leave(), target=copy, allowed_roots=[tmp_path])
    assert done.moved is None
    assert git(copy, "rev-parse", "HEAD") == git(workspace, "rev-parse", "HEAD")
