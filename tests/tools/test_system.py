"""The house itself: schema, health and scan, on both databases."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError
from proctor.store.tables import metadata, repo_file_cache
from tests.support.rows import rows_of
from tests.tools.conftest import Desk


async def test_schema_of_a_table_is_told_alike_on_both_databases(each_desk: Desk) -> None:
    """Columns, keys and references; the seeds' `schema` is the answer's word."""
    got = await each_desk.call("query_schema", table_name="attempts")
    schema = got["schema"]
    assert got["database"] == each_desk.database.dialect
    assert schema["primary_key"] == ["task_id", "attempt"]
    columns = {one["name"]: one for one in schema["columns"]}
    assert set(columns) == set(metadata.tables["attempts"].c.keys())
    assert (columns["task_id"]["nullable"], columns["error"]["nullable"]) == (False, True)
    assert columns["branch"]["type"] == "VARCHAR(255)"
    assert [one["referred_table"] for one in schema["foreign_keys"]] == ["task_queue"]
    assert [one["name"] for one in schema["indexes"]] == ["ix_attempts_open"]


@pytest.mark.parametrize("name", sorted(metadata.tables))
async def test_every_table_has_a_schema(desk: Desk, name: str) -> None:
    """No table of ours makes the tool fail."""
    got = await desk.call("query_schema", table=name)
    assert [one["name"] for one in got["schema"]["columns"]] == list(metadata.tables[name].c.keys())


async def test_seed_names_and_the_view_are_known(each_desk: Desk) -> None:
    """`agent_status` is a view; the origin's names lead to ours."""
    for name in ("agent_status", "agent_registry"):
        schema = (await each_desk.call("query_schema", table_name=name))["schema"]
        assert schema["kind"] == "view"
        assert "success_rate" in [one["name"] for one in schema["columns"]]
    names = (await each_desk.call("query_schema"))["tables"]
    assert {"task_queue", "agent_status", "task_history", "architecture_rules"} <= set(names)


@pytest.mark.parametrize(
    "name", ["nothing", "sqlite_master", "pg_shadow", "x; DROP TABLE events", "\0", "events--"]
)
async def test_other_tables_are_not_there(each_desk: Desk, name: str) -> None:
    """Only our own tables, so nothing of the server or the engine shows."""
    with pytest.raises(NotFoundError):
        await each_desk.call("query_schema", table_name=name)


async def test_system_says_that_it_runs(each_desk: Desk) -> None:
    """The seeds' words, and what was checked."""
    got = await each_desk.call("verify_system_running")
    assert (got["status"], got["checks"]["database"]) == ("running", "ok")
    assert got["timestamp"].startswith("20")
    assert got["message"]


async def test_scan_fills_the_cache_and_keeps_it_true(each_desk: Desk) -> None:
    """Tracked extensions, seeds' ignore list, hash and lines; a second scan touches only what changed."""
    desk = each_desk
    for path in (
        "node_modules/x.js",
        "bin/b.py",
        "dist/d.css",
        ".venv/lib/v.py",
        "web/obj/o.ts",
        "photo.png",
    ):
        (desk.root / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.root / path).write_text("x")
    (desk.root / "Main.GO").write_text("a\nb\n")
    (desk.root / os.fsdecode(b"odd\xff.py")).write_text("x")
    (desk.root / "broken.md").symlink_to("nowhere")
    got = await desk.call("scan_repository")
    assert (got["status"], got["changed"], got["removed"]) == ("complete", 3, 0)
    rows = {row["file_path"]: row for row in rows_of(desk.database, sa.select(repo_file_cache))}
    assert set(rows) == {"Main.GO", "README.md", "src/app.py"}
    assert rows["Main.GO"]["line_count"] == 2
    assert rows["Main.GO"]["file_type"] == ".go"
    assert rows["src/app.py"]["content_hash"] == hashlib.sha256(b"print('hello')\n").hexdigest()
    assert (await desk.call("scan_repository"))["changed"] == 0
    (desk.root / "Main.GO").unlink()
    (desk.root / "README.md").write_text("other\n")
    again = await desk.call("scan_repository")
    assert (again["changed"], again["removed"]) == (1, 1)
    assert (await desk.call("scan_repository", fresh=True))["changed"] == 2


async def test_scan_in_git_leaves_out_what_git_ignores(desk: Desk) -> None:
    """git's own rules hold, and the seeds' list on top of them."""
    (desk.root / ".gitignore").write_text("secret.py\n")
    (desk.root / "secret.py").write_text("x")
    (desk.root / "bin").mkdir()
    (desk.root / "bin" / "tool.py").write_text("x")
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(desk.root)], check=True)
    await desk.call("scan_repository")
    paths = [row["file_path"] for row in rows_of(desk.database, sa.select(repo_file_cache))]
    assert sorted(paths) == ["README.md", "src/app.py"]


async def test_mock_scans_nothing(desk: Desk) -> None:
    """Simulated, and said so."""
    assert "SIMULATED" in (await desk.call("scan_repository", adapter="mock"))["message"]
    assert "SIMULATED" in (await desk.call("verify_system_running", adapter="mock"))["message"]
    assert (await desk.call("query_schema", adapter="mock", table_name="x"))["simulated"] is True
    assert rows_of(desk.database, sa.select(repo_file_cache)) == []
