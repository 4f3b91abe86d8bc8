"""Clean checkouts: exactly the wanted tree whatever ran before, and nothing of the user's is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import UnavailableError
from proctor.workspace.checkout import CheckoutPool
from proctor.workspace.trees import Trees
from proctor.workspace.worktree import NoCommitError, NotARepositoryError
from tests.workspace.test_worktree import git


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """No git configuration of the user's takes part."""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits, and work that is not committed."""
    place = tmp_path / "repo"
    (place / "src").mkdir(parents=True)
    git(place, "init", "-q", "-b", "main")
    (place / "src" / "a.py").write_text("old\n")
    (place / "gone.txt").write_text("gone\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    (place / "src" / "a.py").write_text("new\r\n")
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o755)
    (place / "gone.txt").unlink()
    git(place, "add", "--all")
    git(place, "commit", "-qm", "second")
    return place


@pytest.fixture
def trees(repo: Path, tmp_path: Path) -> Trees:
    """The trees of that repository."""
    return Trees(repo, tmp_path / "cache")


@pytest.fixture
def pool(trees: Trees, tmp_path: Path) -> CheckoutPool:
    """One slot, so that every checkout follows upon another."""
    return CheckoutPool(trees, tmp_path / "cache" / "slots", slots=1)


def listing(place: Path) -> dict[str, bytes]:
    """Every file without the git directory."""
    files = [path for path in place.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


def test_what_was_installed_is_no_part_of_the_work(trees: Trees, repo: Path) -> None:
    """A virtual environment that nothing ignores is left out; what git knows, or only bears the name, is not."""
    (repo / "new.py").write_text("x = 1\n")
    without = trees.uncommitted()
    assert trees.installed() == []
    for name, file in ((".venv", "pyvenv.cfg"), (".venv", "lib/x.py"), ("node_modules", "a/index.js")):
        (repo / name / file).parent.mkdir(parents=True, exist_ok=True)
        (repo / name / file).write_text("installed\n")
    assert trees.installed() == [".venv", "node_modules"]
    assert trees.uncommitted() == without
    (repo / "venv").mkdir()
    (repo / "venv" / "mine.py").write_text("y = 1\n")
    assert trees.uncommitted() != without
    (repo / "venv" / "mine.py").unlink()
    git(repo, "add", "node_modules")
    assert trees.installed() == [".venv"]
    assert trees.uncommitted() != without


def test_a_used_checkout_becomes_exactly_the_next_tree(pool: CheckoutPool, trees: Trees) -> None:
    """Deleted, changed, added, ignored, linked and locked files of one run are gone in the next."""
    old, new = trees.tree("HEAD~1"), trees.tree("HEAD")
    with pool.hold(new, trees.commit("HEAD")) as first:
        expected = listing(first.path)
        (first.path / "src" / "a.py").unlink()
        (first.path / "run.sh").chmod(0)
        (first.path / "x.log").write_text("ignored")
        (first.path / "deep" / "er").mkdir(parents=True)
        (first.path / "deep" / "er" / "f").write_text("x")
        (first.path / "deep").chmod(0)
        (first.path / "link").symlink_to("/etc")
        shutil.rmtree(first.path / ".git")
        (first.path / ".git").symlink_to("/etc")
        subprocess.run(["git", "init", "-q", str(first.path / "nested")], check=True)
    with pool.hold(old, trees.commit("HEAD~1")) as second:
        assert listing(second.path) == {"src/a.py": b"old\n", "gone.txt": b"gone\n", ".gitignore": b"*.log\n"}
    with pool.hold(new, trees.commit("HEAD")) as third:
        assert listing(third.path) == expected
        assert os.access(third.path / "run.sh", os.X_OK)
        assert expected["src/a.py"] == b"new\r\n"


def test_a_warm_checkout_writes_only_what_differs(pool: CheckoutPool, trees: Trees) -> None:
    """Files that are the same in both trees keep their inode: taking a slot again costs no second checkout."""
    old, new = trees.tree("HEAD~1"), trees.tree("HEAD")
    kept = []
    for tree, rev in ((new, "HEAD"), (new, "HEAD"), (old, "HEAD~1")):
        with pool.hold(tree, trees.commit(rev)) as checkout:
            kept.append((checkout.path / ".gitignore").stat().st_ino)
            (checkout.path / "made.log").write_text("x")
    assert len(set(kept)) == 1


def test_a_checkout_that_was_deleted_whole_is_made_anew(pool: CheckoutPool, trees: Trees) -> None:
    """Neither an empty slot nor a broken index stays broken."""
    tree, head = trees.tree("HEAD"), trees.commit("HEAD")
    with pool.hold(tree, head) as first:
        expected = listing(first.path)
        shutil.rmtree(first.path)
    with pool.hold(tree, head) as second:
        assert listing(second.path) == expected
    (second.path.parent / "git" / "index").write_bytes(b"broken")
    with pool.hold(tree, head) as third:
        assert listing(third.path) == expected


def test_a_checkout_has_its_own_git_with_history_and_no_way_back(
    trees: Trees, repo: Path, tmp_path: Path
) -> None:
    """Log, tags and status work; commits and settings made there do not reach the repository."""
    git(repo, "tag", "v1")
    pool = CheckoutPool(trees, tmp_path / "cache" / "slots", slots=1)
    before = git(repo, "for-each-ref")
    with pool.hold(trees.tree("v1"), trees.commit("v1")) as checkout:
        assert git(checkout.path, "log", "--format=%s") == "second\nfirst"
        assert git(checkout.path, "describe", "--tags") == "v1"
        assert git(checkout.path, "status", "--porcelain") == ""
        git(checkout.path, "commit", "--allow-empty", "-qm", "mine")
        git(checkout.path, "config", "alias.x", "!touch /tmp/never")
    assert git(repo, "for-each-ref") == before
    with pool.hold(trees.tree("v1"), trees.commit("v1")) as checkout:
        assert "alias" not in (checkout.path / ".git" / "config").read_text()


def test_uncommitted_work_is_a_tree_and_the_index_stays(trees: Trees, repo: Path) -> None:
    """Staged, unstaged and untracked work counts, ignored files do not, and git status says the same after."""
    (repo / "src" / "a.py").write_text("staged\n")
    git(repo, "add", "src/a.py")
    (repo / "src" / "a.py").write_text("unstaged\n")
    (repo / "fresh.py").write_text("x\n")
    (repo / "noise.log").write_text("x\n")
    before = (git(repo, "status", "--porcelain"), (repo / ".git" / "index").read_bytes())
    objects = sorted((repo / ".git" / "objects").rglob("*"))
    everything, staged = trees.uncommitted(), trees.uncommitted(staged=True)
    assert trees.blob(everything, "src/a.py") == b"unstaged\n"
    assert trees.blob(everything, "fresh.py") == b"x\n"
    assert trees.blob(everything, "noise.log") is None
    assert trees.blob(staged, "src/a.py") == b"staged\n"
    assert trees.blob(staged, "fresh.py") is None
    assert (git(repo, "status", "--porcelain"), (repo / ".git" / "index").read_bytes()) == before
    assert sorted((repo / ".git" / "objects").rglob("*")) == objects


def test_overlay_of_all_changes_is_the_change_itself(trees: Trees) -> None:
    """Additions, edits, modes and removals all travel; an overlay of nothing is the base."""
    old, new = trees.tree("HEAD~1"), trees.tree("HEAD")
    paths = [change.path for change in trees.changed(old, new)]
    assert {(c.path, c.status) for c in trees.changed(old, new)} == {
        ("gone.txt", "D"),
        ("run.sh", "A"),
        ("src/a.py", "M"),
    }
    assert trees.overlay(old, new, paths) == new
    assert trees.overlay(new, old, paths) == old
    assert trees.overlay(old, new, []) == old


def test_a_patch_gives_the_same_tree_or_none(trees: Trees) -> None:
    """The difference applied to the old tree is the new tree; applied twice it does not fit."""
    old, new = trees.tree("HEAD~1"), trees.tree("HEAD")
    patch = trees.diff(old, new)
    assert trees.applied(old, patch) == new
    assert trees.applied(new, patch) is None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_edited_contents_come_back_byte_for_byte(trees: Trees, data: bytes) -> None:
    """Line ends, zero bytes and what is no UTF-8 survive."""
    tree = trees.edited(trees.tree("HEAD"), {"src/a.py": data})
    assert trees.blob(tree, "src/a.py") == data


def test_names_that_look_like_patterns_are_taken_literally(trees: Trees, repo: Path) -> None:
    """`*`, `:` and leading dashes in names select that file alone."""
    for name in ("*.py", ":(top)x", "-r", "ä b.py"):
        (repo / name).write_text(name)
    tree = trees.uncommitted()
    base = trees.tree("HEAD")
    for name in ("*.py", ":(top)x", "-r", "ä b.py"):
        only = trees.overlay(base, tree, [name])
        assert [change.path for change in trees.changed(base, only)] == [name]
        assert trees.blob(only, name) == name.encode()


def test_slots_are_held_by_one_and_waited_for(pool: CheckoutPool, trees: Trees) -> None:
    """A second taker waits until the first gives back, and gives up at its deadline."""
    tree, head = trees.tree("HEAD"), trees.commit("HEAD")
    first = pool.take(tree, head)
    with pytest.raises(UnavailableError):
        pool.take(tree, head, seconds=0.05)
    threading.Timer(0.2, pool.give_back, [first]).start()
    with pool.hold(tree, head, seconds=10) as second:
        assert second.slot == first.slot


def test_wrong_places_and_revisions_are_named(trees: Trees, tmp_path: Path) -> None:
    """No repository, no such commit, and an option dressed up as a revision."""
    with pytest.raises(NotARepositoryError):
        Trees(tmp_path / "nowhere", tmp_path / "c2")
    for rev in ("nope", "--all", "-h"):
        with pytest.raises(NoCommitError):
            trees.commit(rev)


def test_an_edit_in_the_very_moment_of_the_last_commit_is_seen(repo: Path, trees: Trees) -> None:
    """Same length, same time stamp as the index: only the contents tell, and they are compared."""
    committed = trees.tree("HEAD")
    index, file = repo / ".git/index", repo / "src/a.py"
    moment = 1_600_000_000 * 10**9
    git(repo, "config", "core.trustctime", "false")  # nobody can set a file's ctime
    os.utime(file, ns=(moment, moment))
    git(repo, "update-index", "--refresh")
    os.utime(index, ns=(moment, moment))
    assert trees.uncommitted() == committed
    file.write_text("NEW\r\n")
    os.utime(file, ns=(moment, moment))
    assert trees.uncommitted() != committed
