"""Chats: open one, say something, go on with one that waited or was interrupted, read what was said.

Whatever happens to the process that has a chat in hand, it is seen as interrupted and can go on anywhere; the gate repeats
none of its calls.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from proctor.agents import model_history as past
from proctor.agents import model_rows as rows
from proctor.agents.model_rows import Chat
from proctor.agents.model_spec import ModelNotReadyError, ModelSpec, spec_of
from proctor.agents.model_talk import House, Talk, Watch, place_of
from proctor.agents.model_turn import TurnEnd
from proctor.agents.roster import Roster, environment
from proctor.protocol.errors import UnavailableError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.ids import new_id
from proctor.store.tables import chats

__all__ = ["DEFAULT_AGENT", "MESSAGE_CAP", "Chats", "House", "Watch"]

DEFAULT_AGENT: Final = "SOLACE"
MESSAGE_CAP: Final = 200_000
MOST_TURNS: Final = 64


class Chats:
    """The conversations of this house."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._turns = 0

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, chat_id: str) -> Chat:
        """One chat."""
        with self.house.database.read() as connection:
            return rows.find(connection, chat_id)

    def stands(self, chat: Chat) -> str:
        """idle, running, parked, or interrupted when nobody is behind it any more."""
        return chat.stands(self.house.clock.now())

    def recent(self, *, limit: int = 50, tasks: bool = False) -> list[Chat]:
        """The newest chats; those of tasks only when wanted."""
        query = chats.select().order_by(chats.c.updated_at.desc(), chats.c.chat_id).limit(limit)
        with self.house.database.read() as connection:
            found = connection.execute(query if tasks else query.where(chats.c.task_id.is_(None)))
            return [Chat.of(row) for row in found.mappings()]

    def messages(self, chat_id: str, *, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """What was said in a chat."""
        with self.house.database.read() as connection:
            return rows.transcript(connection, chat_id, after=after, limit=limit)

    def spent(self, chat_id: str, *, attempt: int | None = None) -> tuple[int, int, int, bool]:
        """Tokens read and written, money in millionths, and whether all of it had a price."""
        with self.house.database.read() as connection:
            return rows.spent(connection, chat_id, attempt=attempt)

    def spec(self, agent: str, workspace: Path | None) -> ModelSpec:
        """The model of an agent there; refuses one that cannot be chatted with, with the cure."""
        settings = self.house.settings_for(workspace)
        found = Roster(settings.agents).get(agent)
        if found.driver != "model":
            cure = f"Choose an agent with an API model, such as {DEFAULT_AGENT}: `proctor agents list`."
            raise ModelNotReadyError(
                agent=found.name,
                reason=f"its driver {found.driver} is a program, which cannot chat",
                cure=cure,
            )
        return spec_of(found, environment(found, settings.environ))

    def profile_of(self, workspace: Path | None) -> str:
        """The rules that hold there."""
        return self.house.settings_for(workspace).profile

    # ── opening and speaking ──────────────────────────────────────────────────────────────────────────────────────

    def open(
        self,
        agent: str = DEFAULT_AGENT,
        *,
        workspace: Path | None,
        by: str,
        profile: str | None = None,
        chat_id: str | None = None,
        trace_id: str | None = None,
        task_id: str | None = None,
    ) -> Chat:
        """Open a chat with one agent; the agent must be able to answer."""
        spec = self.spec(agent, workspace)
        now = self.house.clock.now()
        values = {
            "chat_id": chat_id or new_id("chat"),
            "agent_name": spec.agent,
            "workspace": None if workspace is None else str(workspace),
            "profile": profile or self.profile_of(workspace),
            "trace_id": trace_id or new_id("trace"),
            "task_id": task_id,
            "created_by": by[:100],
            "created_at": now,
            "updated_at": now,
        }

        def change(connection: sa.Connection) -> tuple[Chat, list[Draft]]:
            chat = rows.insert(connection, **values)
            details = {"agent": spec.agent, "provider": spec.provider, "model": spec.model}
            if task_id is not None:
                return chat, []  # an attempt's events are told by whoever runs it
            opened = rows.draft(
                chat, "chat_opened", EventStatus.SUCCESS, details, actor=ActorKind.HUMAN, name=by
            )
            return chat, [opened]

        return self.house.writer.transact(change)

    async def say(self, chat_id: str, message: str, watch: Watch | None = None) -> TurnEnd:
        """Say something and get the answer; refused while the chat waits for a person or answers somebody else."""
        text = message.strip()
        if not text or len(text) > MESSAGE_CAP or "\0" in text:
            raise UsageError(message=f"A message has 1 to {MESSAGE_CAP} characters, none of them NUL.")
        return await self._turn(chat_id, text, watch or Watch(), force=False)

    async def go_on(self, chat_id: str, watch: Watch | None = None, *, force: bool = False) -> TurnEnd:
        """Go on with a chat that was answered, interrupted or failed, from where it stands."""
        return await self._turn(chat_id, None, watch or Watch(), force=force)

    # ── one turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _turn(self, chat_id: str, message: str | None, watch: Watch, *, force: bool) -> TurnEnd:
        chat = await asyncio.to_thread(self.get, chat_id)
        spec = await asyncio.to_thread(self.spec, chat.agent_name, place_of(chat))
        await asyncio.to_thread(past.warm)  # or the import would take its seconds inside a transaction
        if self._turns >= MOST_TURNS:
            reason = f"{MOST_TURNS} turns run in this process already"
            raise UnavailableError(what="Chat", reason=reason, cure="Say it again in a moment.")
        self._turns += 1
        try:
            return await self._run(Talk(self.house, chat, spec, watch), message, force=force)
        finally:
            self._turns -= 1

    async def _run(self, turn: Talk, message: str | None, *, force: bool) -> TurnEnd:
        early = await turn.begin(message, force=force)
        return early if early is not None else await turn.run()
