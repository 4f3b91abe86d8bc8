"""The SDK's own client against a real server, over HTTP and over standard input and output, in both protocol eras."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.server.conftest import Door

__all__ = ["ERAS", "Desk", "body", "over_http"]

ERAS = ("legacy", "2026-07-28")
CLIENT = types.Implementation(name="test-client", version="1")


@asynccontextmanager
async def over_http(
    door: Door, era: str, *, query: str = "", headers: dict[str, str] | None = None
) -> AsyncIterator[Client]:
    """A client of a server in a thread."""
    async with (
        create_mcp_http_client(headers=door.headers if headers is None else headers) as http,
        Client(
            streamable_http_client(f"{door.http}/mcp{query}", http_client=http), mode=era, client_info=CLIENT
        ) as client,
    ):
        yield client


@dataclass
class Desk:
    """A repository and a HOME, and `proctor mcp` in it."""

    place: Path
    settings: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work.joinpath(".git").mkdir(parents=True)
        self.home.mkdir()
        (self.work / "proctor.toml").write_text(self.settings)

    @property
    def work(self) -> Path:
        """The repository."""
        return self.place / "work"

    @property
    def home(self) -> Path:
        """The user's own."""
        return self.place / "home"

    @property
    def environ(self) -> dict[str, str]:
        """What a program of this user sees."""
        own = {"HOME": str(self.home), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.home)}
        return {**own, **self.env}

    @property
    def pid_file(self) -> Path:
        """Where the server's own pid stands."""
        return self.place / "pid"

    @asynccontextmanager
    async def client(self, era: str, *words: str) -> AsyncIterator[Client]:
        """A client that started a server of its own."""
        program = f'echo $$ > {self.pid_file}; exec {sys.executable} -m proctor mcp "$@"'
        server = StdioServerParameters(
            command="bash", args=["-c", program, "mcp", *words], env=self.environ, cwd=str(self.work)
        )
        async with Client(stdio_client(server), mode=era, client_info=CLIENT) as client:
            yield client

    def proctor(self, *words: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of the person."""
        done = subprocess.run(
            [sys.executable, "-m", "proctor", *words],
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode == 0) is ok, done.stdout + done.stderr
        return done


def body(result: Any) -> dict[str, Any]:
    """The structured side of a result."""
    assert isinstance(result, types.CallToolResult)
    found: dict[str, Any] = result.structured_content
    return found
