"""What is printed fits the terminal, loses nothing in a pipe, and is plain where no colour is wanted."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli import output
from proctor.cli.output import fold, print_table

WORDS = st.lists(st.text("abcdefg-/.", min_size=1, max_size=30), min_size=1, max_size=12).map(" ".join)
ROWS = st.lists(st.tuples(st.text("abc", max_size=20), WORDS, WORDS), max_size=4)


def _typed(argv: list[str], environ: dict[str, str], wide: int = 80) -> str:
    """What a terminal of that many columns shows of a command."""
    mine, its = pty.openpty()
    termios.tcsetwinsize(its, (24, wide))
    child = subprocess.Popen(argv, stdin=its, stdout=its, stderr=its, env=environ)
    os.close(its)
    said = b""
    while True:
        try:
            piece = os.read(mine, 65_536)
        except OSError:  # Linux says so when the last one at the other end has left
            break
        if not piece:
            break
        said += piece
    os.close(mine)
    assert child.wait(60) == 0, said
    return said.decode().replace("\r\n", "\n")


def _environ(home: Path, **more: str) -> dict[str, str]:
    wanted = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}
    return wanted | {"OLLAMA_HOST": "127.0.0.1:9"} | more


@pytest.mark.parametrize("command", ["doctor", "agents", "tools list", "rules list", "config", "status"])
def test_lists_fit_eighty_columns(command: str, home: Path) -> None:
    """No line is longer than the terminal, except for a path or command that must stay in one piece."""
    argv = [sys.executable, "-m", "proctor", *command.split()]
    for line in _typed(argv, _environ(home, NO_COLOR="1")).splitlines():
        pieces = line.replace("`", " ").split()
        assert len(line) <= 80 or "`" in line or max(map(len, pieces)) > 40, line


def test_colours_are_left_out_where_nobody_wants_them(home: Path) -> None:
    """A terminal gets colours; with NO_COLOR, or a terminal that knows none, not one escape."""
    argv = [sys.executable, "-m", "proctor", "doctor"]
    assert "\x1b[" in _typed(argv, _environ(home))
    assert "\x1b" not in _typed(argv, _environ(home, NO_COLOR="yes"))
    assert "\x1b" not in _typed(argv, _environ(home, TERM="dumb"))


@given(ROWS, st.integers(40, 120))
def test_a_table_fits_and_loses_no_letter(rows: list[tuple[str, ...]], wide: int) -> None:
    """Whatever the cells hold: every line fits, and every letter of every cell is there, in its order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "columns", lambda: wide)
        lines: list[str] = []
        patch.setattr(click, "echo", lines.append)
        print_table(("A", "B", "C"), rows)
    assert all(len(line) <= wide for line in lines)
    letters = sorted("".join("".join(row) for row in [("A", "B", "C"), *rows]).replace(" ", ""))
    assert sorted("".join(lines).replace(" ", "")) == letters


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a row is one line, however long, so that grep and awk can be used."""
    print_table(("NAME", "WHAT"), [("a", "word " * 60), ("b", "c")])
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert fold("word " * 60, 2) == ["  " + "word " * 60]


def test_a_command_in_backticks_stays_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be copied is not broken over two lines."""
    monkeypatch.setattr(output, "columns", lambda: 40)
    lines = fold("Install it with `npm install -g @example/some-agent` and log in once.", 6)
    assert "      `npm install -g @example/some-agent`" in "\n".join(lines)
    assert all(line.startswith("      ") for line in lines)
