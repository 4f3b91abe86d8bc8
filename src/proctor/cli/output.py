"""What all commands share in printing: `--json` and a table that fits a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

__all__ = ["as_json_value", "json_option", "print_json", "print_table"]

F = TypeVar("F", bound=Callable[..., Any])


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
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns aligned with spaces; plain text, so that a pipe gets what the eye gets."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    for line in [list(headers), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
