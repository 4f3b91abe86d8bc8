"""`/mcp` of the real `proctor serve`: it works there, and a client that listens does not hold up its end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.server.mcp_clients import ERAS, Desk, body

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_listening_client_does_not_hold_up_the_end_of_the_server(tmp_path: Path, era: str) -> None:
    """Told to go while a client still holds its stream, the server ends in order and without a word."""
    desk = Desk(tmp_path)
    (desk.work / "a.txt").write_text("a")
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "proctor", "serve", "--port", "0", "--ws-port", "0", "--json",
        cwd=desk.work, env=desk.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    told = json.loads(await asyncio.wait_for(server.stdout.readline(), 100))
    token = await asyncio.to_thread(Path(told["token_file"]).read_text)
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token.strip()}"}) as http,
        Client(streamable_http_client(f"{told['http']}/mcp", http_client=http), mode=era) as client,
    ):
        assert body(await client.call_tool("read_file", {"path": "a.txt"}))["content"] == "a"
        server.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(server.communicate(), 100)
    assert server.returncode == 0
    assert said == b""
