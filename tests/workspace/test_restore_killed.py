"""A restore killed at any point is finished by a second run; until then nobody mistakes the state for whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.protocol.errors import RefusedError
from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backup, Backups
from proctor.workspace.restore import RESTORE_TOOL, restore
from tests.workspace.killed_restore import KILLED
from tests.workspace.trees import Facts, differences, facts, make_tree, mutate

POINTS = 50


class Rig:
    """A workspace, its backup, and a way to kill a restore of it."""

    def __init__(self, place: Path) -> None:
        self.root = place / "project"
        make_tree(self.root)
        self.before: Facts = facts(self.root)
        self.backups = Backups(place / "base")
        self.backup: Backup = self.backups.create(self.root)

    def run(self, last: int) -> subprocess.CompletedProcess[str]:
        """Restore in a process of its own that dies before step `last`."""
        argv = [sys.executable, "-m", "tests.workspace.killed_restore"]
        return subprocess.run(
            [*argv, str(self.backups.base), self.backup.name, str(last)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=Path(__file__).parents[2],
            env={"PATH": os.defpath, "HOME": str(self.root.parent)},
        )

    def finish(self) -> bool:
        """Run the restore again; say whether it took up an interrupted one."""
        return restore(self.backups, self.backup, permit=permit_for_tests(RESTORE_TOOL)).resumed


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A fresh rig."""
    return Rig(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_fifty_kills_of_a_restore_leave_nothing_behind(rig: Rig) -> None:
    """Killed at 50 points spread over all steps, each time the second run ends with 0 differences."""
    mutate(rig.root)
    whole = rig.run(0)
    assert whole.returncode == 0, whole.stderr
    steps = int(whole.stdout)
    assert steps > POINTS
    for number in range(POINTS):
        point = 1 + number * (steps - 1) // (POINTS - 1)
        mutate(rig.root)
        killed = rig.run(point)
        assert killed.returncode == KILLED, killed.stderr
        assert rig.finish()
        assert differences(rig.before, facts(rig.root)) == [], f"killed before step {point} of {steps}"
    assert rig.backups.journal(rig.root).read() is None


@pytest.mark.parametrize("point", [2, 30, 60])
def test_a_killed_restore_is_finished_by_the_next(rig: Rig, point: int) -> None:
    """After a kill the journal stands, backups are refused, and the second run ends exact."""
    mutate(rig.root)
    assert rig.run(point).returncode == KILLED
    journal = rig.backups.journal(rig.root).read()
    assert journal is not None
    assert journal.backup_id == rig.backup.id
    with pytest.raises(RefusedError, match="interrupted"):
        rig.backups.create(rig.root)
    assert rig.finish()
    assert differences(rig.before, facts(rig.root)) == []


def test_a_killed_restore_can_be_undone_instead(rig: Rig) -> None:
    """Restoring the safety snapshot after a kill brings back the state before the restore."""
    mutate(rig.root)
    damaged = facts(rig.root)
    assert rig.run(35).returncode == KILLED
    journal = rig.backups.journal(rig.root).read()
    assert journal is not None
    safety = rig.backups.find(journal.safety_id)
    restore(rig.backups, safety, permit=permit_for_tests(RESTORE_TOOL))
    assert differences(damaged, facts(rig.root)) == []


def test_prune_keeps_what_an_unfinished_restore_names(rig: Rig) -> None:
    """Neither the backup nor the safety snapshot of an unfinished restore is pruned."""
    mutate(rig.root)
    assert rig.run(35).returncode == KILLED
    rig.backups.prune(keep=0)
    assert rig.finish()
    assert differences(rig.before, facts(rig.root)) == []


def test_work_after_the_kill_is_saved_too(rig: Rig) -> None:
    """What the user wrote between the kill and the second run is in a snapshot."""
    mutate(rig.root)
    assert rig.run(35).returncode == KILLED
    (rig.root / "thought").write_text("written meanwhile")
    rig.finish()
    assert not (rig.root / "thought").exists()
    saved = [backup for backup in rig.backups.listing() if "thought" in rig.backups.manifest(backup).by_path]
    assert saved


def test_a_killed_restore_of_everything_is_finished(rig: Rig) -> None:
    """A workspace that was emptied and half refilled is taken up again."""
    (rig.root / "locked").chmod(0o755)
    shutil.rmtree(rig.root)
    rig.root.mkdir()
    assert rig.run(30).returncode == KILLED
    assert rig.finish()
    assert differences(rig.before, facts(rig.root)) == []
