"""One turn of a chat: claimed, run, and every step on disk before the next one begins.

Whatever ends it, an answer, a question, a failure, a deadline or a cancelled caller, its end is written and the chat let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from proctor.agents import model_history as past
from proctor.agents import model_rows as rows
from proctor.agents.driver import Failure
from proctor.agents.model_agent import Keep, ModelAgent, Patience
from proctor.agents.model_gate import GovernedRequests
from proctor.agents.model_hands import Hands
from proctor.agents.model_prompt import system_prompt
from proctor.agents.model_rows import Chat
from proctor.agents.model_spec import ModelSpec
from proctor.agents.model_turn import AskFn, ListenFn, TurnEnd, TurnOutcome, nobody_answers, nobody_listens
from proctor.config import Settings
from proctor.gate.gate import Gate, Tools
from proctor.protocol.errors import ProctorError, UsageError
from proctor.protocol.events import ActorKind, Draft, EventStatus
from proctor.protocol.ids import CallId
from proctor.protocol.ports import Clock, SystemClock
from proctor.protocol.tools import Actor, Call
from proctor.store.database import Database
from proctor.store.tables import chats
from proctor.tools.registry import Registry
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

__all__ = ["CHAT_REQUESTS", "TASK_REQUESTS", "House", "Talk", "Watch", "place_of"]

CHAT_REQUESTS: Final = 5
TASK_REQUESTS: Final = 50
TURN_SECONDS: Final = 1800.0
SHOWN: Final = 2000
_EVENTS: Final[Mapping[TurnOutcome, tuple[str, EventStatus]]] = {
    TurnOutcome.ANSWERED: ("chat_answered", EventStatus.SUCCESS),
    TurnOutcome.LIMIT: ("chat_answered", EventStatus.WARNING),
    TurnOutcome.PARKED: ("chat_parked", EventStatus.PENDING),
    TurnOutcome.FAILED: ("chat_failed", EventStatus.ERROR),
    TurnOutcome.TIMED_OUT: ("chat_failed", EventStatus.ERROR),
    TurnOutcome.CANCELLED: ("chat_cancelled", EventStatus.WARNING),
}


@dataclass(frozen=True, slots=True)
class House:
    """What chats need of the application."""

    database: Database
    writer: TraceWriter
    gate: Gate
    registry: Registry
    make_gate: Callable[[Tools], Gate]
    redactor: Redacts
    history_redactor: Redacts
    """Takes secrets out of what a model is told again; names and addresses of people stay, or files would be damaged."""
    settings_for: Callable[[Path | None], Settings]
    clock: Clock = field(default_factory=SystemClock)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who watches a turn, who can be asked, and how long it may take."""

    listen: ListenFn = nobody_listens
    ask: AskFn = nobody_answers
    seconds: float = TURN_SECONDS
    supervised: bool = False
    """Run by an executor: when that one leaves, the turn is not cancelled but waits for the next one."""
    template: Call | None = None
    """For a task's attempt: where and as whom it acts; a chat knows that itself."""


def place_of(chat: Chat) -> Path | None:
    """The workspace of a chat."""
    return None if chat.workspace is None else Path(chat.workspace)


class Talk:
    """One claimed turn."""

    def __init__(self, house: House, chat: Chat, spec: ModelSpec, watch: Watch) -> None:
        self._house = house
        self._chat = chat
        self._spec = spec
        self._watch = watch
        self._owner = rows.new_owner()
        self._history: list[ModelMessage] = []
        self._withheld: frozenset[str] = frozenset()

    # ── beginning ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def begin(self, message: str | None, *, force: bool) -> TurnEnd | None:
        """Claim the chat, with what is said in the same transaction; an end when there is nothing to do yet."""
        now = self._house.clock.now()
        if message is None and self._chat.state == "parked":
            waits = await asyncio.to_thread(self._still_open, now)
            if waits:
                return TurnEnd(TurnOutcome.PARKED, _waits(waits), waiting_for=waits)
        try:
            await self._house.writer.transact_async(lambda c: self._claim(c, message, now, force=force))
        except BaseException:
            rows.let_go(self._owner)
            raise
        return None

    def _still_open(self, now: datetime) -> tuple[str, ...]:
        with self._house.database.read() as connection:
            still = [one for one in self._chat.waiting_for if not rows.answered(connection, [one], now)]
            return tuple(still)

    def _claim(
        self, connection: sa.Connection, message: str | None, now: datetime, *, force: bool
    ) -> tuple[None, list[Draft]]:
        chat = rows.find(connection, self._chat.chat_id)
        until = now + timedelta(seconds=self._watch.seconds)
        stood = rows.claim(
            connection, chat, self._owner, until=until, now=now, new_turn=message is not None, force=force
        )
        kept = connection.execute(
            sa.select(chats.c.history, chats.c.withheld).where(chats.c.chat_id == chat.chat_id)
        ).one()
        self._history, self._withheld = past.load(kept.history), frozenset(kept.withheld)
        self._chat = rows.find(connection, chat.chat_id)
        drafts = self._said(connection, message, now) if message is not None else []
        if message is None and not self._history:
            raise UsageError(message=f"Nothing was said in chat {chat.chat_id} yet.")
        event = {"interrupted": "chat_interrupted", "parked": "chat_resumed"}.get(stood)
        if event is not None:
            drafts = [*self._told(event, EventStatus.RUNNING, {"turn": chat.turn}), *drafts]
        return None, drafts

    def _said(self, connection: sa.Connection, message: str, now: datetime) -> list[Draft]:
        past.close_open(
            self._history, "interrupted: whether it took effect is not known; look before you repeat it"
        )
        self._history.append(past.prompt(message))
        title = self._chat.title or self._house.redactor.text(message.splitlines()[0])[: rows.TITLE_CAP]
        self._save(connection, now, title=title)
        told = self._house.redactor.text(message)
        rows.add_messages(
            connection,
            self._chat.chat_id,
            self._chat.turn,
            [{"role": "user", "text": told, **self._mark()}],
            now,
        )
        who = {"actor": ActorKind.HUMAN, "name": self._chat.created_by}
        return self._told("chat_asked", EventStatus.SUCCESS, {"text": message[:SHOWN]}, **who)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> TurnEnd:
        """Run to its end and write it down, also when the caller is cancelled."""
        try:
            async with self._model() as (model, hands):
                end = await self._bounded(model, hands)
        except asyncio.CancelledError:
            await asyncio.shield(self._finish(TurnEnd(TurnOutcome.CANCELLED, "Cancelled.")))
            raise
        except BaseException as error:
            broken = TurnEnd(
                TurnOutcome.FAILED, f"Proctor failed: {error!r}"[:SHOWN], failure=Failure.CRASHED
            )
            with suppress(ProctorError):  # a chat that cannot be let go now is seen as interrupted
                await self._finish(broken)
            raise
        else:
            return await self._finish(end)
        finally:
            rows.let_go(self._owner)

    async def _bounded(self, model: ModelAgent, hands: Hands) -> TurnEnd:
        timer = asyncio.timeout(self._watch.seconds)
        try:
            async with timer:
                return await model.run(self._history, hands, self._keep)
        except TimeoutError:
            if not timer.expired():
                raise
            text = f"Stopped: it took longer than {self._watch.seconds:g} s. Ask for less at once, or go on with it."
            return TurnEnd(TurnOutcome.TIMED_OUT, text, failure=Failure.DEADLINE, used=model.used)

    @asynccontextmanager
    async def _model(self) -> AsyncIterator[tuple[ModelAgent, Hands]]:
        house, watch, chat = self._house, self._watch, self._chat
        template = watch.template or self._template()
        settings = await asyncio.to_thread(house.settings_for, template.rules_from)
        task = chat.task_id is not None
        prompt = await asyncio.to_thread(
            system_prompt,
            chat.agent_name,
            settings,
            house.database,
            person=chat.created_by,
            workspace=template.workspace,
            task=task,
        )
        model = ModelAgent(
            self._spec,
            GovernedRequests(house.make_gate, self._spec, template),
            instructions=prompt,
            most_requests=self._spec.api.requests or (TASK_REQUESTS if task else CHAT_REQUESTS),
            patience=house.patience,
            listen=watch.listen,
        )
        prefix = f"{chat.chat_id}:{chat.turn}"
        hands = Hands(
            house.gate,
            house.registry,
            template,
            prefix,
            listen=watch.listen,
            ask=watch.ask,
            withheld=self._withheld,
        )
        try:
            yield model, hands
        finally:
            await model.close()

    def _template(self) -> Call:
        """A chat's calls: the agent's own, in the user's workspace, in the chat's trace and budget."""
        chat = self._chat
        return Call(
            tool="",
            inputs={},
            actor=Actor(ActorKind.AGENT, chat.agent_name),
            profile=chat.profile,
            workspace=place_of(chat),
            trace_id=chat.trace_id,
            call_id=CallId(""),
        )

    # ── keeping ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _keep(self, step: Keep) -> None:
        now = self._house.clock.now()

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            self._save(connection, now)
            added = self._transcript(step)
            rows.add_messages(connection, self._chat.chat_id, self._chat.turn, added, now)
            return None, []

        await self._house.writer.transact_async(change)

    def _save(self, connection: sa.Connection, now: datetime, **more: Any) -> None:
        kept, withheld = past.dump(self._history, self._house.history_redactor)
        values = {"history": kept, "withheld": withheld, "updated_at": now, **more}
        rows.update(connection, self._chat.chat_id, self._owner, values)

    def _mark(self) -> dict[str, Any]:
        template = self._watch.template
        return {} if template is None else {"attempt": template.attempt}

    def _transcript(self, step: Keep) -> list[dict[str, Any]]:
        text, mark = self._house.redactor.text, self._mark()
        told: list[dict[str, Any]] = []
        if step.response is not None:
            calls = [call.tool_name for call in step.response.tool_calls]
            told.append(
                {
                    "role": "assistant",
                    "text": text(step.response.text or ""),
                    "input_tokens": step.used.input_tokens,
                    "output_tokens": step.used.output_tokens,
                    "micro_usd": step.used.micro_usd,
                    "details": {"finish_reason": step.response.finish_reason, "tool_calls": calls},
                    **mark,
                }
            )
        for one in step.done:
            details = {"ok": one.ok, "code": one.code}
            own = {"role": "tool", "tool_name": one.wanted.name[:100], "call_key": one.key}
            told.append({**own, "text": text(one.text), "details": details, **mark})
        return told

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, end: TurnEnd) -> TurnEnd:
        now = self._house.clock.now()
        left = end.outcome is TurnOutcome.CANCELLED and self._watch.supervised
        parked = end.outcome is TurnOutcome.PARKED or left
        stopped = end.outcome in {TurnOutcome.CANCELLED, TurnOutcome.TIMED_OUT} and not left
        if stopped and self._chat.task_id is None:
            past.close_open(self._history, "stopped before its end; whether it took effect is not known")

        def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
            self._save(
                connection,
                now,
                state="parked" if parked else "idle",
                owner=None,
                owned_until=None,
                waiting_for=list(end.waiting_for),
                outcome=end.outcome.value,
            )
            if left:
                return None, []
            if not end.ok:
                note = {"role": "note", "text": self._house.redactor.text(end.text), **self._mark()}
                rows.add_messages(connection, self._chat.chat_id, self._chat.turn, [note], now)
            return None, self._ended(end)

        await self._house.writer.transact_async(change)
        if not parked and self._chat.task_id is None:
            await self._house.gate.finish_run(self._chat.trace_id)
        return replace(end, requests=past.turn_requests(self._history))

    def _ended(self, end: TurnEnd) -> list[Draft]:
        event, status = _EVENTS[end.outcome]
        details: dict[str, Any] = {
            "text": end.text[:SHOWN],
            "outcome": end.outcome.value,
            "turn": self._chat.turn,
            "input_tokens": end.used.input_tokens,
            "output_tokens": end.used.output_tokens,
            "cost_usd": None if end.used.micro_usd is None else end.used.micro_usd / 1_000_000,
        }
        if end.waiting_for:
            details["approvals"] = list(end.waiting_for)
        if end.failure is not Failure.NONE:
            details["failure"] = end.failure.value
        return self._told(event, status, details)

    def _told(self, event: str, status: EventStatus, details: Mapping[str, Any], **who: Any) -> list[Draft]:
        if self._chat.task_id is not None:
            return []  # an attempt's events are told by whoever runs it
        by = who or {"actor": ActorKind.AGENT, "name": self._chat.agent_name}
        return [rows.draft(self._chat, event, status, details, **by)]


def _waits(waiting: tuple[str, ...]) -> str:
    return f"It still waits for an answer ({', '.join(waiting)}): see `proctor inbox`."
