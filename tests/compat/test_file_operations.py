"""Seed 000's `file_operations`: the seed's names, real files, one gate; none of the origin's bugs."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest

from proctor.compat.file_operations import FileOperations
from proctor.compat.house import House
from proctor.gate.humans import NotHumanError
from proctor.store.tables import calls
from proctor.trace.reader import stream


@pytest.fixture
def files(users: House, project: Path) -> FileOperations:
    """The functions in the project."""
    return FileOperations(users)


def _tree(place: Path) -> dict[str, bytes]:
    return {str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()}


def test_read_write_and_list_as_the_seed_calls_them(files: FileOperations, project: Path) -> None:
    """Text as it is, parents made, entries with path, type, modified and size; empty content is content."""
    assert files.write_file("deep/er/note.txt", "grüße\n") is True
    assert files.read_file("deep/er/note.txt") == "grüße\n"
    assert files.write_file("empty.txt", "")
    assert files.read_file(project / "empty.txt") == ""
    found = {one["path"]: one for one in files.list_directory("deep")}
    assert {path: one["type"] for path, one in found.items()} == {
        "deep/er": "directory",
        "deep/er/note.txt": "file",
    }
    assert found["deep/er/note.txt"]["size"] == len("grüße\n".encode())
    assert [one["path"] for one in files.list_directory("deep", recursive=False)] == ["deep/er"]
    assert [one["path"] for one in files.list_directory("deep", max_depth=1)] == ["deep/er"]


def test_bytes_that_are_no_text_are_named(files: FileOperations, project: Path) -> None:
    """The marker of the origin, with path and size."""
    (project / "blob").write_bytes(b"\xff\xfe\x00")
    assert files.read_file("blob") == "[BINARY FILE: blob, Size: 3 bytes]"


def test_errors_are_the_built_in_ones(files: FileOperations, tmp_path: Path) -> None:
    """A missing file, a path that leads out, a workspace that is none."""
    with pytest.raises(FileNotFoundError, match=re.escape("File not found: nothing.txt")):
        files.read_file("nothing.txt")
    for path in ("../stolen.txt", str(tmp_path / "stolen.txt"), "/etc/passwd"):
        with pytest.raises(PermissionError):
            files.write_file(path, "x")
        with pytest.raises(PermissionError):
            files.read_file(path)
    with pytest.raises(FileNotFoundError, match="Workspace not found"):
        files.create_backup(tmp_path / "none")
    assert not (tmp_path / "stolen.txt").exists()


def test_item_3_and_4_a_restore_brings_every_byte_back(files: FileOperations, project: Path) -> None:
    """`.git` too; two backups within a second are two; what is no backup is not restored."""
    before = _tree(project)
    saved = files.create_backup(project)
    assert re.search(r"/project_\d{8}_\d{6}(_\d+)?$", saved)
    assert files.create_backup(project) != saved
    (project / "README.md").write_text("broken")
    (project / "left.txt").write_text("over")
    (project / ".git" / "HEAD").write_text("gone")
    assert files.restore_backup(saved, project) is True
    assert _tree(project) == before
    with pytest.raises((FileNotFoundError, PermissionError, ValueError)):
        files.restore_backup("/etc", project)
    assert _tree(project) == before


def test_every_function_is_a_call_through_the_gate(files: FileOperations, users: House) -> None:
    """A person's calls, with their events; nothing is written beside it."""
    files.write_file("a.txt", "x")
    files.read_file("a.txt")
    with users.app.database.read() as connection:
        rows = connection.execute(calls.select()).mappings().all()
    assert [(row["tool_name"], row["actor"], row["state"]) for row in rows] == [
        ("write_file", "human", "ended"),
        ("read_file", "human", "ended"),
    ]
    events = [event.event for event in stream(users.app.database, rows[0]["trace_id"])]
    assert events == ["tool_call_start", "tool_call_complete"]


async def test_item_6_can_be_called_inside_an_event_loop(files: FileOperations) -> None:
    """The seed calls them in its async handlers: beside the loop they do not freeze it."""
    assert files.write_file("a.txt", "x")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        assert await asyncio.to_thread(files.read_file, "a.txt") == "x"
        ticking.cancel()
    assert ticks > 1


def test_an_agent_is_no_person(files: FileOperations, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Proctor started for an agent does not act in the user's name."""
    monkeypatch.setenv("PROCTOR_RUN", "1")
    with pytest.raises(NotHumanError):
        files.write_file("a.txt", "x")
    assert not Path("a.txt").exists()


def test_item_7_broken_links_and_loops_do_not_stop_a_listing(files: FileOperations, project: Path) -> None:
    """Links are named and never followed."""
    (project / "broken").symlink_to("nowhere")
    (project / "loop").symlink_to(project)
    found = {one["path"]: one["type"] for one in files.list_directory(".")}
    assert (found["broken"], found["loop"]) == ("symlink", "symlink")
    assert not any(path.startswith(f"loop{os.sep}") for path in found)
