"""A driver without a process, for tests and benchmarks of the engine: it does what a function says, at
once. Simulated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from proctor.agents.driver import AgentEvent, Answer, AttemptEnd, AttemptRequest, Capabilities, Outcome
from proctor.agents.identity import ProcessIdentity

__all__ = ["InstantDriver", "InstantRun", "succeed"]

Behaviour = Callable[[AttemptRequest, "InstantRun"], Awaitable[AttemptEnd]]


async def succeed(request: AttemptRequest, run: InstantRun) -> AttemptEnd:
    """Say done."""
    return AttemptEnd(Outcome.SUCCEEDED, "done", final_text="done", simulated=True)


class InstantRun:
    """One call of the behaviour."""

    def __init__(self, request: AttemptRequest, behaviour: Behaviour) -> None:
        self._request = request
        self._behaviour = behaviour
        self._end: AttemptEnd | None = None
        self.cancelled = False
        self.interrupted = False
        self.answers: dict[str, Answer] = {}

    @property
    def identity(self) -> ProcessIdentity | None:
        """There is no process."""
        return None

    @property
    def native_id(self) -> str | None:
        """One per task, so that going on can be seen."""
        return self._request.resume or f"instant-{self._request.task_id}"

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Nothing to tell but that it began and ended."""
        self._end = await self._behaviour(self._request, self)
        if self._end.final_text:
            yield AgentEvent("message", self._end.final_text)

    async def answer(self, request_id: str, answer: Answer) -> None:
        """Remember an answer."""
        self.answers[request_id] = answer

    async def send(self, text: str) -> None:
        """Nobody listens."""

    async def interrupt(self) -> None:
        """Note that it should stop; the behaviour looks at it."""
        self.interrupted = True

    async def cancel(self) -> None:
        """Note that it should stop for good."""
        self.cancelled = True

    async def end(self) -> AttemptEnd:
        """What the behaviour said, unless it was cancelled."""
        assert self._end is not None, "events are read before the end is asked for"
        if self.cancelled:
            return AttemptEnd(Outcome.CANCELLED, "cancelled", simulated=True)
        return self._end


class InstantDriver:
    """Gives every attempt to one function."""

    name = "instant"
    capabilities = Capabilities(resumes=True, simulated=True)

    def __init__(self, behaviour: Behaviour = succeed) -> None:
        self._behaviour = behaviour

    @asynccontextmanager
    async def launch(self, request: AttemptRequest) -> AsyncIterator[InstantRun]:
        """Run it when its events are read."""
        yield InstantRun(request, self._behaviour)
