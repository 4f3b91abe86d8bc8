"""The cache of proofs is cleared by age, count and size; what is in use stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from proctor.proof.collect import ProofsCollected, collect_proofs
from proctor.workspace.checkout import CheckoutPool
from proctor.workspace.trees import Trees
from tests.proof.repos import new_repo

DAY = 86_400.0


@pytest.fixture
def cache(home: Path, tmp_path: Path) -> tuple[Path, CheckoutPool, Trees]:
    """The cache of one repository with a warm checkout, a result and what a killed run left."""
    folder = tmp_path / "cache"
    trees = Trees(new_repo(tmp_path / "repo", {"a.txt": "a\n" * 1000}), folder / "repo-1")
    pool = CheckoutPool(trees, trees.home / "slots" / "placed", slots=2)
    pool.give_back(pool.take(trees.tree("HEAD"), trees.commit("HEAD")))
    (trees.home / "results").mkdir()
    for number in range(5):
        (trees.home / "results" / f"{number}.json").write_text("{}")
        age(trees.home / "results" / f"{number}.json", number)
    (trees.home / "index-dead").mkdir()
    (trees.home / "durations.4711").write_text("{")
    return folder, pool, trees


def age(place: Path, days: float) -> None:
    """Make it look unused for so long."""
    moment = time.time() - days * DAY
    os.utime(place, (moment, moment))


def old(trees: Trees, days: float) -> None:
    """Make everything of a repository look unused for so long."""
    for place in (trees.home, *trees.home.rglob("was")):
        age(place, days)


def test_what_was_used_today_stays(cache: tuple[Path, CheckoutPool, Trees]) -> None:
    """Nothing is old, nothing is too much."""
    folder, _pool, trees = cache
    found = collect_proofs(folder, days=30)
    assert found == ProofsCollected(kept_bytes=found.kept_bytes)
    assert (trees.home / "slots/placed/0/files/a.txt").is_file()


def test_old_results_checkouts_and_leavings_go(cache: tuple[Path, CheckoutPool, Trees]) -> None:
    """Each by its own age; results also by count; a dry run only says so."""
    folder, pool, trees = cache
    for name in ("index-dead", "durations.4711"):
        age(trees.home / name, 1)
    for place in trees.home.rglob("was"):
        age(place, 9)
    told = collect_proofs(folder, days=7, keep=3, dry_run=True)
    assert (told.checkouts, told.results, told.left_behind) == (1, 2, 2)
    assert (trees.home / "index-dead").is_dir()
    assert collect_proofs(folder, days=7, keep=3).checkouts == 1
    assert not (trees.home / "slots/placed/0").exists()
    assert sorted(place.name for place in (trees.home / "results").iterdir()) == [
        "0.json",
        "1.json",
        "2.json",
    ]
    with pool.hold(trees.tree("HEAD"), trees.commit("HEAD")) as again:
        assert (again.path / "a.txt").is_file()


def test_a_repository_nobody_asks_about_goes_as_a_whole(cache: tuple[Path, CheckoutPool, Trees]) -> None:
    """Objects and all, but never while one of its checkouts is in use."""
    folder, pool, trees = cache
    with pool.hold(trees.tree("HEAD"), trees.commit("HEAD")):
        old(trees, 40)
        assert collect_proofs(folder, days=30).repositories == 0
        assert (trees.home / "objects").is_dir()
    old(trees, 40)
    found = collect_proofs(folder, days=30)
    assert (found.repositories, found.kept_bytes) == (1, 0)
    assert list(folder.iterdir()) == []


def test_what_is_too_much_goes_from_the_least_used(cache: tuple[Path, CheckoutPool, Trees]) -> None:
    """The size holds although nothing is old; the last hour's is left alone."""
    folder, _pool, trees = cache
    other = Trees(trees.root, folder / "repo-2")
    (other.home / "objects/big").write_bytes(b"x" * 300_000)
    old(trees, 0.5)
    found = collect_proofs(folder, days=30, max_bytes=400_000)
    assert found.repositories == 1
    assert [place.name for place in folder.iterdir()] == ["repo-2"]
    assert collect_proofs(folder, days=30, max_bytes=1).repositories == 0


def test_no_cache_is_nothing_to_do(tmp_path: Path) -> None:
    """A first run has nothing to clear."""
    assert collect_proofs(tmp_path / "none", days=0) == ProofsCollected()
