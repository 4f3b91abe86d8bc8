"""What all commands share in printing: `--json`, a table and sentences that fit the terminal and lose nothing in a pipe."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

__all__ = ["as_json_value", "columns", "fold", "json_option", "paint", "print_json", "print_table"]

F = TypeVar("F", bound=Callable[..., Any])
_GAP = 2
_SLIM = 12  # no column is made slimmer than this
_NARROW = 30  # a last column with less room than this goes below its row
_INDENT = 4


def json_option(command: F) -> F:
    """Add `--json` to a reading command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(command)


def as_json_value(value: object) -> Any:
    """Make what json does not know printable: moments as ISO 8601, everything else as text."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def print_json(value: object, *, line: bool = False) -> None:
    """Print JSON: indented for people, one line for streams and last lines."""
    text = json.dumps(value, default=as_json_value, ensure_ascii=False, indent=None if line else 2)
    click.echo(text)


def paint(text: str, **style: Any) -> str:
    """A text in colour or bold for a terminal; plain under NO_COLOR and on a terminal that knows no colours."""
    from proctor.config import environment

    environ = environment()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
    return text if plain else click.style(text, **style)


def columns() -> int | None:
    """How wide the terminal is; None where there is none, so that a pipe gets whole lines."""
    there = sys.stdout is not None and sys.stdout.isatty()  # None: the caller closed it
    return max(40, shutil.get_terminal_size().columns) if there else None


def fold(text: str, indent: int = 0, hang: int = 0) -> list[str]:
    """A sentence as lines that fit the terminal, the second and further ones with `hang` more spaces before them.

    What stands in backticks stays in one piece, to be copied.
    """
    width, before = columns(), " " * indent
    if width is None:
        return [before + text]
    kept = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    lines = textwrap.wrap(
        kept, width, initial_indent=before, subsequent_indent=before + " " * hang, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\0", " ") for line in lines] or [before]


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns aligned with spaces; a terminal that is too narrow gets wrapped cells, a pipe whole lines."""
    cells = [[str(cell) for cell in row] for row in rows]
    natural = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    room = columns()
    widths = natural if room is None else _fitted(natural, room)
    below = widths[-1] < min(natural[-1], _NARROW)
    for line in [list(headers), *cells]:
        for text in _below(line, widths) if below else _beside(line, widths):
            click.echo(text)


def _fitted(natural: Sequence[int], room: int) -> list[int]:
    """The widest column gives way first; the first one holds names to be copied, so it gives way last."""
    widths = list(natural)
    others = range(1, len(widths))
    for movable in ([max(others, key=natural.__getitem__, default=0)], others, range(len(widths))):
        while sum(widths) + _GAP * (len(widths) - 1) > room and any(widths[i] > _SLIM for i in movable):
            widths[max(movable, key=widths.__getitem__)] -= 1
    return widths


def _beside(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    parts = [_wrapped(cell, width) for cell, width in zip(line, widths, strict=True)]
    for number in range(max(map(len, parts))):
        texts = [part[number] if number < len(part) else "" for part in parts]
        yield (" " * _GAP).join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def _below(line: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """The last cell on lines of its own where it does not fit beside the others."""
    if len(line[-1]) <= widths[-1]:
        yield from _beside(line, widths)
        return
    yield from _beside([*line[:-1], ""], widths)
    yield from fold(line[-1], _INDENT)


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False) or [""]
