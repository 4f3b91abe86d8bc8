"""Submodules in clean checkouts: filled from this machine, whatever a command did to them; never from the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.workspace.checkout import CheckoutPool
from proctor.workspace.submodules import MissingSubmoduleError
from proctor.workspace.trees import Trees
from tests.workspace.test_worktree import git

LOCAL = ("-c", "protocol.file.allow=always")


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """No git configuration of the user's takes part."""


def library(place: Path, text: str) -> Path:
    """A repository of its own with two commits."""
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for number in (1, 2):
        (place / "lib.txt").write_text(f"{text} {number}\n")
        (place / "sub").mkdir(exist_ok=True)
        (place / "sub" / "x").write_text("x\n")
        git(place, "add", "--all")
        git(place, "commit", "-qm", f"{number}")
    return place


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A project whose submodule has a submodule; its first commit names the library's first."""
    library(tmp_path / "inner", "inner")
    outer = library(tmp_path / "outer", "outer")
    git(outer, *LOCAL, "submodule", "--quiet", "add", "../inner", "deep")
    git(outer, "commit", "-qam", "3")
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "a.txt").write_text("a\n")
    git(place, *LOCAL, "submodule", "--quiet", "add", "../outer", "libs/outer")
    git(place, *LOCAL, "submodule", "--quiet", "update", "--init", "--recursive")
    git(place / "libs/outer", "checkout", "-q", "HEAD~2")
    git(place, "add", "--all")
    git(place, "commit", "-qm", "old library")
    git(place / "libs/outer", "checkout", "-q", "main")
    git(place, "add", "--all")
    git(place, "commit", "-qm", "new library")
    return place


def pool_of(repo: Path, home: Path) -> tuple[Trees, CheckoutPool]:
    """One slot, so that every checkout follows upon another."""
    trees = Trees(repo, home)
    return trees, CheckoutPool(trees, home / "slots", slots=1)


def test_each_commit_has_its_own_submodules_whatever_ran_before(repo: Path, tmp_path: Path) -> None:
    """Old and new commit of the library, also nested, after a command that wrecked or removed them."""
    trees, pool = pool_of(repo, tmp_path / "cache")
    for rev, text, deep in (
        ("HEAD~1", "outer 1", False),
        ("HEAD", "outer 2", True),
        ("HEAD", "outer 2", True),
    ):
        with pool.hold(trees.tree(rev), trees.commit(rev)) as checkout:
            outer = checkout.path / "libs/outer"
            assert (outer / "lib.txt").read_text() == f"{text}\n"
            assert (outer / "deep/lib.txt").is_file() is deep
            assert not (outer / "made.txt").exists()
            assert checkout.absent == ()
            (outer / "lib.txt").write_text("wrecked\n")
            (outer / "made.txt").write_text("made\n")
            (outer / "sub/x").unlink()
            (outer / "sub").rmdir()
            (outer / "sub").symlink_to("/etc")
    with pool.hold(trees.tree("HEAD"), trees.commit("HEAD")) as checkout:
        assert (checkout.path / "libs/outer/sub/x").read_text() == "x\n"


def test_work_that_is_not_committed_names_the_submodules_commit(repo: Path, tmp_path: Path) -> None:
    """The submodule moved in the user's checkout and not yet in a commit."""
    git(repo / "libs/outer", "checkout", "-q", "main~2")
    trees, pool = pool_of(repo, tmp_path / "cache")
    with pool.hold(trees.uncommitted(), trees.commit("HEAD")) as checkout:
        assert (checkout.path / "libs/outer/lib.txt").read_text() == "outer 1\n"


def test_one_that_is_not_initialised_stays_empty_and_is_named(repo: Path, tmp_path: Path) -> None:
    """As in the user's own checkout; a plain clone does not fetch submodules."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    trees, pool = pool_of(clone, tmp_path / "cache")
    with pool.hold(trees.tree("HEAD"), trees.commit("HEAD")) as checkout:
        assert list((checkout.path / "libs/outer").iterdir()) == []
        assert checkout.absent == ("libs/outer",)


def test_a_commit_that_is_nowhere_is_refused_with_the_cure(repo: Path, tmp_path: Path) -> None:
    """The submodule is in use but this commit of it was never fetched: nothing else is shown instead."""
    git(repo, "update-index", "--cacheinfo", f"160000,{'1' * 40},libs/outer")
    git(repo, "commit", "-qm", "unknown library")
    trees, pool = pool_of(repo, tmp_path / "cache")
    with pytest.raises(MissingSubmoduleError, match="git submodule update --init"):
        pool.take(trees.tree("HEAD"), trees.commit("HEAD"))


def test_a_name_that_leads_out_of_the_store_is_none(repo: Path, tmp_path: Path) -> None:
    """`.gitmodules` is written by others: its names cannot lead to objects elsewhere."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    text = (
        (clone / ".gitmodules").read_text().replace('"libs/outer"', '"../../../repo/.git/modules/libs/outer"')
    )
    (clone / ".gitmodules").write_text(text)
    git(clone, "commit", "-qam", "evil")
    trees, pool = pool_of(clone, tmp_path / "cache")
    with pool.hold(trees.tree("HEAD"), trees.commit("HEAD")) as checkout:
        assert checkout.absent == ("libs/outer",)
