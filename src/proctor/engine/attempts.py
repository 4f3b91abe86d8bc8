"""One attempt from claim to end: find and kill what an earlier process left, prepare the place, run the agent, judge.

The agent's word is a claim: the end needs its terminal event and exit code, and what counts as work is what git shows.
Whatever happens to this process, the row says `in_progress` until somebody wrote an end, and whoever takes over resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from loguru import logger

from proctor.agents.driver import (
    AgentEvent,
    Answer,
    AttemptEnd,
    AttemptRequest,
    Driver,
    Failure,
    Limits,
    Outcome,
    Run,
    Usage,
)
from proctor.agents.identity import ProcessIdentity, boot, find_and_kill
from proctor.engine.claims import Claim, Claims, LostClaimError, Work
from proctor.engine.patience import patiently
from proctor.gate.task_tokens import VARIABLE, hash_of, new_token
from proctor.protocol.errors import ProctorError, StoreUnavailableError, UnavailableError
from proctor.protocol.events import Draft, Event
from proctor.protocol.ports import Clock
from proctor.trace.writer import TraceWriter

__all__ = ["Agent", "AgentBook", "Attempts", "Place", "Questions", "Workplaces"]

# Per attempt; all attempts of an executor together stay below the writer's own queue, so `submit` never blocks.
MAX_UNWRITTEN = 100
STOP_SECONDS = 15.0
GO_ON = (
    "You were interrupted while you worked on the task below. Look at what is already done, do not repeat it, "
    "and go on to the end."
)


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent ready to be launched."""

    name: str
    driver: Driver
    model: str = ""
    env: Mapping[str, str] | None = None
    limits: Limits = field(default_factory=Limits)


class AgentBook(Protocol):
    """Who knows the agents (the roster, wired in `app`)."""

    def agent(self, name: str, workspace: str | None) -> Agent:
        """The agent of that name there; refuses unknown and offline ones with the cure."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where an attempt works."""

    directory: Path
    tmp: Path
    state: Path
    base: str | None = None


class Workplaces(Protocol):
    """Who prepares a place per attempt and collects the work (git worktrees)."""

    async def prepare(self, claim: Claim) -> Place:
        """A place of this task's own; the same one again when the attempt goes on."""
        ...

    async def collect(self, claim: Claim, place: Place, end: AttemptEnd) -> Work:
        """Keep what was done, whatever the end was."""
        ...


class Questions(Protocol):
    """Who takes an agent's permission request to a person."""

    async def ask(self, claim: Claim, event: AgentEvent) -> Answer | None:
        """The answer when there is one in time; None: park the task, the question stays open."""
        ...

    def abandon(self, task_id: str) -> None:
        """Hold this task's question no longer."""
        ...


@dataclass(slots=True)
class _Running:
    claim: Claim
    run: Run | None = None
    cancelled: bool = False
    asks: bool = False
    """Whether it waits for a person's answer."""


class Attempts:
    """Runs attempts for one executor; knows which are under way here."""

    def __init__(
        self,
        *,
        claims: Claims,
        writer: TraceWriter,
        book: AgentBook,
        places: Workplaces,
        questions: Questions,
        clock: Clock,
        is_dead: Callable[[str], Awaitable[bool]],
        is_valid: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self._claims = claims
        self._writer = writer
        self._book = book
        self._places = places
        self._questions = questions
        self._clock = clock
        self._is_dead = is_dead
        self._is_valid = is_valid
        self._ended = ended
        self.running: dict[str, _Running] = {}
        self._at_work: set[asyncio.Task[Any]] = set()
        self._stopped = False

    async def run(self, task_id: str, attempt: int) -> str:
        """Handle one job of the queue; the answer is only for DBOS's records."""
        me = asyncio.current_task()
        if self._stopped or me is None:
            raise asyncio.CancelledError  # DBOS keeps the job as running; whoever takes over begins it
        self._at_work.add(me)
        try:
            claim = await patiently(lambda: self._claims.take(task_id, attempt, is_dead=self._is_dead))
            return "not ours" if claim is None else await self._claimed(claim)
        finally:
            self._at_work.discard(me)
            self._ended()

    async def _claimed(self, claim: Claim) -> str:
        self.running[claim.task.task_id] = _Running(claim)
        try:
            return await self._run(claim)
        except LostClaimError as error:
            logger.warning("{}", error)
            return "lost"
        except UnavailableError:
            raise  # the row stays as it is and is put back when the database can be reached again
        except Exception as error:  # noqa: BLE001 - worker loop: a driver's bug must not run for ever, and not unseen
            logger.exception("attempt {} of {} broke", claim.attempt, claim.task.task_id)
            end = AttemptEnd(Outcome.FAILED, f"Proctor failed: {error!r}", failure=Failure.CRASHED)
            return (await self._claims.finish(claim, end, Work())).value
        finally:
            self.running.pop(claim.task.task_id, None)

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop all agents here without ending their tasks: whoever takes over goes on with them."""
        self._stopped = True
        at_work = set(self._at_work)
        for task in at_work:
            task.cancel()
        if at_work:
            _, late = await asyncio.wait(at_work, timeout=seconds)
            if late:
                logger.error("{} attempts do not stop", len(late))

    async def cancel(self, task_id: str) -> None:
        """Stop an attempt that runs here, for good."""
        running = self.running.get(task_id)
        if running is None:
            return
        running.cancelled = True
        self._questions.abandon(task_id)
        if running.run is not None:
            await running.run.cancel()

    def look(self) -> None:
        """Hold no question whose agent has died meanwhile: parked, its answer goes to the one that resumes."""
        for task_id, one in self.running.items():
            identity = one.run.identity if one.asks and one.run is not None else None
            if identity is not None and not identity.alive():
                self._questions.abandon(task_id)

    async def _run(self, claim: Claim) -> str:
        await self._clear_earlier(claim)
        if (over := self._over_already(claim)) is not None:
            return (await self._claims.finish(claim, over, Work())).value
        end, work = await self._work(claim)
        if end is None:
            return "parked"
        state = await self._claims.finish(claim, end, work)
        return state.value

    async def _clear_earlier(self, claim: Claim) -> None:
        """Find and kill what earlier processes of this task left behind on this machine."""
        for text in claim.identities:
            identity = ProcessIdentity.decode(text)
            if identity.boot != boot():
                continue
            found = await asyncio.to_thread(find_and_kill, identity)
            if found:
                logger.info("killed what an attempt of {} left behind", claim.task.task_id)

    async def _work(self, claim: Claim) -> tuple[AttemptEnd | None, Work]:
        try:
            agent = await asyncio.to_thread(self._book.agent, claim.agent, claim.task.workspace)
            place = await self._places.prepare(claim)
        except ProctorError as error:
            failure = AttemptEnd(Outcome.FAILED, str(error), failure=Failure.LAUNCH)
            return failure, Work()
        end = await self._drive(claim, agent, place)
        if end is None:
            return None, Work()
        return end, await self._places.collect(claim, place, end)

    async def _drive(self, claim: Claim, agent: Agent, place: Place) -> AttemptEnd | None:
        """Launch, write down who runs, pass on events; None when the task was parked."""
        request = self._request(claim, agent, place)
        log = _EventLog(self._writer, lambda: self._lost(claim))
        question: str | None = None
        if (lost := self._lost(claim)) is not None:
            raise lost  # stopped for long while the place was made: another one may be at work there
        async with agent.driver.launch(request) as run:
            await self._started(
                claim,
                run,
                place,
                simulated=agent.driver.capabilities.simulated,
                token_hash=hash_of(request.env[VARIABLE]),
            )
            native = run.native_id
            async for event in run.events():
                await log.put(claim, agent, event)
                if run.native_id != native:
                    native = run.native_id
                    await self._claims.note(claim, native_id=native)
                if event.event == "permission_blocker" and not await self._answer(claim, run, event):
                    question = event.text or "the agent asks for permission"
            ended = await run.end()
            end = replace(ended, usage=_alone(claim, request, ended))
        await log.flush()
        if question is not None and not self.running[claim.task.task_id].cancelled:
            if await self._claims.park(claim, end, question=question):
                return None
            end = replace(end, outcome=Outcome.CANCELLED, reason="cancelled on request", failure=Failure.NONE)
        if end.outcome is Outcome.TIMED_OUT and self._too_late(claim):
            end = replace(end, reason=f"the deadline passed while it ran ({end.reason})")
        return replace(end, simulated=end.simulated or agent.driver.capabilities.simulated)

    def _over_already(self, claim: Claim) -> AttemptEnd | None:
        """The end of an attempt that is not to begin: nobody wants it any more, or not this late."""
        if claim.task.cancel_requested:
            return AttemptEnd(Outcome.CANCELLED, "cancelled before it began")
        if self._too_late(claim) and not claim.taken_over:
            return AttemptEnd(Outcome.TIMED_OUT, "the deadline passed before it could run")
        return None

    def _too_late(self, claim: Claim) -> bool:
        return claim.task.deadline is not None and claim.task.deadline <= self._clock.now()

    def _lost(self, claim: Claim) -> LostClaimError | None:
        """While the log is locked the answer is certain: whoever takes over needs that lock too."""
        lost = LostClaimError(task_id=claim.task.task_id, attempt=claim.attempt)
        return None if self._is_valid() else lost

    async def _started(
        self, claim: Claim, run: Run, place: Place, *, simulated: bool, token_hash: str
    ) -> None:
        """Write down process and place before the agent does anything; a cancel may have come meanwhile."""
        identity = run.identity.encode() if run.identity is not None else None
        pid = run.identity.pid if run.identity is not None else None
        values: dict[str, Any] = {"identity": identity, "pid": pid, "worktree": str(place.directory)}
        values["simulated"] = simulated
        if run.native_id is not None:
            values["native_id"] = run.native_id
        if not claim.taken_over:
            values["base_commit"] = place.base
        # Before the agent does anything: from here on its token, and no earlier one of this attempt, opens tools.
        values["token_hash"] = token_hash
        await self._claims.note(claim, **values)
        running = self.running[claim.task.task_id]
        running.run = run
        if running.cancelled:
            await run.cancel()

    async def _answer(self, claim: Claim, run: Run, event: AgentEvent) -> bool:
        """Take a permission request to a person; False: nobody answered in time, the agent was stopped."""
        running = self.running[claim.task.task_id]
        running.asks = True
        try:
            answer = await self._questions.ask(claim, event)
        finally:
            running.asks = False
        if answer is None:
            await run.interrupt()
            return False
        await run.answer(str(event.details.get("request_id", "")), answer)
        return True

    def _request(self, claim: Claim, agent: Agent, place: Place) -> AttemptRequest:
        limits = agent.limits
        if claim.task.deadline is not None:
            left = (claim.task.deadline - self._clock.now()).total_seconds()
            limits = replace(limits, timeout_s=max(1.0, min(limits.timeout_s, left)))
        earlier = claim.earlier or {}
        goes_on = earlier.get("outcome") in {None, "interrupted", "parked"}
        resume = earlier.get("native_id") if goes_on and agent.driver.capabilities.resumes else None
        return AttemptRequest(
            task_id=claim.task.task_id,
            attempt=claim.attempt,
            prompt=_prompt(claim) if resume is None else f"{GO_ON}\n\n{_prompt(claim)}",
            worktree=place.directory,
            tmp=place.tmp,
            state=place.state,
            model=agent.model,
            env={**(agent.env or {}), VARIABLE: new_token(claim.task.task_id, claim.attempt)},
            resume=resume,
            limits=limits,
        )


def _prompt(claim: Claim) -> str:
    """What the agent is told: the description, then what the queue knows beside it."""
    task = claim.task
    lines = [task.description]
    if task.file_paths:
        lines += ["", "Files concerned:", *[f"- {path}" for path in task.file_paths]]
    if guidance := task.context.get("guidance"):
        lines += ["", f"Guidance: {guidance}"]
    return "\n".join(lines)


def _alone(claim: Claim, request: AttemptRequest, end: AttemptEnd) -> Usage:
    """What this attempt alone used: some agents count their whole conversation, also its earlier attempts."""
    earlier = claim.earlier or {}
    if claim.taken_over or request.resume is None or earlier.get("native_id") != request.resume:
        return end.usage
    before = Usage(earlier["input_tokens"], earlier["output_tokens"], cost_usd=earlier["cost_usd"])
    return end.usage.since(before)


class _EventLog:
    """Hands events to the trace without waiting for each; the number on its way is bounded, and none is dropped."""

    def __init__(self, writer: TraceWriter, guard: Callable[[], Exception | None]) -> None:
        self._writer = writer
        self._guard = guard
        self._unwritten: list[tuple[Draft, Future[list[Event]]]] = []

    async def put(self, claim: Claim, agent: Agent, event: AgentEvent) -> None:
        """Pass one event on; waits when too many are on their way."""
        task = claim.task
        draft = event.draft(
            task.trace_id or task.task_id,
            agent=agent.name,
            task_id=task.task_id,
            attempt=claim.attempt,
            session_id=task.session_id,
            simulated=agent.driver.capabilities.simulated,
        )
        self._unwritten.append((draft, self._submit(draft)))
        if len(self._unwritten) >= MAX_UNWRITTEN:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything passed on is on disk; what a database that was away refused is written again."""
        waiting, self._unwritten = self._unwritten, []
        for draft, future in waiting:
            try:
                await asyncio.wrap_future(future)
            except StoreUnavailableError:
                await patiently(partial(self._again, draft))

    def _submit(self, draft: Draft) -> Future[list[Event]]:
        return self._writer.submit([draft], guard=self._guard)

    async def _again(self, draft: Draft) -> None:
        await asyncio.wrap_future(self._submit(draft))
