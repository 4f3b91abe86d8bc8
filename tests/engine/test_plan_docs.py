"""The examples of docs/explain/plans.md run as they stand there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.app import App
from proctor.config import load_settings
from proctor.engine.plan_file import read_plan
from proctor.protocol.failures import RETRIES, ErrorPropagation
from proctor.store.database import Database
from tests.engine.plan_world import PlanWorld, step
from tests.layers.tree import ROOT
from tests.support.console import console_blocks, reader, run_block

PAGE = (ROOT / "docs" / "explain" / "plans.md").read_text()


def _block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(("language", "name", "steps"), [("toml", "plan.toml", 3), ("json", "plan.json", 1)])
async def test_plan_files_of_the_page_run(tmp_path: Path, language: str, name: str, steps: int) -> None:
    """Both forms are read and run with the real tools; the unknown one is simulated."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    (workspace / "proctor.toml").write_text("")
    (workspace / "README.md").write_text("# A project\n")
    (workspace / name).write_text(_block(language))
    app = App(load_settings(workspace, {"HOME": str(tmp_path)}))
    try:
        result = await app.plans.execute_plan(read_plan(workspace / name), workspace=workspace)
    finally:
        app.close()
    assert result.success, result.failure_context
    assert len(result.results) == steps
    assert [one["simulated"] for one in result.results] == [False, False, True][:steps]
    assert (workspace / "SUMMARY.md").exists() is (language == "toml")


@pytest.mark.slow
def test_commands_of_the_page_run(tmp_path: Path) -> None:
    """As a reader types them, in a project with the page's own file; what the page shows comes."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "proctor.toml").write_text("")
    (project / "README.md").write_text("# A project\n")
    (project / "plan.toml").write_text(_block("toml"))
    env = reader(tmp_path)
    (block,) = console_blocks(ROOT / "docs" / "explain" / "plans.md")
    try:
        run_block(block, project, env)
    finally:
        subprocess.run(
            ["bash", "-c", "proctor supervisor stop"], cwd=project, env=env, check=False, timeout=60
        )
    assert (project / "SUMMARY.md").read_text() == "A project.\n"


def test_page_has_no_example_that_nobody_runs() -> None:
    """Every fenced block is one of those above."""
    assert sorted(re.findall(r"^```(\w*)$", PAGE, re.MULTILINE)) == [
        *[""] * 4,
        "console",
        "json",
        "python",
        "toml",
    ]


def test_python_of_the_page_runs(tmp_path: Path) -> None:
    """As a script of its own, in a temporary state."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _block("python")],
        capture_output=True,
        text=True,
        timeout=100,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


async def test_fields_the_page_names_are_there(sqlite_database: Database, home: Path) -> None:
    """Every field of the table of the failure context, and every policy."""
    world = PlanWorld(sqlite_database, home)
    try:
        result = await world.execute(step("act"), profile="enterprise")
    finally:
        world.close()
    assert result.failure_context is not None
    named = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| .* \|$", PAGE.split("says why:")[1], re.MULTILINE)
    fields = {field for row in named for field in re.findall(r"`(\w+)`", row)}
    assert fields <= set(result.failure_context)
    assert len(fields) >= 10
    for word in [*ErrorPropagation, *RETRIES]:
        assert f"`{word}`" in PAGE
    assert json.loads(_block("json"))["plan_id"]
