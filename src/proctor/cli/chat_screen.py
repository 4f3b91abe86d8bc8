"""What a person sees of a chat in the terminal, and how they answer questions there.

A model's text is shown without a terminal's control characters: what it read may want to fool whoever looks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.asking import forget_typed
from proctor.cli.output import paint
from proctor.protocol.errors import ProctorError

if TYPE_CHECKING:
    from proctor.agents.model_turn import TurnEnd, TurnEvent
    from proctor.app import App
    from proctor.protocol.tools import CallResult

__all__ = ["Screen"]

HELD_SECONDS = 30.0
LINE = 4096
SHORT = 160
_KEPT = "\n\t"


class Screen:
    """The terminal of one chat."""

    def __init__(self, app: App, *, streams: bool, quiet: bool = False) -> None:
        self._app = app
        self._streams = streams
        self._quiet = quiet
        self._attached = not quiet and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
        self._open_line = False
        self._asking = asyncio.Lock()

    @staticmethod
    def tame(text: str) -> str:
        """The text without what would move the cursor or change colours."""
        return "".join(char if char.isprintable() or char in _KEPT else "�" for char in text)

    # ── showing ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def listen(self, event: TurnEvent) -> None:
        """Show what happens."""
        if self._quiet:
            return
        if event.kind == "text" and self._streams:
            click.echo(self.tame(event.text), nl=False)
            self._open_line = True
            sys.stdout.flush()
        elif event.kind == "tool_start":
            self._note(f"· {event.tool} {_short(event.details.get('input'))}")
        elif event.kind == "tool_end" and not event.details.get("ok"):
            self._note(f"  {event.tool}: {_sentence(event.text)[:SHORT]}")
        elif event.kind == "retry":
            self._note(f"{event.text} Again in {event.details.get('seconds', 0):.0f} s.")

    def _note(self, text: str) -> None:
        if self._open_line:
            click.echo()
            self._open_line = False
        click.echo(paint(self.tame(text), dim=True), err=True)

    async def end(self) -> None:
        """The answer is complete."""
        if self._open_line:
            click.echo()
            self._open_line = False

    def finish(self, end: TurnEnd) -> None:
        """Say how the turn ended, where the streamed text does not."""
        if not end.ok:
            click.echo(self.tame(end.text), err=True)

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, result: CallResult, event: TurnEvent) -> float:
        """A call waits for a person: ask the one who sits here."""
        if result.approval_id is None or not await self.ask_for([result.approval_id]):
            return 0.0
        return HELD_SECONDS

    async def ask_for(self, approval_ids: Sequence[str]) -> bool:
        """Have these questions answered; False when one was left for later, or nobody sits here."""
        if not self._attached or not approval_ids:
            return False
        async with self._asking:
            for approval_id in approval_ids:
                if not await self._one(approval_id):
                    return False
        return True

    async def _one(self, approval_id: str) -> bool:
        row = await asyncio.to_thread(self._question, approval_id)
        if row is None:
            return True
        self._note(str(row["action"]))
        for line in row["consequences"]:
            self._note(f"  {line}")
        forget_typed()
        click.echo("Allow it? [y]es, [n]o, [l]ater: ", nl=False, err=True)
        said = (await _line()).strip().lower()
        if said not in {"y", "yes", "n", "no"}:
            self._note(f"Left for later: `proctor approve {approval_id}` or `proctor deny …`.")
            return False
        return await asyncio.to_thread(self._answer, approval_id, said.startswith("y"))

    def _question(self, approval_id: str) -> dict[str, Any] | None:
        from proctor.store.tables import approvals

        query = approvals.select().where(
            approvals.c.approval_id == approval_id, approvals.c.status == "pending"
        )
        with self._app.database.read() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else dict(row)

    def _answer(self, approval_id: str, yes: bool) -> bool:
        from datetime import UTC, datetime

        from proctor.cli.approve import recognised
        from proctor.gate.approvals import answer

        try:
            who = recognised(self._app.settings)
            self._app.writer.transact(
                lambda c: answer(c, approval_id, approved=yes, by=who, now=datetime.now(UTC))
            )
        except ProctorError as error:
            self._note(str(error))
            return False
        return True


def _short(value: object) -> str:
    text = " ".join(f"{name}={item!r}" for name, item in value.items()) if isinstance(value, dict) else ""
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


async def _line() -> str:
    """One line from the terminal, so that Ctrl-C can still end the waiting; a thread in `input` could not be left."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[str] = loop.create_future()
    handle = sys.stdin.fileno()

    def ready() -> None:
        if not told.done():
            told.set_result(os.read(handle, LINE).decode(errors="replace"))

    loop.add_reader(handle, ready)
    try:
        return await told
    finally:
        loop.remove_reader(handle)


def _sentence(text: str) -> str:
    """What a failed call says to people; the model gets it as JSON with a code."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return str(told.get("error") or text) if isinstance(told, dict) else text
