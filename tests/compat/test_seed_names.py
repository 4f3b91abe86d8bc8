"""docs/reference/seed-names.md says what is so: every row is imported, found or called."""

from __future__ import annotations

import importlib
import re
from functools import reduce

import click
import pytest

from proctor.cli.main import COMMANDS, cli
from proctor.compat import orchestrator
from proctor.gate.profiles import find_profile
from proctor.protocol.events import CANONICAL
from proctor.store import tables
from proctor.tools.catalog import standard_registry
from tests.layers.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "seed-names.md"
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (?:(\w+) )?`([^`|]+)` \|$", PAGE.read_text(), re.MULTILINE)


def _command(words: str) -> bool:
    first, *rest = words.split()
    if first not in COMMANDS:
        return False
    found = cli.get_command(click.Context(cli), first)
    for word in rest:
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found is not None


def _imported(place: str) -> bool:
    module, _, names = place.partition(":")
    return reduce(getattr, names.split("."), importlib.import_module(module)) is not None


CHECKS = {
    "": _imported,
    "tool": lambda name: name in standard_registry(),
    "event": lambda name: name in CANONICAL,
    "profile": lambda name: find_profile(name).name == name,
    "table": lambda name: hasattr(tables, name),
    "command": _command,
}


@pytest.mark.parametrize(("seed", "ours", "kind", "place"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_every_row_leads_to_something_real(seed: str, ours: str, kind: str, place: str) -> None:
    """What the page names is there under that name."""
    assert CHECKS[kind](place), f"{seed}: {place} is not there"


def test_page_has_no_row_the_check_does_not_see() -> None:
    """A row in another form would not be checked."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert len(lines) - 2 == len(ROWS)  # two heads


def test_every_export_of_the_facade_is_on_the_page() -> None:
    """And every canonical event."""
    text = PAGE.read_text()
    families = {"FailureCategory", "FailureSeverity"}  # properties of FailureMode
    assert [name for name in orchestrator.__all__ if f"`{name}" not in text and name not in families] == []
    assert [name for name in CANONICAL if f"event `{name}`" not in text] == []
