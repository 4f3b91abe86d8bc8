"""The command line's own guarantees: usage errors exit 2, failures are one sentence with the cure, `--debug` shows all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

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


@pytest.mark.parametrize(
    "group", ["agents", "backup", "fixes", "plan", "profiles", "rules", "tasks", "tools"]
)
def test_a_group_that_can_list_does_so_without_a_command(
    group: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`proctor tasks --json` is `proctor tasks list --json`; a misspelt command is still named as one."""
    monkeypatch.chdir(home)
    assert main([group, "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert main([group, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == listed
    assert main([group]) == 0
    capsys.readouterr()
    assert main([group, "lits"]) == 2
    assert "lits" in capsys.readouterr().err


def test_bare_proctor_takes_json_and_a_command_takes_its_own(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`proctor --json` is the status; in front of a command the flag is refused instead of forgotten."""
    monkeypatch.chdir(home)
    assert main(["--json"]) == 0
    assert "needs_you" in json.loads(capsys.readouterr().out)
    assert main(["--json", "tasks"]) == 2
    assert "proctor tasks … --json" in capsys.readouterr().err


def test_a_place_that_cannot_be_used_is_named_with_its_cure(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system refuses is unavailable (6) with the place and the cure, and never called a defect."""
    (home / "file").write_text("")
    (home / "repo").mkdir()
    monkeypatch.chdir(home / "repo")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "file" / "below"))
    assert main(["backup", "create"]) == 6
    said = capsys.readouterr().err
    assert str(home / "file") in said
    assert "XDG_DATA_HOME" in said
    assert "defect" not in said


@pytest.mark.parametrize("words", ["status", "status --json", "tools list", "doctor"])
def test_an_output_that_was_closed_is_no_defect(words: str, home: Path) -> None:
    """`proctor … >&-` does what it does and says nothing."""
    line = f"{sys.executable} -m proctor {words} >&-"
    done = subprocess.run(["bash", "-c", line], cwd=home, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", ["status", "status --json", "tools list"])
def test_an_output_that_is_full_is_told_once(words: str, home: Path) -> None:
    """One sentence with the cure and exit code 6, and no complaint of the interpreter behind it."""
    if not Path("/dev/full").exists():
        assert sys.platform != "linux", "Linux has /dev/full"
        return
    line = f"{sys.executable} -m proctor {words} >/dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=home, capture_output=True, text=True, timeout=100)
    assert done.returncode == 6
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("number", "cure"), [(errno.ENOSPC, "gc"), (errno.EROFS, "doctor"), (errno.EMFILE, "ulimit")]
)
def test_each_refusal_of_the_system_has_its_cure(
    number: int, cure: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a read-only one and too many open files are not the same trouble."""

    def refused(_words: list[str]) -> int:
        raise OSError(number, os.strerror(number), "/some/place")

    monkeypatch.setattr("proctor.cli.main._run", refused)
    assert main(["version"]) == 6
    said = capsys.readouterr().err
    assert "/some/place is not available" in said
    assert cure in said


@pytest.mark.parametrize(("typed", "offered"), [("tasks", {"add", "list"}), ("trace", {"show", "verify"})])
def test_a_shell_completes_the_commands_of_a_group(typed: str, offered: set[str]) -> None:
    """A group with a default still offers all its commands to the shell."""
    asked = ShellComplete(cli, {}, "proctor", "_PROCTOR_COMPLETE").get_completions([typed], "")
    assert offered <= {one.value for one in asked}


def test_every_option_says_what_it_does() -> None:
    """No option is left to be guessed, and every command's line fits `proctor --help` at 80 columns."""
    silent = [
        f"proctor {' '.join(path)} {option.opts[0]}"
        for path, command in _all()
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == []
    wide = max(map(len, COMMANDS)) + 6
    assert [name for name, entry in COMMANDS.items() if len(entry[2]) + wide > 80] == []
