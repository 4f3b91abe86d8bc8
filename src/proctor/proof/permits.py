"""Permits for proof runs from the one door (law 1): every command of every leg is a call of actor Proctor.

The gate judges, counts and traces it; what it refuses was not run, and the proof says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from proctor.config import Settings
from proctor.gate.context import Context
from proctor.gate.gate import Gate
from proctor.protocol.errors import UsageError
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import new_id
from proctor.protocol.permits import Permit
from proctor.protocol.tools import Actor, Call, Runs, SideEffect, Tool
from proctor.store.database import Database
from proctor.tools.registry import Registry, declare
from proctor.trace.rows import Redacts
from proctor.trace.writer import TraceWriter

__all__ = ["PROOF_TRACE", "GatePermits", "proof_gate", "proof_tool"]

#: The trace of the proof at hand; each fix of a file has its own, and with it a budget of its own.
PROOF_TRACE: ContextVar[str | None] = ContextVar("proof_trace", default=None)

NAME = "prove_command"
_GRACE = 60.0  # what making and clearing a checkout may take beyond the command's own limit


class ProofCommand(BaseModel):
    """One line of bash that judges a checkout."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: str = Field(min_length=1, description="Command line for bash, run in a clean checkout.")


class ProofDone(BaseModel):
    """Nothing: results are in the receipt."""


async def _refuse(_context: Context, _inputs: ProofCommand) -> ProofDone:
    raise UsageError(message="Proof commands are run by `proctor check` and `proctor fixes verify`.")


def proof_tool(seconds: float) -> Tool:
    """The capability to run one command for so long; it touches a throw-away checkout, so nothing is saved first."""
    return declare(
        name=NAME,
        summary="Run one command of a proof in a clean checkout, confined and without network.",
        input=ProofCommand,
        output=ProofDone,
        domain="command",
        side_effect=SideEffect.EXECUTE,
        handler=_refuse,
        touches=lambda inputs: [Runs(inputs.command)],
        seconds=seconds + _GRACE,
        snapshot=False,
    )


def proof_gate(
    database: Database, writer: TraceWriter, redactor: Redacts, settings_for: Callable[[Path | None], Settings], *,
    seconds: float,
) -> Gate:  # fmt: skip
    """A door with this one tool."""
    tools = Registry([proof_tool(seconds)])
    return Gate(tools=tools, database=database, writer=writer, redactor=redactor, settings_for=settings_for)


class GatePermits:
    """Gives runs their permits, in one trace unless `PROOF_TRACE` says otherwise."""

    def __init__(self, gate: Gate, *, profile: str, trace_id: str | None = None) -> None:
        self._gate = gate
        self._profile = profile
        self.trace_id = trace_id or new_id("trace")

    @contextlib.asynccontextmanager
    async def __call__(self, command: str, *, workspace: Path, seconds: float) -> AsyncIterator[Permit]:
        """Open a call for exactly this command; leaving the block settles it."""
        call = Call(
            tool=NAME,
            inputs={"command": command},
            actor=Actor(ActorKind.PROCTOR, "proof"),
            profile=self._profile,
            workspace=workspace,
            trace_id=PROOF_TRACE.get() or self.trace_id,
        )
        async with self._gate.open(call) as opened:
            yield opened.permit
