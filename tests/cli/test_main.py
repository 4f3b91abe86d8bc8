"""The command line's own guarantees: usage errors exit 2, failures are one sentence with the cure, `--debug` shows all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from proctor.cli.main import COMMANDS, cli, main


def _walk(command: click.Command, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name, sub in command.commands.items():
            found += _walk(sub, (*path, name))
    return found


def _all() -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(cli)
    return [
        each
        for name in COMMANDS
        if (command := cli.get_command(context, name)) is not None
        for each in _walk(command, (name,))
    ]


@pytest.mark.parametrize("path", [path for path, _ in _all()], ids=" ".join)
def test_unknown_flags_exit_2(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """A flag nobody knows is a usage error for every command, before anything happens."""
    assert main([*path, "--no-such-flag-anywhere"]) == 2
    assert "no-such-flag-anywhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "command"), _all(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_command_has_help(
    path: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` exits 0 and says what the command does."""
    assert main([*path, "--help"]) == 0
    assert command.help
    assert capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt command exits 2 and helps."""
    assert main(["stats"]) == 2
    assert "status" in capsys.readouterr().err


def test_a_failure_is_one_sentence_and_debug_shows_the_traceback(home: Path) -> None:
    """Without --debug one line and no traceback; with it the traceback."""
    command = [sys.executable, "-m", "proctor", "tasks", "show", "task_nobody"]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert plain.returncode == 4
    assert len(plain.stderr.strip().splitlines()) == 1
    assert "proctor tasks list" in plain.stderr
    loud = subprocess.run([*command, "--debug"], capture_output=True, text=True, timeout=60)
    assert "Traceback" in loud.stderr


def test_words_after_two_dashes_are_the_commands_own(capsys: pytest.CaptureFixture[str]) -> None:
    """`--debug` behind `--` is an argument, not our flag."""
    assert main(["completion", "--", "--debug"]) == 2
    assert "--debug" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_failure() -> None:
    """`proctor … | head -1` ends quietly."""
    line = f"{sys.executable} -m proctor completion bash | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell gets a script that calls proctor."""
    assert main(["completion", shell]) == 0
    assert "_PROCTOR_COMPLETE" in capsys.readouterr().out
