"""`proctor trace`: list, read, follow, export and verify."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.event_lines import clock, print_event, shortened
from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.config import Settings
    from proctor.store.database import Database

__all__ = ["trace"]

EXIT_ALTERED = 7
_WHAT = 60


@contextmanager
def _database() -> Iterator[tuple[Settings, Database]]:
    from proctor.config import load_settings
    from proctor.store.schema import open_database

    settings = load_settings()
    database = open_database(settings.database_url)
    try:
        yield settings, database
    finally:
        database.close()


class _ShowByDefault(Commands):
    """`proctor trace ID` shows a trace; `proctor trace verify` is a command. Without a word: the list."""

    def names_a_command(self, ctx: click.Context, args: list[str]) -> bool:
        """Whatever is no command's name is a trace's."""
        return bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)


@click.group(cls=_ShowByDefault, default="show")
def trace() -> None:
    """Read, follow, verify and export the trace.

    `proctor trace` lists the newest traces, `proctor trace ID` shows one (the beginning of its name is enough),
    `proctor trace verify [ID]` checks that nothing was altered.
    """


@trace.command()
@click.argument("trace_id", metavar="[ID]", required=False)
@json_option
@click.option("--follow", "-f", is_flag=True, help="Wait for more; Ctrl-C ends it.")
@click.option(
    "--export", "export_as", type=click.Choice(["jsonl"]), help="Print every event as a line of JSON."
)
@click.option("--signals", is_flag=True, help="Show rates, latencies, waits and budget instead of events.")
@click.option("--limit", "-n", type=click.IntRange(1, 5000), default=50, show_default=True, help="At most N.")
def show(
    trace_id: str | None, as_json: bool, follow: bool, export_as: str | None, signals: bool, limit: int
) -> None:
    """List the newest traces, or show one.

    A trace shows its newest events; --export gives all of them, without ID those of the whole log.
    """
    with _database() as (_, database):
        name = None if trace_id is None else _find(database, trace_id)
        if export_as:
            _export(database, name)
        elif signals:
            _signals(database, name, as_json)
        elif name is None and not follow:
            _list(database, limit, as_json)
        else:
            _events(database, name, limit, follow=follow, as_json=as_json)


@trace.command()
@click.argument("trace_id", metavar="[ID]", required=False)
@json_option
def verify(trace_id: str | None, as_json: bool) -> int:
    """Check that no event was edited, dropped, reordered or cut off.

    Exit code 7 when something was; the first bad event is named.
    """
    from proctor.trace.verify import verify as check

    with _database() as (settings, database):
        name = None if trace_id is None else _find(database, trace_id)
        report = check(database, _key(settings, database), name)
    if as_json:
        print_json(report.as_dict())
    else:
        _print_report(report)
    return 0 if report.ok else EXIT_ALTERED


def _find(database: Database, name: str) -> str:
    from proctor.trace.reader import find_trace

    return find_trace(database, name)


def _key(settings: Settings, database: Database) -> bytes:
    """The key as it is: a new one would call everything altered. An empty log needs none."""
    from proctor.trace.key import key_of
    from proctor.trace.reader import last_seq

    with database.read() as connection:
        if not last_seq(connection) and not settings.paths.key_file.exists():
            return b""
    return key_of(settings, create=False)


def _print_report(report: Any) -> None:
    pruned = f", {report.pruned} pruned" if report.pruned else ""
    if report.ok:
        click.echo(f"Nothing was altered: {report.events} events in {report.traces} traces{pruned}.")
        return
    first = report.first_bad
    place = f" at event {first.trace_seq} of trace {first.trace_id}" if first.trace_seq else ""
    seq = f" (seq {first.seq})" if first.seq else ""
    click.echo(f"The trace was altered{place}{seq}: {first.message}.")
    for problem in report.problems:
        where = f"{problem.trace_id or 'log'}:{problem.trace_seq or '-'}"
        click.echo(f"  {problem.kind:<13} {where}  {problem.message}")
    if report.truncated:
        click.echo("  … truncated: there are more problems than are shown.")
    click.echo("Keep the files as they are and compare with a backup.")


def _list(database: Database, limit: int, as_json: bool) -> None:
    from proctor.trace.reader import traces

    found = traces(database, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        print_json({"traces": [asdict(one) for one in found], "truncated": more})
        return
    if not found:
        click.echo("There is no trace yet. `proctor demo` makes one.")
        return
    rows = [
        (
            one.trace_id,
            clock(one.started),
            one.events,
            one.status or "-",
            shortened(one.what or "pruned", _WHAT),
        )
        for one in found
    ]
    print_table(("TRACE", "STARTED", "EVENTS", "STATUS", "WHAT"), rows)
    if more:
        click.echo(f"… truncated: the newest {limit} are shown; --limit shows more.")


def _export(database: Database, name: str | None) -> None:
    from proctor.trace.export import export_jsonl

    for line in export_jsonl(database, name):
        click.echo(line, nl=False)


def _signals(database: Database, name: str | None, as_json: bool) -> None:
    from proctor.trace.reader import stream
    from proctor.trace.signals import measure

    found = measure(stream(database, name)).as_dict()
    if as_json:
        print_json(found)
        return
    flat = {**found, **{f"latency {part}": took for part, took in found.pop("latency").items()}}
    flat.pop("latency")
    rows = [(key, f"{value:.3f}" if isinstance(value, float) else value) for key, value in flat.items()]
    print_table(("SIGNAL", "VALUE"), rows)


def _events(database: Database, name: str | None, limit: int, *, follow: bool, as_json: bool) -> None:
    from proctor.trace.cursor import Cursor
    from proctor.trace.reader import last_events

    with database.read() as connection:
        found, total = last_events(connection, name, limit=limit)
    if not follow and as_json:
        values = [event.model_dump(mode="json") for event in found]
        print_json(
            {"trace_id": name, "events": values, "total_events": total, "truncated": total > len(found)}
        )
        return
    if total > len(found) and not as_json:
        click.echo(f"… truncated: the newest {len(found)} of {total} events; --limit or --export shows more.")
    for event in found:
        print_event(event, as_json)
    if follow:
        after = found[-1].seq if found else 0
        with Cursor(database, after, trace_id=name) as cursor:
            for event in cursor:
                print_event(event, as_json)
