"""Plans on a real gate with small real tools and stand-ins for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proctor.engine.plan_run import Doors, Waits
from proctor.engine.plans import Plans
from proctor.gate.gate import Gate, Tools
from proctor.protocol.events import Event
from proctor.protocol.plans import ExecutionContext, ExecutionResult, Plan, PlanStep
from proctor.sandbox.spec import Level
from proctor.store.database import Database
from proctor.trace.reader import stream
from tests.gate.world import World

__all__ = ["PlanWorld", "failure", "step"]

TRACE = "trace_t"


def step(tool: str, effect: str = "read-only", domain: str = "engagement", **more: Any) -> PlanStep:
    """A step with metadata as the seed writes it."""
    metadata = {"side_effect_class": effect, "domain": domain, **more.pop("metadata", {})}
    return PlanStep(tool=tool, metadata=metadata, **more)


class PlanWorld(World):
    """A gate, and plans that go through it."""

    def __init__(self, database: Database, home: Path, **more: Any) -> None:
        super().__init__(database, home, **more)
        self.slept: list[float] = []
        doors = Doors(self.gate, self.registry.__contains__, self._stand_in)
        self.plans = Plans(
            database=database,
            writer=self.writer,
            doors=doors,
            settings_for=self.settings,
            clock=self.clock,
        )

    def _stand_in(self, tools: Tools) -> Gate:
        return Gate(
            tools=tools,
            database=self.database,
            writer=self.writer,
            redactor=self.redactor,
            settings_for=self.settings,
            clock=self.clock,
            level=lambda: Level.LIMITS,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def execute(
        self, *steps: PlanStep, trace_id: str = TRACE, hold_s: float = 0.0, **more: Any
    ) -> ExecutionResult:
        """Run these steps as one plan, here."""
        plan = Plan(goal="test", steps=steps, **{"profile": "technical", **more})
        return await self.again(plan, trace_id=trace_id, hold_s=hold_s)

    async def again(self, plan: Plan, *, trace_id: str = TRACE, hold_s: float = 0.0) -> ExecutionResult:
        """Run a plan, or go on with it."""
        waits = Waits(hold_s=hold_s, sleep=self._sleep, chance=lambda: 0.5)
        context = ExecutionContext(trace_id=trace_id, request_id="r1", user_intent="test", memory_scope="s")
        return await self.plans.execute_plan(plan, context, workspace=self.workspace, waits=waits)

    def trace(self, trace_id: str = TRACE) -> list[Event]:
        """All events of a trace."""
        return list(stream(self.database, trace_id))

    def names(self, trace_id: str = TRACE) -> list[str]:
        """The canonical events by name."""
        return [event.event for event in self.trace(trace_id) if event.kind.value == "canonical"]


def failure(result: ExecutionResult) -> Mapping[str, Any]:
    """The failure context, which must be there."""
    assert result.failure_context is not None
    return result.failure_context
