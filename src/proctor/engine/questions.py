"""An agent's question becomes a row that a person answers; nobody's thread waits for long.

What the agent wants is weighed like a tool call: a policy that denies answers at once, and so does a grant for its class
(`gate.grants`). Else the pipe is held for a while (ten minutes by default), then the task is parked: the row stays open for
24 hours, and when it is answered the reconciler hands the task out again. An answer given meanwhile is found by looking,
not by polling per question: one look per executor serves all.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.agents.driver import AgentEvent, Answer
from proctor.engine.claims import Claim, LostClaimError
from proctor.engine.patience import patiently
from proctor.gate import approvals as gate_approvals
from proctor.gate.agent_acts import AgentAct, AgentActs
from proctor.gate.grants import covering
from proctor.gate.profiles import Profile, find_profile
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ports import Clock
from proctor.store.database import Database
from proctor.store.tables import approvals, attempts
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

__all__ = ["HOLD_SECONDS", "OpenQuestions"]

HOLD_SECONDS = 600.0
MAX_ACTION = 2000


@dataclass(frozen=True, slots=True)
class _Want:
    """What an agent wants, and under which profile."""

    act: AgentAct
    profile: Profile


class OpenQuestions:
    """Asks for the attempts of one executor."""

    def __init__(
        self,
        database: Database,
        writer: TraceWriter,
        clock: Clock,
        *,
        is_valid: Callable[[], bool],
        hold_s: float = HOLD_SECONDS,
        redactor: Redacts | None = None,
        profile_of: Callable[[Path | None], Profile] | None = None,
    ) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._hold = hold_s
        self._is_valid = is_valid
        self._redactor = redactor
        self._profile_of = profile_of or (lambda _: find_profile("standard"))
        self._acts = AgentActs()
        self._scales = ThreadPoolExecutor(
            1, "questions"
        )  # one is enough, and keeps one parser and connection
        self._waiting: dict[str, tuple[str, asyncio.Future[bool | None]]] = {}

    async def ask(self, claim: Claim, event: AgentEvent) -> Answer | None:
        """Write the question down, hold the pipe, give the answer or None when it is time to park."""
        if brought := await asyncio.to_thread(self._brought, claim, event):
            answer = await self._held(claim, brought)
            return None if answer is None else Answer(allow=answer)  # the gate itself uses what was answered
        want = await asyncio.get_running_loop().run_in_executor(self._scales, self._weigh, claim, event)
        asked = await patiently(
            lambda: self._writer.transact_async(lambda c: self._ask(c, claim, event, want))
        )
        if isinstance(asked, Answer):
            return asked
        if await self._held(claim, asked) is None:
            return None
        # Used here and now: the same call asked again is a new question.
        return await patiently(
            lambda: self._writer.transact_async(lambda c: self._use_answer(c, claim, event))
        )

    async def _held(self, claim: Claim, approval_id: str) -> bool | None:
        """Wait for the answer to a question as long as the pipe is held; None: it is time to park."""
        future: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self._waiting[approval_id] = claim.task.task_id, future
        try:
            return await asyncio.wait_for(future, self._hold)
        except TimeoutError:
            return None
        finally:
            self._waiting.pop(approval_id, None)

    def _brought(self, claim: Claim, event: AgentEvent) -> str | None:
        """The gate's own question, which an agent inside the house brings; never one that an agent merely names."""
        approval_id = event.details.get("approval_id")
        if approval_id is None or event.details.get("claimed"):
            return None
        query = sa.select(approvals.c.approval_id).where(
            approvals.c.approval_id == str(approval_id),
            approvals.c.task_id == claim.task.task_id,
            approvals.c.content_hash != "",
        )
        with self._database.read() as connection:
            found: str | None = connection.execute(query).scalar()
            return found

    def abandon(self, task_id: str) -> None:
        """Hold the questions of this task no longer, for example because it was cancelled."""
        for holder, future in self._waiting.values():
            if holder == task_id and not future.done():
                future.set_result(None)

    def _weigh(self, claim: Claim, event: AgentEvent) -> _Want:
        """What the agent wants to do, by the rules of the user's workspace and where the agent works."""
        mine = sa.and_(attempts.c.task_id == claim.task.task_id, attempts.c.attempt == claim.attempt)
        with self._database.read() as connection:
            place = connection.execute(sa.select(attempts.c.worktree).where(mine)).scalar()
        home = Path(claim.task.workspace) if claim.task.workspace else None
        rules = home if home is not None and home.is_dir() else None
        where = [Path(place)] if place else [home] if home is not None else []
        act = self._acts.weigh(_tool(event), event.details.get("input"), workspace=rules, roots=where)
        return _Want(act, self._profile_of(rules))

    def _ask(
        self, connection: sa.Connection, claim: Claim, event: AgentEvent, want: _Want
    ) -> tuple[Answer | str, list[Draft]]:
        """An answer given while the task was parked, one by policy or grant, a question that is open, or a new one."""
        if not self._is_valid():
            raise LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        answer, drafts = self._use_answer(connection, claim, event)
        if answer is not None:
            return answer, drafts
        act = want.act
        if act.denied:
            said = f"the policy forbids it: {act.denied}"
            return Answer(allow=False, reason=said), [_answered(claim, event, "denied by policy", why=said)]
        same = sa.and_(approvals.c.task_id == claim.task.task_id, approvals.c.bound_to == _call(event))
        still_open = sa.and_(
            same, approvals.c.status == "pending", approvals.c.expires_at > self._clock.now()
        )
        if granted := self._granted(connection, claim, event, act):
            connection.execute(approvals.update().where(still_open).values(status="void"))
            return Answer(allow=True), [_answered(claim, event, "allowed by grant", grants=granted)]
        known: str | None = connection.execute(
            sa.select(approvals.c.approval_id).where(still_open).limit(1)
        ).scalar()
        if known is not None:
            return known, []
        if want.profile.never_asks:
            said = f"nobody is asked under the profile {want.profile.name}"
            return Answer(allow=False, reason=said), [_answered(claim, event, "denied by profile", why=said)]
        return gate_approvals.ask(connection, self._question(claim, event, want), self._clock.now())

    def _granted(
        self, connection: sa.Connection, claim: Claim, event: AgentEvent, act: AgentAct
    ) -> list[str] | None:
        task = claim.task
        runs = [name for name in (task.task_id, task.session_id, task.trace_id) if name]
        return covering(
            connection,
            self._classes(act),
            tool=_tool(event),
            run_ids=runs,
            workspace=task.workspace,
            now=self._clock.now(),
        )

    def _question(self, claim: Claim, event: AgentEvent, want: _Want) -> gate_approvals.Question:
        task, tool, act = claim.task, _tool(event), want.act
        return gate_approvals.Question(
            trace_id=task.trace_id or task.task_id,
            session_id=task.session_id,
            task_id=task.task_id,
            attempt=claim.attempt,
            call_id="",
            asked_by=claim.agent[:100],
            tool=tool,
            action=self._text(event.text or f"{claim.agent} asks to use {tool}")[:MAX_ACTION],
            inputs=self._value(_inputs(event)),
            reasoning="",
            risk=act.risk,
            consequences=[self._text(line) for line in act.consequences],
            content_hash="",  # nobody compares the grounds of two agents: equal questions are not answered together
            bound_to=_call(event),
            classes=self._classes(act),
            irreversible=act.irreversible,
            profile=want.profile.name[:50],
            workspace=task.workspace,
        )

    def _classes(self, act: AgentAct) -> list[str]:
        return [self._text(name) for name in act.classes]

    def _text(self, text: str) -> str:
        return text if self._redactor is None else self._redactor.text(text)

    def _value(self, value: dict[str, Any]) -> dict[str, Any]:
        return value if self._redactor is None else dict(self._redactor.value(value))

    def _use_answer(
        self, connection: sa.Connection, claim: Claim, event: AgentEvent
    ) -> tuple[Answer | None, list[Draft]]:
        """A resumed agent asks again what was answered while it was parked: bound to that very call, used once."""
        query = (
            sa.select(approvals.c.approval_id, approvals.c.status, approvals.c.answer_reason)
            .where(approvals.c.task_id == claim.task.task_id, approvals.c.bound_to == _call(event))
            .where(approvals.c.status.in_(["approved", "rejected"]), approvals.c.used_at.is_(None))
            .order_by(approvals.c.requested_at.desc())
            .limit(1)
        )
        row = connection.execute(query).first()
        if row is None:
            return None, []
        used = approvals.update().where(approvals.c.approval_id == row.approval_id)
        connection.execute(used.values(used_at=self._clock.now()))
        if row.status == "approved":
            return Answer(allow=True), []
        why = f"a person said no: {row.answer_reason}" if row.answer_reason else "a person said no"
        return Answer(allow=False, reason=why), []

    async def look(self) -> None:
        """See which of the held questions have been answered; one query for all of them."""
        if not self._waiting:
            return
        ids = list(self._waiting)
        for approval_id, status in (await asyncio.to_thread(self._statuses, ids)).items():
            _, future = self._waiting.get(approval_id, ("", None))
            if future is not None and not future.done() and status in {"approved", "rejected"}:
                future.set_result(status == "approved")

    def _statuses(self, ids: list[str]) -> Mapping[str, str]:
        query = sa.select(approvals.c.approval_id, approvals.c.status).where(approvals.c.approval_id.in_(ids))
        with self._database.read() as connection:
            return {row.approval_id: row.status for row in connection.execute(query)}


def _tool(event: AgentEvent) -> str:
    return (event.tool_name or "agent")[:100]


def _inputs(event: AgentEvent) -> dict[str, Any]:
    given = event.details.get("input")
    return dict(given) if isinstance(given, Mapping) else {"input": given} if given else {}


def _answered(claim: Claim, event: AgentEvent, what: str, **facts: Any) -> Draft:
    """An answer that needed nobody, in the trace."""
    denied = what.startswith("denied")
    return Draft(
        trace_id=claim.task.trace_id or claim.task.task_id,
        event="note",
        status=EventStatus.WARNING if denied else EventStatus.SUCCESS,
        task_id=claim.task.task_id,
        attempt=claim.attempt,
        session_id=claim.task.session_id,
        tool_name=_tool(event),
        details={"what": what, "input": _inputs(event), **facts},
    )


def _call(event: AgentEvent) -> str:
    """What an answer is bound to: this tool with exactly these inputs.

    Inputs that came cut are not known whole: such a request is bound to itself alone.
    """
    given = event.details.get("input")
    alone = [] if given is None or isinstance(given, Mapping) else [str(event.details.get("request_id"))]
    text = json.dumps([event.tool_name or "agent", _inputs(event), *alone], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
