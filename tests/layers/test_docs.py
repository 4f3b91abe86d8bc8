"""Docs say what is so: generated pages equal the code, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proctor.cli.main import COMMANDS
from proctor.cli.reference import EXIT_CODES, PAGES
from proctor.protocol.errors import ProctorError
from tests.layers.tree import ROOT

REFERENCE = ROOT / "docs" / "reference"
MARKDOWN = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str) -> None:
    """The committed page equals what the code renders; `python3 dev.py docs` brings it up to date."""
    assert (REFERENCE / name).read_text() == PAGES[name]()


def test_every_command_is_documented() -> None:
    """Each command of the table has its section, and no section names another."""
    page = (REFERENCE / "commands.md").read_text()
    headings = [
        line.removeprefix("## proctor ") for line in page.splitlines() if line.startswith("## proctor ")
    ]
    assert sorted(headings) == sorted(COMMANDS)


def test_exit_codes_are_documented() -> None:
    """Every exit code an error can give is on the page."""
    codes, todo = set(), [ProctorError]
    while todo:
        kind = todo.pop()
        codes.add(kind.exit_code)
        todo.extend(kind.__subclasses__())
    assert codes <= set(EXIT_CODES)


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that exists."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_fits_on_one_screen_and_starts_with_the_two_commands() -> None:
    """A newcomer sees at once what to type."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    assert text.index("python3 dev.py demo") < text.index("python3 dev.py test")
