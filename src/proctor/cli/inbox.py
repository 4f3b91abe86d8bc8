"""`proctor inbox`: every question that waits for a person, with what would happen; and the standing grants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from proctor.cli.output import json_option, print_json, print_table

__all__ = ["inbox", "print_question"]

SHOWN_LINES = 12


@click.command()
@click.option(
    "--grants", "show_grants", is_flag=True, help="Show what was granted for a whole class of acts."
)
@click.option("--revoke", metavar="GRANT", help="Take a grant back; such acts ask again.")
@json_option
def inbox(show_grants: bool, revoke: str | None, as_json: bool) -> None:
    """Show what waits for your answer, what it would do, and until when.

    Answer with `proctor approve ID` or `proctor deny ID --reason …`. Equal questions are answered together.
    """
    if revoke is not None:
        _revoke(revoke, as_json)
    elif show_grants:
        _show_grants(as_json)
    else:
        _show_questions(as_json)


def _show_questions(as_json: bool) -> None:
    from proctor.app import open_app
    from proctor.gate.approvals import pending

    now = datetime.now(UTC)
    app = open_app()
    try:
        with app.database.read() as connection:
            groups = _grouped(pending(connection, now))
    finally:
        app.close()
    if as_json:
        print_json([{**group[0], "equal": [row["approval_id"] for row in group[1:]]} for group in groups])
    elif not groups:
        click.echo("Nothing waits for you.")
    else:
        for group in groups:
            print_question(group, now)


def _grouped(rows: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Questions about the same act on the same ground are one."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        same = (row["content_hash"], row["bound_to"]) if row["content_hash"] else ("", row["approval_id"])
        groups.setdefault(same, []).append(row)
    return list(groups.values())


def print_question(group: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Show one question (and how many are equal to it) with what would happen."""
    row = group[0]
    hours, minutes = divmod(max(0, int((row["expires_at"] - now).total_seconds())) // 60, 60)
    times = f"  ({len(group)} equal questions)" if len(group) > 1 else ""
    click.echo(f"{row['approval_id']}  {row['risk_level']} risk  {hours} h {minutes:02} min left{times}")
    click.echo(f"  {row['action']}")
    facts = {"task": row["task_id"], "session": row["session_id"], "because": row["reasoning"]}
    for label, value in facts.items():
        if value:
            click.echo(f"  {label}: {value}")
    lines = row["consequences"] or [f"{name}: {value}" for name, value in (row["inputs"] or {}).items()]
    for line in lines[:SHOWN_LINES]:
        click.echo(f"    {line}")
    if len(lines) > SHOWN_LINES:
        click.echo(f"    … {len(lines) - SHOWN_LINES} more lines with --json")
    grant = "" if row["irreversible"] or not row["classes"] else "  [--grant task|30m|always]"
    click.echo(f"  proctor approve {row['approval_id']}{grant}")
    click.echo(f"  proctor deny {row['approval_id']} --reason …\n")


def _show_grants(as_json: bool) -> None:
    from dataclasses import asdict

    from proctor.app import open_app
    from proctor.gate.grants import list_grants

    app = open_app()
    try:
        with app.database.read() as connection:
            found = list_grants(connection, datetime.now(UTC))
    finally:
        app.close()
    if as_json:
        print_json([{**asdict(grant), "line": grant.sentence()} for grant in found])
    elif not found:
        click.echo("Nothing is granted for a whole class of acts.")
    else:
        rows = [(grant.grant_id, grant.sentence(), grant.granted_by, grant.reason) for grant in found]
        print_table(("GRANT", "LINE", "BY", "REASON"), rows)


def _revoke(grant_id: str, as_json: bool) -> None:
    from proctor.app import open_app
    from proctor.cli.approve import recognised
    from proctor.gate.grants import revoke_grant

    app = open_app()
    try:
        who = recognised(app.settings)
        now = datetime.now(UTC)
        grant = app.writer.transact(lambda c: revoke_grant(c, grant_id, by=who, now=now))
    finally:
        app.close()
    if as_json:
        print_json({"revoked": grant_id, "line": grant.sentence()})
    else:
        click.echo(f"Revoked: {grant.sentence()}")
