"""docs/howto/seed-clients.md: every command of the page is run as it stands, with free ports in place of the fixed ones."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.layers.tree import ROOT
from tests.support.console import Step, console_blocks, reader, run_block

pytestmark = pytest.mark.timeout(300)
BLOCKS = console_blocks(ROOT / "docs" / "howto" / "seed-clients.md")


def _is_server(block: list[Step]) -> bool:
    return any(step.command.startswith("proctor serve") for step in block)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A reader's HOME with a project in it."""
    project = tmp_path / "my-project"
    project.mkdir()
    (project / "proctor.toml").write_text("")
    (project / "main.py").write_text("print('hi')\n")
    return tmp_path


@contextmanager
def _serving(block: list[Step], home: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Start the page's server on free ports; gives what stands in the page and what it is here."""
    *before, serve = block
    script = "\n".join([*(step.command for step in before), f"exec {serve.command} --port 0 --ws-port 0"])
    child = subprocess.Popen(
        ["bash", "-c", script], cwd=home, env=dict(env), stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        said = "".join(child.stdout.readline() for _ in serve.answer.strip().splitlines())
        found = re.findall(r"(?:http|ws)://127\.0\.0\.1:\d+", said)
        shown = re.findall(r"(?:http|ws)://127\.0\.0\.1:\d+", serve.answer)
        assert _plain(said) == _plain(serve.answer.replace("/home/me", str(home)))
        yield dict(zip(shown, found, strict=True))
    finally:
        child.send_signal(signal.SIGINT)
        assert child.wait(60) in {0, 130}


def _plain(text: str) -> str:
    return re.sub(r":\d+\b", ":PORT", text).strip()


def _here(step: Step, addresses: Mapping[str, str]) -> Step:
    """The page's line with this server's ports; clients hear theirs by --url."""
    if not step.command.startswith("python examples/"):
        return step
    return replace(step, command=f"{step.command} --url {addresses['ws://127.0.0.1:8765']}")


def _clients() -> list[tuple[list[Step], list[Step]]]:
    """Each block that needs a server, with the one that stands before it on the page."""
    found, serving = [], BLOCKS[0]
    for block in BLOCKS:
        if _is_server(block):
            serving = block
        elif not block[0].command.startswith("cd ~"):
            found.append((serving, block))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("server", "block"), _clients(), ids=["token", "rest", "none"])
def test_clients_of_the_page_work_with_its_server(place: Path, server: list[Step], block: list[Step]) -> None:
    """With and without a token: both clients, and REST by the dispatcher."""
    env = reader(place)
    with _serving(server, place, env) as addresses:
        assert run_block([_here(step, addresses) for step in block], ROOT, env) == len(block)


@pytest.mark.slow
def test_bare_names_of_the_page_work(place: Path) -> None:
    """The blocks that need no server."""
    alone = [block for block in BLOCKS if not _is_server(block) and block[0].command.startswith("cd ~")]
    for block in alone:
        run_block(block, place, reader(place))
    assert len(alone) + len(_clients()) + sum(map(_is_server, BLOCKS)) == len(BLOCKS)
    assert [server[-1].command for server, _ in _clients()] == [
        *["proctor serve"] * 2,
        "proctor serve --auth none",
    ]


@pytest.mark.slow
def test_without_the_token_the_pages_clients_are_refused(place: Path) -> None:
    """The page's commands without their token end with 1, and say where it lies."""
    server = next(block for block in BLOCKS if _is_server(block))
    env = reader(place)
    with _serving(server, place, env) as addresses:
        words = f"python examples/seed_clients/websocket_client.py --url {addresses['ws://127.0.0.1:8765']}"
        done = subprocess.run(
            ["bash", "-c", words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1
    assert "401" in done.stderr
