"""`proctor profiles`: told in plain words, chosen for this repository, refused when unknown."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from proctor.config import load_settings


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a profile of its own."""
    place = home / "project"
    place.mkdir()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    (place / "proctor.toml").write_text(
        '[profiles.night]\nbase = "unattended"\n[profiles.night.limits]\nusd = 5\n'
    )
    monkeypatch.chdir(place)
    return place


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_profiles_are_listed_with_the_active_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six built in, then the project's own; one star."""
    found = _json(capsys, "profiles", "list")
    names = [one["name"] for one in found]
    assert names == ["standard", "careful", "unattended", "enterprise", "smb", "technical", "night"]
    assert [one["name"] for one in found if one["active"]] == ["standard"]
    assert main(["profiles"]) == 0
    assert "Edits in a worktree" in capsys.readouterr().out


def test_profile_is_told_in_plain_words(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What asks, what is free, what it may use; an unknown name is wrong usage."""
    assert main(["profiles", "show", "enterprise"]) == 0
    shown = capsys.readouterr().out
    assert "Tools that execute or propose ask first." in shown
    assert "200 calls" in shown
    assert "salesforce, dynamics" in shown
    assert "is denied" in shown
    assert "$5.00" in " ".join(_json(capsys, "profiles", "show", "night")["says"])
    assert main(["profiles", "show", "enterprize"]) == 2
    assert "Did you mean 'enterprise'" in capsys.readouterr().err


def test_profile_is_chosen_for_this_checkout(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written into the local file, which git ignores; other lines and the file's mode stay."""
    local = project / "proctor.local.toml"
    assert _json(capsys, "profiles", "use", "careful")["active"] == "careful"
    assert stat.S_IMODE(local.stat().st_mode) == 0o600
    local.write_text('# mine\nlog_level = "DEBUG"\nprofile = "careful"\n\n[limits]\ncalls = 7\n')
    local.chmod(0o640)
    assert main(["profiles", "use", "night"]) == 0
    assert local.read_text() == '# mine\nlog_level = "DEBUG"\nprofile = "night"\n\n[limits]\ncalls = 7\n'
    assert stat.S_IMODE(local.stat().st_mode) == 0o640
    assert load_settings(project).profile == "night"
    ignored = subprocess.run(["git", "status", "--porcelain"], cwd=project, capture_output=True, text=True)
    assert "local" not in ignored.stdout
    assert [path.name for path in project.glob(".proctor*")] == []
    assert main(["profiles", "use", "nothing"]) == 2
    assert load_settings(project).profile == "night"


def test_variable_that_wins_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment goes before the file; the command does not pretend otherwise."""
    monkeypatch.setenv("PROCTOR_PROFILE", "smb")
    assert main(["profiles", "use", "careful"]) == 0
    assert "the environment says smb" in capsys.readouterr().out
