"""Whoever watches a task at a terminal answers its agent's questions there: real commands on a real terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_tasks import _json, repo

__all__ = ["repo"]  # the fixture

SECONDS = 100


def _watched(place: Path, prompt: str, typed: list[bytes]) -> tuple[str, int]:
    """Add a task and watch it on a terminal, typing an answer at each question."""
    master, slave = os.openpty()
    words = ["tasks", "add", prompt, "--agent", "sim", "--retries", "0", "--watch"]
    process = subprocess.Popen(
        [sys.executable, "-m", "proctor", *words], cwd=place, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    text, answered = b"", 0
    try:
        while answered < len(typed) or process.poll() is None:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            text += part
            if text.count(b"[l]ater [l]:") > answered and answered < len(typed):
                os.write(master, typed[answered])
                answered += 1
        process.wait(SECONDS)
    finally:
        process.kill()
        os.close(master)
    return text.decode(errors="replace"), process.returncode


@pytest.mark.slow
def test_a_watched_agents_questions_are_answered_inline_and_granted(repo: Path) -> None:
    """Yes for the task covers the second question of its class; a no with its reason reaches the agent."""
    ask = '{{"ask":{{"tool":"Bash","input":{{"command":"{}"}}}}}}'
    steps = [ask.format(one) for one in ("deploy staging a", "deploy staging b", "deploy live")]
    prompt = f'Go\nSCRIPT:{{"steps":[{",".join(steps)}]}}'
    text, code = _watched(repo, prompt, [b"t\n", b"n\nnot on Friday\n"])
    assert code == 0, text
    assert text.count("[l]ater [l]:") == 2
    assert "runs: deploy staging a" in text
    assert "denied: a person said no: not on Friday" in " ".join(text.split())  # the terminal wraps at words
    (line,) = _json(repo, "inbox", "--grants")
    assert line["class_key"] == "command:no-rule:deploy staging"
    assert _json(repo, "inbox") == []
