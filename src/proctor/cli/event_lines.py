"""One event as one line, for every command that shows them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

import click

from proctor.cli.output import print_json

if TYPE_CHECKING:
    from proctor.protocol.events import Event

__all__ = ["clock", "print_event"]

_TEXT = 100


def print_event(event: Event, as_json: bool) -> None:
    """Print a line of text, or of JSON."""
    if as_json:
        print_json(event.model_dump(mode="json"), line=True)
        return
    text = json.dumps(event.details, ensure_ascii=False) if event.details else ""
    text = text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
    who = event.actor_name or event.actor.value
    what = f"{event.event} {event.tool_name}" if event.tool_name else event.event
    took = "" if event.duration_ms is None else f"  {event.duration_ms:.0f} ms"
    click.echo(
        f"{event.seq:>7}  {clock(event.ts)}  {event.status.value:<7}  {who:<10}  {what}{took}  {text}".rstrip()
    )


def clock(moment: datetime) -> str:
    """A moment as people read it."""
    return f"{moment:%Y-%m-%d %H:%M:%S}"
