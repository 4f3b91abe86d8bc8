"""A project in a HOME of its own, and a house on its state."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.compat.house import House
from proctor.config import load_settings
from tests.support.supervisors import stop_supervisor

SETTINGS = "".join(
    f'[agents.{name}]\ndriver = "scripted"\n' for name in ("SOLACE", "FORGE", "ARCHITECT", "SENTINEL", "sim")
)


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the four agents of the seeds, scripted; the process stands in it."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "proctor.toml").write_text(SETTINGS)
    (place / "README.md").write_text("# A project\n")
    name = ["-c", "user.name=T", "-c", "user.email=t@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*name, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=place, check=True, timeout=60)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def users(project: Path) -> Iterator[House]:
    """The user's own state, as the commands see it; a supervisor that was started is stopped."""
    house = House(settings=load_settings(project))
    yield house
    house.close()
    stop_supervisor()
