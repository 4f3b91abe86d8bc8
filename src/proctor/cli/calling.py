"""One way for commands to use a tool: through the gate, as the person at the terminal (or, stricter, as an agent)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.protocol.errors import ProctorError

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.gate.gate import Gate
    from proctor.protocol.tools import Actor, CallResult

__all__ = [
    "EXIT_NEEDS_YOU",
    "CallFailedError",
    "Desk",
    "call_tool",
    "draw_progress",
    "open_desk",
    "output_of",
]

EXIT_NEEDS_YOU = 3
LINE = 100


class CallFailedError(ProctorError):
    """{message}"""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message=message)
        # The gate's answer decides the exit code, so it belongs to this failure and not to the class.
        vars(self)["exit_code"] = exit_code


class Desk:
    """Calls tools of one workspace, all in one trace, by one actor."""

    def __init__(self, gate: Gate, actor: Actor, workspace: Path | None, profile: str) -> None:
        from proctor.protocol.ids import new_id

        self._gate, self._actor, self._workspace, self._profile = gate, actor, workspace, profile
        self._trace_id = new_id("trace")

    async def call(
        self,
        tool: str,
        inputs: Mapping[str, Any],
        progress: Callable[[str, float | None], None] | None = None,
    ) -> CallResult:
        """Pass the gate."""
        from proctor.protocol.tools import Call

        call = Call(
            tool=tool,
            inputs=inputs,
            actor=self._actor,
            profile=self._profile,
            workspace=self._workspace,
            trace_id=self._trace_id,
        )
        return await self._gate.run(call, progress=progress)

    async def close(self) -> None:
        """Let the run's snapshot go, so that retention may take it when it is old."""
        await self._gate.finish_run(self._trace_id)


@asynccontextmanager
async def open_desk(
    workspace: Path | None = None, *, profile: str | None = None, as_agent: str | None = None
) -> AsyncIterator[Desk]:
    """Open the house, say who asks, and give everything back at the end."""
    from proctor.app import open_app
    from proctor.config import current_directory
    from proctor.sandbox.process import close_idle_keepers

    app = open_app(workspace)
    try:
        place = workspace or app.settings.workspace or current_directory()
        desk = Desk(app.gate, _actor(app, as_agent), place, profile or app.settings.profile)
        try:
            yield desk
        finally:
            await desk.close()
    finally:
        app.close()
        close_idle_keepers()


def _actor(app: App, as_agent: str | None) -> Actor:
    """Who asks: the user, if this is not a child of something Proctor started; an agent only by name."""
    import getpass

    from proctor.gate.humans import user_at_terminal
    from proctor.protocol.events import ActorKind
    from proctor.protocol.tools import Actor

    if as_agent is not None:
        return Actor(ActorKind.AGENT, as_agent)
    settings = app.settings
    human = user_at_terminal(settings.environ, token_file=settings.paths.token_file, name=getpass.getuser())
    return Actor(ActorKind.HUMAN, human.name)


def call_tool(
    tool: str, inputs: Mapping[str, Any], *, workspace: Path | None = None, progress: bool = False
) -> dict[str, Any]:
    """Use a tool once and give its output; raises what the gate or the tool said against it."""

    async def go() -> CallResult:
        async with open_desk(workspace) as desk:
            return await desk.call(tool, inputs, draw_progress() if progress else None)

    done = asyncio.run(go())
    if progress:
        end_progress()
    return output_of(done)


def output_of(done: CallResult) -> dict[str, Any]:
    """The output; a refusal, a failure or an open question is raised with its exit code."""
    for note in done.notes:
        click.echo(note, err=True)
    if done.waiting:
        message = f"It waits for an answer: `proctor approve {done.approval_id}` or `proctor deny …`."
        raise CallFailedError(message, EXIT_NEEDS_YOU)
    if done.error is not None:
        raise CallFailedError(done.error.message, done.error.exit_code)
    return dict(done.output or {})


def draw_progress() -> Callable[[str, float | None], None] | None:
    """Draw what is being done on standard error, if somebody looks at it."""
    if not sys.stderr.isatty():
        return None

    def draw(what: str, share: float | None) -> None:
        part = "" if share is None else f" ({share:.0%})"
        text = "".join(char if char.isprintable() else " " for char in what + part)
        click.echo(f"\r{text[:LINE]}".ljust(LINE + 1), err=True, nl=False)

    return draw


def end_progress() -> None:
    """Leave the line of the progress."""
    if sys.stderr.isatty():
        click.echo(err=True)
