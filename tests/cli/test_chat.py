"""`proctor chat` as a user types it: once, piped, talking in a terminal, asked in place, gone on with elsewhere."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.testing.model_server import ModelServer
from tests.support.supervisors import stop_supervisor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTINGS = """
[agents.SOLACE.api]
base_url = "{url}/v1"
"""
RULE = {"call": {"name": "add_architecture_rule", "args": {"feature_type": "billing"}}}


@pytest.fixture
def models() -> Iterator[ModelServer]:
    """Models that follow the prompt's script."""
    with ModelServer() as running:
        yield running


@pytest.fixture
def project(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: ModelServer
) -> Iterator[Path]:
    """A project whose SOLACE asks the scripted models; its supervisor is stopped afterwards."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.txt").write_text("hello\n")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-simulated-0001")
    (place / "proctor.toml").write_text(SETTINGS.format(url=models.url))
    yield place
    stop_supervisor()


def _run(place: Path, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    feed: dict[str, Any] = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
    return subprocess.run(
        [sys.executable, "-m", "proctor", *words],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=100,
        **feed,
    )


def script(*steps: dict[str, Any]) -> str:
    """A prompt for the scripted models."""
    return f"Please. FAKE:{json.dumps({'steps': steps})}"


def test_a_message_is_answered_once_and_the_chat_can_go_on(project: Path) -> None:
    """The answer alone on standard output; JSON tells tokens and money; what was said is remembered."""
    read = {"call": {"name": "read_file", "args": {"path": "a.txt"}}}
    done = _run(project, "chat", script(read, {"text": "It says hello."}))
    assert (done.returncode, done.stdout) == (0, "It says hello.\n")
    assert "read_file path='a.txt'" in done.stderr
    (listed,) = json.loads(_run(project, "chat", "--list", "--json").stdout)
    assert (listed["state"], listed["agent"], listed["messages"]) == ("idle", "SOLACE", 4)
    again = _run(
        project, "chat", "--resume", listed["chat_id"][-8:], "--json", given=script({"text": "again"})
    )
    told = json.loads(again.stdout)
    assert (told["message"], told["chat_id"], told["outcome"]) == ("again", listed["chat_id"], "answered")
    assert told["usage"]["cost_usd"] > 0
    assert listed["chat_id"] in _run(project, "chat", "--list").stdout


def test_a_failure_is_said_with_its_cure_and_an_exit_code(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 for a model that fails, 6 without a key, 4 for an agent nobody knows."""
    assert "Check OPENAI_API_KEY" in _run(project, "chat", script({"http": 401})).stderr
    assert _run(project, "chat", script({"http": 401})).returncode == 1
    assert _run(project, "chat", "--agent", "nobody", "hi").returncode == 4
    monkeypatch.delenv("OPENAI_API_KEY")
    keyless = _run(project, "chat", "hi")
    assert keyless.returncode == 6
    assert "Set OPENAI_API_KEY in the environment or in .env." in keyless.stderr


def test_an_answer_in_the_inbox_lets_the_chat_go_on_by_itself(project: Path) -> None:
    """Exit code 3, then `proctor approve`, and the supervisor goes on with the chat, once."""
    parked = _run(project, "chat", "--json", script(RULE, {"text": "The rule is there."}))
    told = json.loads(parked.stdout)
    assert (parked.returncode, told["outcome"]) == (3, "parked")
    refused = _run(project, "chat", "--resume", told["chat_id"], "never mind")
    assert refused.returncode == 5
    assert told["approvals"][0] in refused.stderr
    assert _run(project, "approve", told["approvals"][0]).returncode == 0
    _until(lambda: json.loads(_run(project, "chat", "--list", "--json").stdout)[0]["state"] == "idle")
    ended = _run(project, "chat", "--resume", told["chat_id"], "--json")
    assert json.loads(ended.stdout)["message"] == "The rule is there."
    rules = json.loads(
        _run(project, "tools", "call", "search_architecture_rules", "keyword=billing", "--json").stdout
    )
    assert json.dumps(rules).count('"feature_type": "billing"') == 1


def _until(fact: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# ── in a terminal ─────────────────────────────────────────────────────────────────────────────────────────────────


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, place: Path, *words: str) -> None:
        self.main, child = pty.openpty()
        self.program = subprocess.Popen(
            [sys.executable, "-m", "proctor", *words],
            cwd=place,
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
            preexec_fn=_own_terminal,  # noqa: PLW1509 - Ctrl-C reaches who controls the terminal
        )
        os.close(child)
        self.seen = ""

    def expect(self, text: str, seconds: float = 60.0) -> str:
        """Read until the text comes; what stood before it."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come; seen: {self.seen!r}"
            if select.select([self.main], [], [], left)[0]:
                self.seen += os.read(self.main, 65536).decode(errors="replace")
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.main, text.encode())

    def close(self) -> int:
        """Wait for its end."""
        try:
            return self.program.wait(60)
        finally:
            self.program.kill()
            os.close(self.main)


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_talking_in_a_terminal_asks_in_place_and_ctrl_c_stops_only_the_answer(
    project: Path, models: ModelServer
) -> None:
    """Streamed text, tools shown, a question answered with y, a hanging answer stopped, left with Ctrl-D."""
    terminal = Terminal(project, "chat")
    terminal.expect("you> ")
    terminal.type("FAKE:" + json.dumps({"steps": [RULE, {"text": "Added, master."}]}) + "\n")
    terminal.expect("Allow it?")
    terminal.type("y\n")
    terminal.expect("Added, master.")
    terminal.expect("you> ")
    before = len(models.requests)
    terminal.type('FAKE:{"steps":[{"hang":true}]}\n')
    _until(lambda: len(models.requests) > before)
    terminal.type("\x03")
    terminal.expect("(stopped)")
    terminal.expect("you> ")
    terminal.type('FAKE:{"steps":[{"text":"\\u001b[31mStill \\u0007here"}]}\n')
    shown = terminal.expect("you> ")
    assert "�[31mStill �here" in shown
    terminal.type("\x04")
    terminal.expect("proctor chat --resume chat_")
    assert terminal.close() == 0
