"""The driver `model`: an API model works on a task in its own worktree, in this process, through the gate.

Its native id is a chat, so a killed or parked attempt goes on from the last step that is on disk, anywhere, and what was
called before is not called again. Nothing of an SDK is imported before a task runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from proctor.agents.driver import (
    AgentEvent,
    Answer,
    AttemptEnd,
    AttemptRequest,
    Capabilities,
    Delegation,
    Failure,
    NotSupportedError,
    Outcome,
    Usage,
)
from proctor.agents.embedded import claims
from proctor.agents.identity import ProcessIdentity
from proctor.protocol.errors import NotFoundError, ProctorError
from proctor.protocol.events import EventStatus
from proctor.protocol.ids import new_id

if TYPE_CHECKING:
    from proctor.agents.model_chats import Chats
    from proctor.agents.model_turn import TurnEnd, TurnEvent
    from proctor.gate.task_tokens import Holder
    from proctor.protocol.tools import CallResult

__all__ = ["ModelDriver"]

ANSWERED_S: Final = 30.0
"""How long to wait for an answer that was given already: long enough to read it."""
SHOWN: Final = 4000
FindHolder = Callable[[str], "Holder | None"]


class ModelDriver:
    """Gives attempts to one agent's model."""

    name = "model"
    capabilities = Capabilities(
        resumes=True,
        gated=True,
        interrupts=True,
        reports_tokens=True,
        reports_cost=True,
        preset_native_id=True,
    )

    def __init__(
        self,
        command: Sequence[str] = (),
        *,
        agent: str = "",
        chats: Chats | None = None,
        find_holder: FindHolder | None = None,
    ) -> None:
        self._agent = agent
        self._chats = chats
        self._find_holder = find_holder

    @asynccontextmanager
    async def launch(self, request: AttemptRequest) -> AsyncIterator[ModelRun]:
        """Prepare a run; the model is asked when its events are first read."""
        if self._chats is None or self._find_holder is None:
            raise NotSupportedError(driver=self.name, action="run outside of a supervisor")
        run = ModelRun(request, self._agent, self._chats, self._find_holder)
        async with asyncio.TaskGroup() as group:
            run.begin = lambda: group.create_task(run.work())
            try:
                yield run
            finally:
                run.leave()


class ModelRun:
    """One attempt of a model."""

    def __init__(self, request: AttemptRequest, agent: str, chats: Chats, find_holder: FindHolder) -> None:
        self._request = request
        self._agent = agent
        self._chats = chats
        self._find_holder = find_holder
        self._chat_id = request.resume or new_id("chat")
        self._queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue(256)
        self._questions: dict[str, asyncio.Future[bool]] = {}
        self._task: asyncio.Task[None] | None = None
        self._end: AttemptEnd | None = None
        self._stopped: Outcome | None = None
        self.begin: Callable[[], asyncio.Task[None]] | None = None

    @property
    def identity(self) -> ProcessIdentity | None:
        """There is no process of its own."""
        return None

    @property
    def native_id(self) -> str | None:
        """The chat that holds its history."""
        return self._chat_id

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Let the model work and tell what it does."""
        self._start()
        while (event := await self._queue.get()) is not None:
            yield event

    async def answer(self, request_id: str, answer: Answer) -> None:
        """A person answered; the gate reads the answer itself."""
        waiting = self._questions.get(request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(True)

    async def send(self, text: str) -> None:
        """A model listens only when it is asked."""
        raise NotSupportedError(driver="model", action="take a message while it works")

    async def interrupt(self) -> None:
        """Stop so that it can go on; while it waits for a person it parks, else its request is given up."""
        self._stopped = Outcome.INTERRUPTED
        waiting = [one for one in self._questions.values() if not one.done()]
        for one in waiting:
            one.set_result(False)
        if not waiting and self._task is not None:
            self._task.cancel()

    async def cancel(self) -> None:
        """Stop for good."""
        self._stopped = Outcome.CANCELLED
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> AttemptEnd:
        """Wait for the end; events that nobody read are dropped."""
        self._start()
        while self._task is not None and not self._task.done():
            while not self._queue.empty():
                self._queue.get_nowait()
            await asyncio.wait({self._task}, timeout=0.05)
        return self._end or AttemptEnd(Outcome.INTERRUPTED, "it was stopped", native_id=self._chat_id)

    def leave(self) -> None:
        """The block is left: nothing of it may go on."""
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        if self._task is None and self.begin is not None:
            self._task = self.begin()

    # ── working ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def work(self) -> None:
        """Run the model to an end; whatever happens there is one, and the reader is told."""
        try:
            end = await self._run()
            self._end = replace(await self._ended(end), native_id=self._chat_id)
        except ProctorError as error:
            self._end = AttemptEnd(
                Outcome.FAILED, str(error), failure=Failure.LAUNCH, native_id=self._chat_id
            )
        except asyncio.CancelledError:
            outcome = self._stopped or Outcome.INTERRUPTED
            self._end = AttemptEnd(outcome, f"the attempt was {outcome.value}", native_id=self._chat_id)
            raise
        finally:
            self._tell_end()

    def _tell_end(self) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def _run(self) -> TurnEnd:
        from proctor.agents.model_talk import Watch
        from proctor.agents.model_turn import TurnOutcome

        template = await asyncio.to_thread(self._template)
        watch = Watch(
            listen=self._listen, ask=self._ask, seconds=self._request.limits.timeout_s, template=template
        )
        said = await asyncio.to_thread(self._open, template.rules_from, template.trace_id)
        if said:
            end = await self._chats.go_on(self._chat_id, watch, force=True)
        else:
            end = await self._chats.say(self._chat_id, self._request.prompt, watch)
        while end.outcome is TurnOutcome.PARKED and self._stopped is None:
            question = AgentEvent(
                "permission_blocker",
                end.text,
                EventStatus.PENDING,
                details={"request_id": end.waiting_for[0], "approval_id": end.waiting_for[0]},
            )
            if not await self._wait(end.waiting_for[0], question):
                break
            end = await self._chats.go_on(self._chat_id, watch, force=True)
        return end

    def _template(self) -> Any:
        """Where and as whom it acts, by the attempt's own token: the same as for any other agent."""
        from proctor.gate.task_tokens import VARIABLE, TaskTokenError, held_call

        holder = self._find_holder(self._request.env.get(VARIABLE, ""))
        if holder is None:
            raise TaskTokenError(problem="void")
        return held_call("", {}, holder, self._chats.profile_of(holder.workspace))

    def _open(self, workspace: Any, trace_id: str) -> bool:
        """Make sure that the chat is there; whether something was said in it."""
        try:
            return self._chats.get(self._chat_id).messages > 0
        except NotFoundError:
            self._chats.open(
                self._agent,
                workspace=workspace,
                by="proctor",
                chat_id=self._chat_id,
                trace_id=trace_id,
                task_id=self._request.task_id,
            )
            return False

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen(self, event: TurnEvent) -> None:
        for told in _events(event):
            await self._queue.put(told)

    async def _ask(self, result: CallResult, event: TurnEvent) -> float:
        details = {"request_id": event.call_key, **event.details}
        question = AgentEvent("permission_blocker", event.text, EventStatus.PENDING, event.tool, details)
        return ANSWERED_S if await self._wait(event.call_key, question) else 0.0

    async def _wait(self, request_id: str, question: AgentEvent) -> bool:
        self._questions[request_id] = asyncio.get_running_loop().create_future()
        try:
            await self._queue.put(question)
            return await self._questions[request_id]
        finally:
            self._questions.pop(request_id, None)

    async def _ended(self, end: TurnEnd) -> AttemptEnd:
        read, written, micro, priced = await asyncio.to_thread(
            self._chats.spent, self._chat_id, attempt=self._request.attempt
        )
        usage = Usage(read, written, cost_usd=micro / 1_000_000 if priced else None)
        return replace(_attempt_end(end, self._request.prompt), usage=usage)


def _attempt_end(end: TurnEnd, prompt: str) -> AttemptEnd:
    from proctor.agents.model_turn import TurnOutcome

    if end.outcome is TurnOutcome.ANSWERED:
        handed_on = _delegations(end.text, prompt)
        return AttemptEnd(Outcome.SUCCEEDED, "done", final_text=end.text, delegations=handed_on)
    if end.outcome is TurnOutcome.PARKED:
        return AttemptEnd(Outcome.INTERRUPTED, end.text)
    if end.outcome is TurnOutcome.TIMED_OUT:
        return AttemptEnd(Outcome.TIMED_OUT, end.text, failure=Failure.DEADLINE)
    failure = Failure.LIMIT if end.outcome is TurnOutcome.LIMIT else end.failure
    return AttemptEnd(Outcome.FAILED, end.text, failure=failure, final_text=end.text)


def _events(event: TurnEvent) -> list[AgentEvent]:
    match event.kind:
        case "message" if event.text:
            return [AgentEvent("message", event.text), *claims(event.text)]
        case "tool_start":
            return [AgentEvent("tool_use", "", EventStatus.RUNNING, event.tool, dict(event.details))]
        case "tool_end":
            status = EventStatus.SUCCESS if event.details.get("ok") else EventStatus.WARNING
            return [AgentEvent("tool_result", event.text[:SHOWN], status, event.tool)]
        case "usage":
            return [AgentEvent("usage", details=dict(event.details))]
        case "retry":
            return [
                AgentEvent("status", event.text, EventStatus.WARNING, details=event.details, useful=False)
            ]
        case _:
            return []


def _delegations(text: str, prompt: str) -> tuple[Delegation, ...]:
    """The seed's decision, when the whole answer is one: handle it or hand it on."""
    stripped = text.strip().removeprefix("```json").removeprefix("```").removesuffix("```").strip()
    try:
        found = json.loads(stripped) if stripped.startswith("{") else None
    except (ValueError, RecursionError):
        return ()
    if not isinstance(found, dict) or found.get("decision") != "delegate":
        return ()
    agent = found.get("delegate_to")
    if not isinstance(agent, str) or not agent:
        return ()
    return (Delegation(agent, prompt, str(found.get("guidance") or "")[:SHOWN]),)
