"""What all agents that are programs share: launch, lines to events, watchdogs, and how the end is judged.

A driver adds two things: the command, and a `Normalizer` that turns native lines into our events without
any I/O. Success needs the terminal event AND exit code 0; a stop that we ordered is named by its first
cause.
"""

from __future__ import annotations

import asyncio
import json
import signal
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

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
    Run,
    Usage,
)
from proctor.agents.failures import from_text
from proctor.agents.identity import ProcessIdentity
from proctor.agents.lines import Line, LineSplitter
from proctor.agents.process import Command, Exit, Kept, keep
from proctor.protocol.events import EventStatus
from proctor.sandbox.process import TreeLimits

__all__ = [
    "CliRun",
    "Normalizer",
    "StreamDriver",
    "Terminal",
    "cap",
    "judge",
    "parse_line",
    "raw_event",
    "small",
    "steps_done",
]

TEXT_CAP = 32 * 1024
RAW_CAP = 64 * 1024


@dataclass(frozen=True, slots=True)
class Terminal:
    """The agent's last word on its own work."""

    ok: bool
    reason: str
    failure: Failure = Failure.NONE


class Normalizer(Protocol):
    """Native objects in, our events out; remembers what the end needs. No I/O, no clock."""

    native_id: str | None
    usage: Usage
    final_text: str
    terminal: Terminal | None
    delegations: tuple[Delegation, ...]

    def feed(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        """Translate one native object; what is unknown becomes a `native` event with the raw object."""
        ...


class StreamDriver:
    """Base of the drivers whose agent is a program that prints JSON lines."""

    name = ""
    capabilities = Capabilities()
    interrupt_signal = signal.SIGINT
    program: tuple[str, ...] = ()

    def __init__(self, command: Sequence[str] = ()) -> None:
        self.program = tuple(command) or self.program

    def command(self, request: AttemptRequest, native_id: str | None) -> Command:
        """Say what to run."""
        raise NotImplementedError

    def normalizer(self, request: AttemptRequest, native_id: str | None) -> Normalizer:
        """Make a fresh translator for one run."""
        raise NotImplementedError

    def encode_answer(self, request_id: str, answer: Answer) -> bytes:
        """Say an answer in the agent's own words."""
        raise NotSupportedError(driver=self.name, action="be answered")

    def encode_message(self, text: str) -> bytes:
        """Say a message in the agent's own words."""
        raise NotSupportedError(driver=self.name, action="be spoken to while it works")

    @asynccontextmanager
    async def launch(self, request: AttemptRequest) -> AsyncIterator[Run]:
        """Hold the process ready; see the port."""
        native_id = request.resume
        if native_id is None and self.capabilities.preset_native_id:
            native_id = str(uuid.uuid4())
        async with keep() as kept:
            run = CliRun(self, request, kept, native_id)
            try:
                yield run
            finally:
                run.disarm()


class CliRun:
    """One attempt of a program; see `driver.Run`."""

    def __init__(
        self, driver: StreamDriver, request: AttemptRequest, kept: Kept, native_id: str | None
    ) -> None:
        self._driver = driver
        self._request = request
        self._kept = kept
        self._normalizer = driver.normalizer(request, native_id)
        self._command = driver.command(request, native_id)
        self._lines = LineSplitter(request.limits.line_bytes)
        self._read = 0
        self._cause: AttemptEnd | None = None
        self._error = ""
        self._pending: deque[AgentEvent] = deque()
        self._ended = False
        self._drained = False
        self._reading = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def identity(self) -> ProcessIdentity:
        """Who to look for after a crash."""
        return self._kept.identity

    @property
    def native_id(self) -> str | None:
        """The agent's own conversation id."""
        return self._normalizer.native_id

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Release the agent; give its events until its output ends."""
        self._arm("deadline", self._request.limits.timeout_s)
        self._arm("silence", self._request.limits.silence_s)
        limits = self._request.limits
        wanted = TreeLimits(memory_mb=limits.memory_mb, cpu_percent=limits.cpu_percent)
        self._error = await self._kept.start(self._command, wanted)
        while await self._fill():
            while self._pending:
                yield self._pending.popleft()
        self._drained = True

    async def _fill(self) -> bool:
        """Read and translate one chunk; False when there is nothing more."""
        chunk = b"" if self._ended else await self._next()
        self._ended = not chunk
        for line in self._lines.feed(chunk) if chunk else self._lines.finish():
            self._pending.extend(self._translate(line))
        return bool(chunk or self._pending)

    async def answer(self, request_id: str, answer: Answer) -> None:
        """Answer a permission request."""
        self._kept.write(self._driver.encode_answer(request_id, answer))

    async def send(self, text: str) -> None:
        """Say something to the agent."""
        self._kept.write(self._driver.encode_message(text))

    async def interrupt(self) -> None:
        """Stop the turn politely; what does not listen is stopped after the grace."""
        self._because(Outcome.INTERRUPTED, "interrupted on request", Failure.NONE)
        self._kept.signal(self._driver.interrupt_signal)
        grace = self._request.limits.grace_s
        self._timers["stop"] = asyncio.get_running_loop().call_later(grace, self._kept.stop, grace)

    async def cancel(self) -> None:
        """Stop for good."""
        self._because(Outcome.CANCELLED, "cancelled on request", Failure.NONE)
        self._kept.stop(self._request.limits.grace_s)

    async def end(self) -> AttemptEnd:
        """Wait for the end and judge it."""
        if not self._drained:
            async for _ in self.events():
                pass
        exit_ = await self._kept.wait()
        self.disarm()
        return self._judge(exit_)

    def disarm(self) -> None:
        """Forget all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _next(self) -> bytes:
        self._reading = True
        chunk = await self._kept.read()
        self._reading = False
        self._read += len(chunk)
        if self._read > self._request.limits.output_bytes:
            self._stop(
                Outcome.FAILED, f"wrote more than {self._request.limits.output_bytes} bytes", Failure.LIMIT
            )
            return b""
        return chunk

    def _translate(self, line: Line) -> list[AgentEvent]:
        native = parse_line(line)
        events = [native] if isinstance(native, AgentEvent) else self._normalizer.feed(native)
        if any(event.useful for event in events):
            self._arm("silence", self._request.limits.silence_s)
        return events

    def _arm(self, name: str, seconds: float) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, self._expired, name, seconds)

    def _expired(self, name: str, seconds: float) -> None:
        if name == "deadline":
            self._stop(Outcome.TIMED_OUT, f"took longer than {seconds:g} s", Failure.DEADLINE)
        elif self._reading:
            self._stop(Outcome.TIMED_OUT, f"no sign of progress for {seconds:g} s", Failure.SILENT)
        else:  # our own reader is slow, not the agent
            self._arm(name, seconds)

    def _stop(self, outcome: Outcome, reason: str, failure: Failure) -> None:
        self._because(outcome, reason, failure)
        self._kept.stop(self._request.limits.grace_s)

    def _because(self, outcome: Outcome, reason: str, failure: Failure) -> None:
        self._cause = self._cause or AttemptEnd(outcome, reason, failure)

    def _judge(self, exit_: Exit) -> AttemptEnd:
        found = self._normalizer
        if exit_.limit == "memory":
            text = f"used more than the {self._request.limits.memory_mb} MiB of memory it may have"
            self._because(Outcome.FAILED, text, Failure.LIMIT)
        verdict = judge(found.terminal, exit_, self._error, self._kept.stderr.text, self._cause)
        return replace(
            verdict,
            native_id=found.native_id,
            usage=found.usage,
            exit_code=exit_.code,
            final_text=cap(found.final_text),
            delegations=found.delegations,
            left=exit_.left,
            simulated=self._driver.capabilities.simulated,
        )


def judge(
    terminal: Terminal | None, exit_: Exit, error: str, stderr: str, cause: AttemptEnd | None
) -> AttemptEnd:
    """Decide the outcome from the facts: pure, and success only when all of them agree."""
    if error:
        return AttemptEnd(Outcome.FAILED, f"could not be started: {error}", Failure.LAUNCH)
    done = terminal is not None and terminal.ok and exit_.code == 0
    if cause is not None and not (done and cause.outcome is not Outcome.CANCELLED):
        return cause
    if terminal is None:
        return _without_word(exit_, stderr)
    if not terminal.ok:
        return AttemptEnd(Outcome.FAILED, terminal.reason, terminal.failure or Failure.AGENT)
    if exit_.code != 0:
        return AttemptEnd(Outcome.FAILED, f"said success but ended with {_code(exit_)}", Failure.CRASHED)
    return AttemptEnd(Outcome.SUCCEEDED, terminal.reason)


def _without_word(exit_: Exit, stderr: str) -> AttemptEnd:
    if exit_.code is None or exit_.code < 0:
        return AttemptEnd(
            Outcome.INTERRUPTED, f"was killed ({_code(exit_)}) before it said how it ended", Failure.CRASHED
        )
    failure = from_text(stderr)
    last = stderr.strip().splitlines()[-1:] or ["nothing on stderr"]
    reason = f"ended with {_code(exit_)} without a result: {cap(last[0], 500)}"
    return AttemptEnd(Outcome.FAILED, reason, failure or Failure.NO_RESULT)


def _code(exit_: Exit) -> str:
    if exit_.code is None:
        return "its keeper was killed"
    if exit_.code < 0:
        return f"signal {-exit_.code}"
    return f"exit code {exit_.code}"


def parse_line(line: Line) -> Mapping[str, Any] | AgentEvent:
    """Read one line as a JSON object; anything else is kept as a raw event that counts for nothing."""
    try:
        native = None if line.truncated else json.loads(line.text)
    except (ValueError, RecursionError):
        native = None
    if isinstance(native, dict):
        return native
    details: dict[str, Any] = {"raw": cap(line.text, RAW_CAP)}
    if line.truncated:
        details["truncated"] = True
    return AgentEvent("native", status=EventStatus.WARNING, details=details, useful=False)


def raw_event(native: Mapping[str, Any], *, useful: bool = True) -> AgentEvent:
    """Keep an unknown native object as it is, within the cap."""
    text = json.dumps(native, ensure_ascii=False)
    kept: Any = native if len(text) <= RAW_CAP else cap(text, RAW_CAP)
    return AgentEvent(
        "native", details={"native_type": str(native.get("type", "")), "raw": kept}, useful=useful
    )


def small(given: Any, limit: int = 8192) -> Any:
    """Keep a tool's input as it is, or as cut text when it is large."""
    text = json.dumps(given, ensure_ascii=False)
    return given if len(text) <= limit else cap(text, limit)


def steps_done(done: int, total: int) -> list[AgentEvent]:
    """Make progress of an agent's own list of steps; an empty list says nothing."""
    if total == 0:
        return []
    details = {"progress": round(100 * done / total, 1)}
    return [AgentEvent("progress", f"{done} of {total} steps", EventStatus.RUNNING, details=details)]


def cap(text: str, limit: int = TEXT_CAP) -> str:
    """Cut a text to a limit and say so."""
    return text if len(text) <= limit else f"{text[:limit]}… truncated: {len(text) - limit} more characters"
