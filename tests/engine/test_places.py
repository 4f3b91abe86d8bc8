"""Where attempts work: own worktrees, work on the task's branch, the user's checkout untouched."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.agents.driver import AttemptEnd, Outcome
from proctor.engine.claims import Claim
from proctor.engine.places import GitPlaces
from proctor.engine.tasks import NewTask
from proctor.workspace.worktree import NotARepositoryError
from tests.engine.conftest import House
from tests.support.rows import NOON

DONE = AttemptEnd(Outcome.SUCCEEDED, "done", simulated=True)


def git(place: Path, *words: str) -> str:
    """Run git there as nobody in particular."""
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(
        ["git", *who, *words], cwd=place, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


@pytest.fixture
def repository(home: Path, tmp_path: Path) -> Path:
    """A repository with one commit, a staged, a changed and an untracked file."""
    place = tmp_path / "repo"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "a.txt").write_text("one\n")
    (place / "b.txt").write_text("one\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "first")
    (place / "a.txt").write_text("changed\n")
    (place / "b.txt").write_text("staged\n")
    git(place, "add", "b.txt")
    (place / "c.txt").write_text("untracked\n")
    return place


def everything(repository: Path) -> dict[str, Any]:
    """The user's checkout as it is: files, index, branch."""
    files = {path.name: path.read_bytes() for path in repository.iterdir() if path.is_file()}
    words = (("status", "--porcelain"), ("rev-parse", "HEAD"), ("symbolic-ref", "HEAD"), ("stash", "list"))
    return {"files": files, **{" ".join(one): git(repository, *one) for one in words}}


@pytest.fixture
def claim(house: House, repository: Path) -> Claim:
    """The first attempt of a task in that repository."""
    task = house.tasks.add(NewTask("do it\nproperly", agent="instant", workspace=str(repository)))
    return Claim(task, 1, "instant", taken_over=False, earlier=None, identities=(), began=NOON)


def places_of(tmp_path: Path) -> GitPlaces:
    """Below the data directory."""
    return GitPlaces(tmp_path / "wt", tmp_path / "attempts")


def later(claim: Claim, place: Path, base: str | None, outcome: str | None, attempt: int = 2) -> Claim:
    """The attempt after one that worked there."""
    earlier = {"worktree": str(place), "base_commit": base, "outcome": outcome, "native_id": None}
    return replace(claim, attempt=attempt, earlier=earlier, taken_over=outcome is None)


async def test_work_becomes_a_commit_and_the_checkout_stays(
    claim: Claim, repository: Path, tmp_path: Path
) -> None:
    """New, changed and deleted files are on proctor/<task>; branch, index and dirty files of the user are as before."""
    before = everything(repository)
    places = places_of(tmp_path)
    place = await places.prepare(claim)
    assert repository not in [place.directory, *place.directory.parents]
    assert (place.directory / "a.txt").read_text() == "one\n"
    (place.directory / "a.txt").write_text("two\n")
    (place.directory / "b.txt").unlink()
    (place.directory / "new.txt").write_text("new\n")
    work = await places.collect(claim, place, DONE)
    branch = f"proctor/{claim.task.task_id}"
    assert (work.branch, sorted(work.files)) == (branch, ["a.txt", "b.txt", "new.txt"])
    assert git(repository, "show", f"{branch}:a.txt") == "two"
    assert git(repository, "ls-tree", "--name-only", branch).split() == ["a.txt", "new.txt"]
    assert "Simulated: yes" in git(repository, "log", "-1", "--format=%B", branch)
    assert not place.tmp.exists()
    assert everything(repository) == before


async def test_every_attempt_has_a_worktree_of_its_own(house: House, claim: Claim, tmp_path: Path) -> None:
    """Two tasks, and a fresh attempt after a cancel: three directories."""
    places = places_of(tmp_path)
    first = await places.prepare(claim)
    workspace = claim.task.workspace
    other = house.tasks.add(NewTask("other", agent="instant", workspace=workspace))
    second = await places.prepare(replace(claim, task=other))
    third = await places.prepare(later(claim, first.directory, first.base, "cancelled"))
    assert len({first.directory, second.directory, third.directory}) == 3


@pytest.mark.parametrize("outcome", [None, "interrupted", "parked", "failed", "timed_out"])
async def test_an_attempt_that_goes_on_finds_its_files(
    claim: Claim, tmp_path: Path, outcome: str | None
) -> None:
    """Also in another process: the worktree is found from what was written down, and its work is not lost."""
    place = await places_of(tmp_path).prepare(claim)
    (place.directory / "half.txt").write_text("half\n")
    places = places_of(tmp_path)
    goes_on = later(claim, place.directory, place.base, outcome)
    again = await places.prepare(goes_on)
    assert (again.directory, again.base, again.state) == (place.directory, place.base, place.state)
    assert (again.directory / "half.txt").read_text() == "half\n"
    work = await places.collect(goes_on, again, DONE)
    assert work.files == ["half.txt"]


async def test_a_worktree_that_is_gone_is_made_anew(claim: Claim, tmp_path: Path) -> None:
    """Somebody deleted it: the attempt begins from the base instead of failing."""
    import shutil

    places = places_of(tmp_path)
    place = await places.prepare(claim)
    shutil.rmtree(place.directory)
    again = await places.prepare(later(claim, place.directory, place.base, "interrupted"))
    assert (again.directory / "a.txt").exists()


async def test_a_place_that_nobody_wrote_down_is_made_anew(claim: Claim, tmp_path: Path) -> None:
    """Killed after the worktree was made and before it was written down: the takeover begins in a fresh one."""
    first = await places_of(tmp_path).prepare(claim)
    again = await places_of(tmp_path).prepare(replace(claim, taken_over=True))
    assert (again.directory, again.base) == (first.directory, first.base)
    (again.directory / "work.txt").write_text("an agent was here after all")
    third = await places_of(tmp_path).prepare(replace(claim, taken_over=True))
    assert third.directory != again.directory
    assert (again.directory / "work.txt").exists()
    assert not (third.directory / "work.txt").exists()


async def test_a_directory_of_somebody_else_is_left_alone(claim: Claim, tmp_path: Path) -> None:
    """What lies in the way and is no worktree stays as it is; a worktree left half made is made again."""
    first = await places_of(tmp_path).prepare(claim)
    record = Path((first.directory / ".git").read_text().removeprefix("gitdir: ").strip())
    (record / "locked").write_text("initializing")
    assert (await places_of(tmp_path).prepare(claim)).directory == first.directory
    shutil.rmtree(record)
    assert (await places_of(tmp_path).prepare(claim)).directory != first.directory
    assert first.directory.exists()


async def test_a_workspace_without_repository_is_refused_with_the_cure(
    house: House, home: Path, tmp_path: Path
) -> None:
    """Not run in the user's directory by accident."""
    task = house.tasks.add(NewTask("x", agent="instant", workspace=str(tmp_path)))
    claim = Claim(task, 1, "instant", taken_over=False, earlier=None, identities=(), began=NOON)
    with pytest.raises(NotARepositoryError, match="git"):
        await places_of(tmp_path).prepare(claim)


async def test_a_task_without_workspace_gets_a_plain_directory(house: House, tmp_path: Path) -> None:
    """The same one again for every attempt."""
    task = house.tasks.add(NewTask("x", agent="instant", session_id="../../evil"))
    claim = Claim(task, 1, "instant", taken_over=False, earlier=None, identities=(), began=NOON)
    places = places_of(tmp_path)
    place = await places.prepare(claim)
    assert (tmp_path / "wt") in place.directory.resolve().parents
    assert (await places.prepare(replace(claim, attempt=2))).directory == place.directory
    assert (await places.collect(claim, place, DONE)).branch is None
