"""What the commands about fix files share: where one stands, its exchange, and the lint's findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.proof.exchange import Exchange
    from proctor.proof.findings import LintFinding
    from proctor.proof.fixfile import FixDocument

__all__ = ["exchange_here", "findings_of", "print_findings", "root_here"]


def root_here() -> Path:
    """The workspace one stands in, else the directory itself."""
    from proctor.config.load import current_directory, find_workspace

    here = current_directory()
    return find_workspace(here) or here


def exchange_here() -> Exchange:
    """The exchange of the workspace one stands in."""
    from proctor.proof.exchange import Exchange

    return Exchange(root_here())


def findings_of(document: FixDocument, root: Path) -> list[LintFinding]:
    """Everything the lint says about a file and its name."""
    from proctor.proof.lint import lint_document, lint_name

    follow_up = document.data.previous_file is not None
    named = lint_name(document.name, document.data.review_id, follow_up=follow_up)
    return [*named, *lint_document(document, root=root)]


def print_findings(found: list[LintFinding]) -> None:
    """One finding a line."""
    for one in found:
        click.echo(f"  {one}")
