"""Runs the `console` blocks of a page as a reader would: each block in one shell, each answer held against the page.

A line that begins with `$ ` is typed; the lines below it are what must come, `…` standing for anything. A block without such
lines only has to succeed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Step", "console_blocks", "reader", "run_block"]

_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One line that is typed, and what the page says comes of it."""

    command: str
    answer: str


def console_blocks(page: Path) -> list[list[Step]]:
    """The blocks of a page."""
    return [_steps(text) for text in _BLOCK.findall(page.read_text())]


def _steps(text: str) -> list[Step]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"a block begins without a command: {parts[0]!r}"
    return [Step(command, answer) for command, _, answer in (part.partition("\n") for part in parts[1:])]


def reader(home: Path) -> dict[str, str]:
    """The environment of somebody who reads the page: a HOME, and `proctor` and `python` on the PATH."""
    programs = str(Path(sys.executable).parent)
    return {"HOME": str(home), "PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin", "LANG": "C.UTF-8"}


def run_block(steps: list[Step], cwd: Path, env: Mapping[str, str], seconds: float = 100) -> int:
    """Type a block's lines into one shell and hold every answer against the page; gives how many were typed."""
    lines = []
    for number, step in enumerate(steps):
        lines += [step.command, f'printf "\\n<{number}:%s>\\n" "$?"']
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=cwd,
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
    )
    rest = done.stdout
    for number, step in enumerate(steps):
        found = re.search(rf"^<{number}:(\d+)>\n", rest, re.MULTILINE)
        assert found is not None, f"{step.command}: {done.stdout}{done.stderr}"
        said, rest = rest[: found.start()], rest[found.end() :]
        assert found[1] == "0", f"{step.command} ended with {found[1]}: {said}{done.stderr}"
        if step.answer.strip():
            assert _fits(step.answer, said), f"{step.command}\nsaid:\n{said}\nthe page says:\n{step.answer}"
    return len(steps)


def _fits(wanted: str, said: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in wanted.strip().split("…"))
    return re.fullmatch(pattern, said.strip(), re.DOTALL) is not None
