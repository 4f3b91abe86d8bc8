"""`proctor cost`: what was used, by session, task or day; a subscription's usage apart from money that is owed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from proctor.cli.output import json_option, print_json, print_table

__all__ = ["cost"]

KINDS = {"session": "session", "task": "task", "day": "profile"}


@click.command()
@click.option("--session", metavar="ID", help="One session (or the trace of a single request), in full.")
@click.option(
    "--by", type=click.Choice(list(KINDS)), default="session", show_default=True, help="What to add up."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many.")
@json_option
def cost(session: str | None, by: str, limit: int, as_json: bool) -> None:
    """Show calls, tokens, money and time that were used."""
    from proctor.app import open_app
    from proctor.gate.report import costs, report_of
    from proctor.protocol.errors import NotFoundError

    app = open_app()
    try:
        with app.database.read() as connection:
            if session is None:
                rows = costs(connection, kind=KINDS[by], limit=limit)
                report = None
            else:
                report = report_of(connection, f"session:{session}")
    finally:
        app.close()
    if report is None:
        _print_rows(rows, by, as_json)
        return
    if not report["by_tool"]:
        raise NotFoundError(kind="session with calls", name=session, cure="`proctor cost` lists them.")
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def _print_rows(rows: list[dict[str, Any]], by: str, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("Nothing was used yet.")
    else:
        headers = (by.upper(), "CALLS", "TOKENS", "MONEY", "SUBSCRIPTION", "TIME")
        shown = [(row["id"], row["calls"], row["tokens"], *_money(row)) for row in rows]
        print_table(headers, [*shown, _sum(rows)] if len(rows) > 1 else shown)
        if any(row["unpriced_calls"] for row in rows):
            click.echo("+?: calls whose price is not known are not in the sum.")


def _sum(rows: list[dict[str, Any]]) -> tuple[object, ...]:
    words = ("calls", "tokens", "usd", "plan_usd", "unpriced_calls", "seconds")
    whole = {word: sum(row[word] for row in rows) for word in words}
    return (f"these {len(rows)}", whole["calls"], whole["tokens"], *_money(whole))


def _money(row: Mapping[str, Any]) -> tuple[str, str, str]:
    unknown = " +?" if row["unpriced_calls"] else ""
    plan = f"${row['plan_usd']:.2f}" if row["plan_usd"] else "-"
    return f"${row['usd']:.2f}{unknown}", plan, f"{row['seconds']:.0f} s"


def _print_report(report: Mapping[str, Any]) -> None:
    money, plan, seconds = _money(report["cost"])
    click.echo(
        f"{report['node']}: {report['cost']['tokens']} tokens, {money}, subscription {plan}, {seconds}"
    )
    rows = [("total", report["total"])]
    rows += [(f"domain {name}", share) for name, share in sorted(report["by_domain"].items())]
    rows += [(f"tool {name}", share) for name, share in sorted(report["by_tool"].items())]
    shown = [(name, one["used"], _limit(one["limit"]), _percent(one["percentage"])) for name, one in rows]
    print_table(("CALLS", "USED", "LIMIT", "SHARE"), shown)


def _limit(limit: int | None) -> str:
    return "-" if limit is None else str(limit)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:g} %"
