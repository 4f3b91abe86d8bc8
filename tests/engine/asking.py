"""A driver without a process that asks for permission before it does its one effect. Simulated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from proctor.agents.driver import AgentEvent, AttemptEnd, AttemptRequest, Capabilities, Outcome
from proctor.testing.instant import InstantRun, succeed

__all__ = ["AskingDriver", "AskingRun"]


class AskingRun(InstantRun):
    """Asks for each call in turn; does what was allowed."""

    def __init__(self, request: AttemptRequest, driver: AskingDriver) -> None:
        super().__init__(request, succeed)
        self._driver = driver

    async def events(self) -> AsyncIterator[AgentEvent]:
        """Ask, then do or leave it; stops when it is interrupted or cancelled."""
        self._end = AttemptEnd(Outcome.SUCCEEDED, "done", native_id=self.native_id, simulated=True)
        for number, call in enumerate(self._driver.calls):
            details = {"request_id": str(number), "input": dict(call)}
            yield AgentEvent("permission_blocker", f"may I {call}?", tool_name="run", details=details)
            if self.interrupted or self.cancelled:
                self._end = AttemptEnd(Outcome.INTERRUPTED, "stopped", native_id=self.native_id)
                return
            if self.answers[str(number)].allow:
                self._driver.done.append(dict(call))
            else:
                self._driver.refused.append(dict(call))
                self._driver.reasons.append(self.answers[str(number)].reason)
        await asyncio.sleep(0)


class AskingDriver:
    """Remembers what was allowed and what was refused."""

    name = "asking"
    capabilities = Capabilities(resumes=True, gated=True, interrupts=True, simulated=True)

    def __init__(self, *calls: Mapping[str, Any]) -> None:
        self.calls = calls or ({"command": "deploy"},)
        self.done: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self.reasons: list[str] = []
        self.requests: list[AttemptRequest] = []

    @asynccontextmanager
    async def launch(self, request: AttemptRequest) -> AsyncIterator[AskingRun]:
        """Begin to ask."""
        self.requests.append(request)
        yield AskingRun(request, self)
