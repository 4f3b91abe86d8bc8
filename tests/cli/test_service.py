"""`proctor service`: the files it generates, the way without a service manager, and an exact uninstall."""

from __future__ import annotations

import configparser
import json
import plistlib
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.main import main
from proctor.config import Paths, load_settings
from proctor.engine.service import MARK, plan
from proctor.protocol.errors import RefusedError, UnavailableError

SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/called"
case "$2" in is-active) echo active;; esac
"""


@pytest.fixture(autouse=True)
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose PATH has no service manager."""
    monkeypatch.chdir(home)
    monkeypatch.setenv("PATH", f"{home}/bin")
    monkeypatch.setattr(sys, "platform", "linux")
    (home / "bin").mkdir()
    return home


def _json(capsys: pytest.CaptureFixture[str], word: str) -> Any:
    assert main(["service", word, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def _unit(home: Path) -> Path:
    return home / "config" / "systemd" / "user" / "proctor.service"


def test_unit_runs_this_python_with_this_state_and_no_secret(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absolute interpreter, never leaves by itself, restarts on failure; keys of the shell stay outside."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-very-secret-value")
    monkeypatch.setenv("PROCTOR_LOG_LEVEL", "DEBUG")
    assert main(["service", "install"]) == 0
    text = _unit(place).read_text()
    assert "sk-very-secret-value" not in text
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.read_string(text)
    words = shlex.split(parsed["Service"]["ExecStart"])
    assert words == [sys.executable, "-m", "proctor", "supervisor", "--idle", "0", "--wait"]
    assert Path(words[0]).is_absolute()
    assert parsed["Service"]["Restart"] == "on-failure"
    for name in ("PATH", "PROCTOR_LOG_LEVEL", "XDG_STATE_HOME"):
        assert f'Environment="{name}=' in text
    assert _unit(place).stat().st_mode & 0o777 == 0o600


def test_without_a_manager_the_file_is_written_and_the_sentence_says_what_to_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Install, install again, status, uninstall, uninstall again; the directory is as before but for empty folders."""
    assert main(["service", "install"]) == 0
    assert "systemctl is not installed" in (text := capsys.readouterr().out)
    assert "systemctl --user daemon-reload && systemctl --user enable --now proctor.service" in text
    assert _json(capsys, "install")["changed"] is False
    found = _json(capsys, "status")
    assert (found["installed"], found["current"], found["supervisor_pid"]) == (True, True, None)
    assert found["state"].startswith("unknown")
    assert _json(capsys, "uninstall")["changed"] is True
    assert [path for path in (place / "config").rglob("*") if path.is_file()] == []
    assert _json(capsys, "uninstall")["changed"] is False
    assert main(["service", "status"]) == 0
    assert "Not installed" in capsys.readouterr().out


def test_manager_is_called_in_order(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reload before enable; disable before the file goes, reload after it."""
    program = place / "bin" / "systemctl"
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    assert _json(capsys, "install")["loaded"] is True
    assert _json(capsys, "status")["state"] == "active"
    assert _json(capsys, "uninstall")["todo"] == ""
    assert (place / "called").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now proctor.service",
        "--user is-active proctor.service",
        "--user disable --now proctor.service",
        "--user daemon-reload",
    ]


def test_file_of_somebody_else_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither overwritten nor removed."""
    _unit(place).parent.mkdir(parents=True)
    _unit(place).write_text("[Unit]\n")
    assert main(["service", "install"]) == 5
    assert main(["service", "uninstall"]) == 5
    assert _unit(place).read_text() == "[Unit]\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("PROCTOR_DATABASE_URL", "postgresql://me:topsecret@host/name"), ("PROCTOR_TRACE_KEY", "ab" * 32)],
)
def test_secret_is_never_written(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """It is refused by name with the cure, and nothing is written."""
    monkeypatch.setenv(name, value)
    assert main(["service", "install"]) == 5
    assert name in (error := capsys.readouterr().err)
    assert value not in error
    assert not _unit(place).exists()


def test_launchd_agent_is_a_valid_plist(place: Path) -> None:
    """Program, environment and restart rule, read back by the standard library."""
    settings = load_settings(Path("/"))
    made = plan(settings.environ, settings.paths, platform="darwin", python="/opt/python")
    assert made.path == place / "Library" / "LaunchAgents" / "dev.proctor.supervisor.plist"
    content = plistlib.loads(made.content.encode())
    assert content["ProgramArguments"][:4] == ["/opt/python", "-m", "proctor", "supervisor"]
    assert content["KeepAlive"] == {"SuccessfulExit": False}
    assert content["EnvironmentVariables"]["XDG_STATE_HOME"] == str(place / "state")
    assert MARK in made.content
    assert "launchctl is not installed" in made.install().reason
    assert made.uninstall().changed
    assert not made.path.exists()


def test_other_platforms_say_so(place: Path) -> None:
    """With the command that does without."""
    settings = load_settings(Path("/"))
    with pytest.raises(UnavailableError, match="supervisor --idle 0"):
        plan(settings.environ, settings.paths, platform="win32", python="python")


PATHS = Paths(Path("/s"), Path("/d"), Path("/c"), Path("/r"))


@given(
    st.text(
        st.characters(exclude_characters="\r\0", exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.just("\n")
    )
)
def test_any_value_stays_one_word_of_one_line(value: str) -> None:
    """Quotes, specifiers and line ends in a path cannot add a line or a setting to the unit."""
    environ = {"HOME": "/h", "PATH": f"/bin{value}"}
    try:
        lines = plan(environ, PATHS, platform="linux", python="/py").content.splitlines()
    except RefusedError:
        return  # it looked like a password
    (line,) = [line for line in lines if line.startswith("Environment=")]
    inside = line.removeprefix('Environment="').removesuffix('"')
    undone = inside.replace("%%", "%").encode("latin-1", "backslashreplace").decode("unicode_escape")
    assert undone == f"PATH=/bin{value}"


def test_unknown_flag_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2."""
    assert main(["service", "install", "--system"]) == 2
