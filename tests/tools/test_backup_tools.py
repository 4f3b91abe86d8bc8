"""Backups through their tools: exact, all or nothing, only of and into the right place."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from proctor.protocol.errors import NotFoundError, ProctorError, RefusedError, UsageError
from proctor.protocol.tools import CallState
from proctor.workspace.backups import Backups
from tests.tools.conftest import AGENT, Desk


def tree(root: Path) -> dict[str, bytes | None]:
    """Everything below a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


async def test_backup_gives_the_words_of_both_dialects(desk: Desk) -> None:
    """`backup_path` of the seeds' form, and timestamp, path and reason of the REST form."""
    got = await desk.call("create_backup", workspace_path=str(desk.root), reason="before lunch")
    assert re.fullmatch(r"project_\d{8}_\d{6}(_\d+)?", Path(got["backup_path"]).name)
    assert got["path"] == got["backup_path"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d{6}(_\d+)?", got["timestamp"])
    assert (got["success"], got["reason"], got["complete"]) == (True, "before lunch", True)
    listed = await desk.call("list_backups")
    assert [one["backup_path"] for one in listed["backups"]] == [got["backup_path"]]


@pytest.mark.parametrize("by", ["path", "timestamp", "alias"])
async def test_restore_by_path_or_timestamp_is_exact(desk: Desk, by: str) -> None:
    """Changed, deleted and new files are as they were, `.git` too, and the state before is kept."""
    (desk.root / ".git").mkdir()
    (desk.root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    made = await desk.call("create_backup")
    before = tree(desk.root)
    (desk.root / "README.md").unlink()
    (desk.root / "src/app.py").write_text("changed")
    (desk.root / "new").write_text("new")
    said: dict[str, Any] = {
        "path": {"backup_path": made["backup_path"], "workspace_path": str(desk.root)},
        "timestamp": {"backup_timestamp": made["timestamp"]},
        "alias": {"timestamp": made["timestamp"]},
    }[by]
    name = "restore_backup" if by == "path" else "restore_from_backup"
    got = await desk.call(name, **said)
    assert (got["success"], got["message"]) == (True, "Backup restored successfully")
    assert got["timestamp"] == made["timestamp"]
    assert set(got["changed"]) >= {"README.md", "src/app.py", "new"}
    assert tree(desk.root) == before
    await desk.call("restore_backup", backup_path=got["safety_backup"])
    assert (desk.root / "new").read_text() == "new"


async def test_bug_3_what_is_no_backup_is_refused_and_nothing_is_lost(desk: Desk, tmp_path: Path) -> None:
    """Any directory is not a backup, and a restore of it deletes nothing."""
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "manifest").write_text("x")
    before = tree(desk.root)
    for name in (str(tmp_path / "fake"), "/", "/etc", "..", "nul\0", "2020-01-01_000000"):
        with pytest.raises(ProctorError):
            await desk.call("restore_backup", backup_path=name, workspace_path=str(desk.root))
    with pytest.raises(NotFoundError):
        await desk.call("restore_from_backup", backup_timestamp="2020-01-01_000000")
    with pytest.raises(UsageError, match="Missing backup_path"):
        await desk.call("restore_backup")
    assert tree(desk.root) == before


async def test_bug_3_backup_of_another_workspace_is_refused(desk: Desk, home: Path) -> None:
    """A backup goes only where it came from, or into an empty directory inside."""
    other = home / "other"
    other.mkdir()
    (other / "o").write_text("o")
    made = await desk.call("create_backup", workspace_path=str(other))
    before = tree(desk.root)
    with pytest.raises(RefusedError):
        await desk.call("restore_backup", backup_path=made["backup_path"], workspace_path=str(desk.root))
    with pytest.raises(NotFoundError):
        await desk.call("restore_backup", backup_path=made["backup_path"])
    assert tree(desk.root) == before
    (desk.root / "empty").mkdir()
    await desk.call("restore_backup", backup_path=made["backup_path"], workspace_path="empty")
    assert (desk.root / "empty" / "o").read_text() == "o"


async def test_bug_4_two_backups_in_one_second_have_two_names(desk: Desk) -> None:
    """No collision, whoever is faster."""
    async with asyncio.TaskGroup() as group:
        both = [group.create_task(desk.call("create_backup")) for _ in range(3)]
    assert len({task.result()["backup_path"] for task in both}) == 3


async def test_bug_4_store_inside_the_workspace_is_refused_with_the_cure(desk: Desk) -> None:
    """A base directory inside what is backed up would hold itself; nothing is written then."""
    with pytest.raises(RefusedError, match="XDG_DATA_HOME"):
        await desk.call("create_backup", workspace_path=str(desk.root.parent))
    assert Backups(desk.settings.paths.backups_dir).listing() == []


async def test_cancelled_restore_leaves_the_workspace_as_it_was(desk: Desk) -> None:
    """All or nothing, also when the caller loses patience."""
    made = await desk.call("create_backup")
    (desk.root / "README.md").write_text("changed")
    before = tree(desk.root)
    cancel = asyncio.Event()
    cancel.set()
    with pytest.raises(ProctorError):
        await desk.call("restore_backup", backup_path=made["backup_path"], cancel=cancel)
    assert tree(desk.root) == before


async def test_missing_workspace_is_an_answer_not_a_crash(desk: Desk) -> None:
    """A path that is not there, or is no directory."""
    for path in ("missing", "README.md", "nul\0"):
        with pytest.raises(ProctorError):
            await desk.call("create_backup", workspace_path=path)


async def test_agent_asks_before_it_touches_another_place(desk: Desk, home: Path) -> None:
    """What a person may do directly, an agent asks for."""
    (home / "other").mkdir()
    done = await desk.result("create_backup", actor=AGENT, workspace_path=str(home / "other"))
    assert done.state is CallState.WAITING
    assert Backups(desk.settings.paths.backups_dir).listing(home / "other") == []


async def test_first_write_of_a_run_is_saved_once_and_undone(desk: Desk) -> None:
    """Seed 001 tells the model to back up first; here the gate does it, once per run."""
    first = await desk.result("write_file", actor=AGENT, path="README.md", content="one")
    second = await desk.result("write_file", actor=AGENT, path="README.md", content="two")
    assert first.snapshot_id
    assert first.snapshot_id == second.snapshot_id
    listed = (await desk.call("list_backups"))["backups"]
    assert [(one["backup_id"], one["kind"], one["pinned"]) for one in listed] == [
        (first.snapshot_id, "auto", True)
    ]
    await desk.call("restore_backup", backup_path=first.snapshot_id, as_undo=True)
    assert (desk.root / "README.md").read_text() == "# Project\n"


TEST = "python3 -c \"import runpy; assert runpy.run_path('src/app.py')['answer'] == 42\""


@pytest.mark.parametrize(("content", "kept"), [("answer = 42\n", True), ("answer = 41\n", False)])
async def test_combined_workflow_of_seed_001(desk: Desk, content: str, kept: bool) -> None:
    """Create a backup, modify the file, run tests, and restore if tests fail."""
    before = tree(desk.root)
    backup = await desk.call("create_backup", workspace_path=str(desk.root))
    await desk.call("write_file", path="src/app.py", content=content)
    tests = await desk.call("execute_command", command=TEST, cwd=str(desk.root))
    assert tests["success"] is kept
    if not tests["success"]:
        done = await desk.call(
            "restore_backup", backup_path=backup["backup_path"], workspace_path=str(desk.root)
        )
        assert done["success"] is True
    assert (tree(desk.root) == before) is not kept
    assert (desk.root / "src/app.py").read_text() == (content if kept else "print('hello')\n")


async def test_mock_makes_and_restores_nothing(desk: Desk) -> None:
    """Simulated, and said so."""
    before = tree(desk.root)
    made = await desk.call("create_backup", adapter="mock")
    back = await desk.call("restore_backup", adapter="mock", backup_path="x")
    assert "SIMULATED" in made["message"]
    assert "SIMULATED" in back["message"]
    assert tree(desk.root) == before
    assert Backups(desk.settings.paths.backups_dir).listing() == []
