"""Undo goes back step by step, can itself be undone, and governed runs save the state once."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.protocol.errors import NotFoundError
from proctor.protocol.permits import Permit
from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backups
from proctor.workspace.restore import RESTORE_TOOL, RestoreFailedError, restore
from proctor.workspace.undo import choose_undo, release_run, save_before_write, undo, undo_points


def leave() -> Permit:
    """A permit for one restore."""
    return permit_for_tests(RESTORE_TOOL)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with one file."""
    root = tmp_path / "w"
    root.mkdir()
    (root / "f").write_text("0")
    return root


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    """An empty store."""
    return Backups(tmp_path / "base")


def test_undo_goes_back_one_run_at_a_time(workspace: Path, backups: Backups) -> None:
    """Three governed runs are taken back one after the other, then nothing is left."""
    for number in range(3):
        save_before_write(backups, workspace, run_id=f"run-{number}", reason=f"before run {number}")
        (workspace / "f").write_text(str(number + 1))
    for number in (2, 1, 0):
        point = choose_undo(backups, workspace)
        assert point.what == f"before run {number}"
        undo(backups, point, permit=leave())
        assert (workspace / "f").read_text() == str(number)
    with pytest.raises(NotFoundError):
        choose_undo(backups, workspace)


def test_an_undo_can_be_undone_by_name(workspace: Path, backups: Backups) -> None:
    """The state before an undo is saved and comes back when it is named."""
    save_before_write(backups, workspace, run_id="r", reason="before r")
    (workspace / "f").write_text("work")
    done = undo(backups, choose_undo(backups, workspace), permit=leave())
    assert (workspace / "f").read_text() == "0"
    undo(backups, choose_undo(backups, workspace, done.safety.name), permit=leave())
    assert (workspace / "f").read_text() == "work"


def test_a_run_saves_the_state_once_and_holds_it(workspace: Path, backups: Backups) -> None:
    """The second write of a run takes no second snapshot; pruning keeps it until the run is released."""
    first = save_before_write(backups, workspace, run_id="r", reason="before r")
    (workspace / "f").write_text("1")
    assert save_before_write(backups, workspace, run_id="r", reason="again").id == first.id
    assert backups.prune(keep=0).kept_pinned == (first.name,)
    assert release_run(backups, "r") == 1
    assert release_run(backups, "r") == 0
    assert backups.prune(keep=0).removed == (first.name,)


def test_a_failed_undo_is_still_to_be_done(workspace: Path, backups: Backups) -> None:
    """When an undo fails and is rolled back, the same point is offered again."""
    save_before_write(backups, workspace, run_id="r", reason="before r")
    (workspace / "f").write_text("1")
    point = choose_undo(backups, workspace)
    steps = 0

    def fail() -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise OSError(28, "No space left on device")

    with pytest.raises(RestoreFailedError, match="as it was before"):
        restore(backups, point.backup, permit=leave(), undoes=point.backup.id, step=fail)
    assert (workspace / "f").read_text() == "1"
    assert choose_undo(backups, workspace).backup.id == point.backup.id


def test_points_are_of_this_workspace_only(workspace: Path, backups: Backups, tmp_path: Path) -> None:
    """What was saved elsewhere cannot be undone here."""
    other = tmp_path / "other"
    other.mkdir()
    saved = save_before_write(backups, other, run_id="r", reason="elsewhere")
    assert undo_points(backups, workspace) == []
    with pytest.raises(NotFoundError):
        choose_undo(backups, workspace, saved.name)


def test_backup_modify_test_restore(workspace: Path, backups: Backups) -> None:
    """The combined workflow: back up, change, the tests fail, restore; the change is gone and not lost."""
    backup = backups.create(workspace, reason="before the change")
    (workspace / "f").write_text("broken")
    tests_pass = (workspace / "f").read_text() == "0"
    assert not tests_pass
    done = restore(backups, backup, permit=leave())
    assert (workspace / "f").read_text() == "0"
    assert backups.manifest(done.safety).by_path["f"].size == len("broken")
