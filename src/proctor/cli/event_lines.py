"""One event as one line, wrapped at words on a terminal, for every command that shows them; `--json` has all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import fold, print_json

if TYPE_CHECKING:
    from proctor.protocol.events import Event

__all__ = ["clock", "print_event", "shortened"]

_LINE = 240
_HANG = 8
_PLAIN = frozenset({"success", "running"})  # what an event's own name says already
_SAID = frozenset({"text", "reason", "description", "error"})  # words for people come first
# Names of other rows, and what every call has: needed to join, not to read.
_QUIET = frozenset({"call", "call_id", "domain", "executor", "native_id", "side_effect"})


def print_event(event: Event, as_json: bool) -> None:
    """Print a line of text, or of JSON."""
    if as_json:
        print_json(event.model_dump(mode="json"), line=True)
        return
    who = event.actor_name or event.actor.value
    what = [event.event, event.tool_name or ""]
    what += [f"[{event.status.value}]"] if event.status.value not in _PLAIN else []
    what += [f"{event.duration_ms:.0f} ms"] if event.duration_ms is not None else []
    line = f"{event.seq:>6}  {clock(event.ts)[5:]}  {who:<8}  {' '.join(filter(None, what))}"
    click.echo("\n".join(fold(shortened("  ".join([line, *_facts(event.details)]), _LINE), hang=_HANG)))


def _facts(details: Mapping[str, Any]) -> Iterator[str]:
    for key, value in sorted(details.items(), key=lambda item: item[0] not in _SAID):
        if key in {"input", "inputs"} and isinstance(value, Mapping):
            yield from _facts(value)
        elif key not in _QUIET and value not in (None, "", [], {}) and (key, value) != ("simulated", False):
            yield f"{key}={_word(value)}"


def _word(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable() and " " not in value
    return str(value) if plain else json.dumps(value, ensure_ascii=False)


def shortened(text: str, most: int) -> str:
    """A text as one line of at most so many characters; nothing in it is obeyed by a terminal."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= most else line[: most - 1] + "…"


def clock(moment: datetime) -> str:
    """A moment as the clock on the reader's wall shows it."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
