"""A house with API agents that ask the scripted model server, for tests of models and chats."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.agents.model_agent import Patience
from proctor.agents.model_chats import Chats
from proctor.agents.model_turn import TurnEvent
from proctor.app import App
from proctor.config import load_settings
from proctor.gate.approvals import answer_approval
from proctor.protocol.ports import SystemClock
from proctor.store.tables import approvals, calls, leases
from proctor.testing.model_server import ModelServer
from tests.support.rows import rows_of

__all__ = ["AGENTS", "World", "call", "script", "world"]

AGENTS = {
    "CHAT": "openai-chat:gpt-6.1-sol",
    "SOLACE": "openai:gpt-6.1-sol",
    "FORGE": "anthropic:claude-sonnet-5-5",
    "GEM": "google:gemini-3.8-flash",
    "ARCHITECT": "ollama:qwen3:14b",
    "UNPRICED": "openai-chat:nobody-knows-this-model",
}
ENVIRON = {
    "OPENAI_API_KEY": "sk-simulated-0001",
    "ANTHROPIC_API_KEY": "sk-simulated-0002",
    "GEMINI_API_KEY": "simulated-key-0003",
}


def script(*steps: dict[str, Any]) -> str:
    """A prompt for the scripted models."""
    return f"Please. FAKE:{json.dumps({'steps': steps})}"


def call(name: str, **args: Any) -> dict[str, Any]:
    """A step that calls a tool."""
    return {"call": {"name": name, "args": args}}


@dataclass
class World:
    """One house with its models."""

    app: App
    models: ModelServer
    workspace: Path
    environ: dict[str, str]
    pauses: list[float] = field(default_factory=list)
    events: list[TurnEvent] = field(default_factory=list)

    @property
    def chats(self) -> Chats:
        """Chats that note their pauses instead of making them."""

        async def noted(seconds: float) -> None:
            self.pauses.append(seconds)

        return Chats(replace(self.app.chats.house, patience=Patience(sleep=noted, chance=lambda: 0.5)))

    async def listen(self, event: TurnEvent) -> None:
        """Keep what happens."""
        self.events.append(event)

    def open(self, agent: str = "CHAT") -> str:
        """A new chat."""
        return self.chats.open(agent, workspace=self.workspace, by="David").chat_id

    def calls(self, tool: str) -> list[dict[str, Any]]:
        """All calls of a tool."""
        return rows_of(self.app.database, sa.select(calls).where(calls.c.tool_name == tool))

    def open_leases(self) -> int:
        """What is still held of any budget."""
        return len(rows_of(self.app.database, sa.select(leases).where(leases.c.settled_at.is_(None))))

    def questions(self) -> list[dict[str, Any]]:
        """All questions, the oldest first."""
        return rows_of(self.app.database, sa.select(approvals).order_by(approvals.c.requested_at))

    def answer(self, approval_id: str, *, yes: bool = True) -> None:
        """A person answers."""
        now = SystemClock().now()
        self.app.writer.transact(
            lambda c: answer_approval(c, approval_id, approved=yes, by="David", reason="because", now=now)
        )


@contextmanager
def world(place: Path, models: ModelServer, settings: str = "", database: str = "") -> Iterator[World]:
    """A workspace whose agents ask these models; `settings` stand before the agents'."""
    workspace = place / "work"
    (workspace / ".git").mkdir(parents=True)
    (workspace / "a.txt").write_text("hello\n")
    lines = [settings]
    for name, model in AGENTS.items():
        base = models.url + ("/v1" if model.startswith("openai") else "")
        lines += [f"[agents.{name}]", 'driver = "model"', f'model = "{model}"']
        lines += [f"[agents.{name}.api]", f'base_url = "{base}"', "max_tokens = 500"]
        lines.append("seconds = 30")
    (workspace / "proctor.toml").write_text("\n".join(lines))
    environ = {**ENVIRON, "HOME": str(place / "home"), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": ""}
    if database:
        environ["PROCTOR_DATABASE_URL"] = database
    app = App(load_settings(workspace, environ))
    try:
        yield World(app, models, workspace, environ)
    finally:
        app.close()


Make = Callable[..., World]
