"""`proctor gc`: remove what is old, by age and count; open tasks are never touched."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.engine.retention import Collected
    from proctor.proof.collect import ProofsCollected

__all__ = ["gc"]

SHOWN = 20
ASK_SECONDS = 300.0


@click.command()
@click.option(
    "--days", type=click.IntRange(0, 36_500), help="Age from which things leave; [retention] days by default."
)
@click.option(
    "--keep",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="Newest ended tasks and traces that stay whatever their age.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would leave.")
@json_option
def gc(days: int | None, keep: int, dry_run: bool, as_json: bool) -> None:
    """Remove what ended long ago: clean worktrees, drivers' state, old events, the engine's records, proofs' checkouts.

    A worktree with work that is on no branch stays and is named. Old events leave a sealed tombstone, so that the trace
    still verifies. Tasks and their history stay.
    """
    from proctor.app import open_app

    app = open_app()
    if dry_run and _nothing_yet(app):
        print_json({"dry_run": True, "worktrees": []}) if as_json else click.echo(
            "Nothing has been stored yet."
        )
        return
    try:
        found = _collect(app, app.settings.retention.days if days is None else days, keep, dry_run=dry_run)
    finally:
        app.close()
    proofs = _proofs(app, app.settings.retention.days if days is None else days, dry_run=dry_run)
    if as_json:
        print_json({**asdict(found), "proofs": asdict(proofs)})
    else:
        _print(found)
        _print_proofs(proofs, dry_run=dry_run)


def _proofs(app: App, days: int, *, dry_run: bool) -> ProofsCollected:
    from proctor.proof.collect import collect_proofs

    return collect_proofs(app.settings.paths.cache_dir / "proof", days=days, dry_run=dry_run)


def _print_proofs(found: ProofsCollected, *, dry_run: bool) -> None:
    verb = "Would remove" if dry_run else "Removed"
    things = (
        (found.repositories, "repositories"),
        (found.checkouts, "checkouts"),
        (found.results, "remembered results"),
        (found.left_behind, "things that killed runs left"),
    )
    told = ", ".join(f"{count} {words}" for count, words in things if count) or "nothing"
    size = f" ({found.bytes / 2**20:.0f} MiB)" if found.bytes else ""
    click.echo(f"{verb} {told} of the proofs' cache{size}; {found.kept_bytes / 2**20:.0f} MiB stay.")


def _nothing_yet(app: App) -> bool:
    """Whether there is no database; only to look must not make one."""
    from proctor.store.glance import glance

    with glance(app.settings.database_url) as look:
        return look is None


def _collect(app: App, days: int, keep: int, *, dry_run: bool) -> Collected:
    from datetime import UTC, datetime, timedelta

    from proctor.engine import client
    from proctor.engine.retention import Retention, engine_records

    paths = app.settings.paths
    found = Retention(
        database=app.database,
        writer=app.writer,
        key=app.key,
        worktrees_dir=paths.worktrees_dir,
        attempts_dir=paths.state_dir / "attempts",
        older_than=datetime.now(UTC) - timedelta(days=days),
        keep=keep,
        dry_run=dry_run,
    ).collect()
    if dry_run:
        return found

    def ask(request: dict[str, object]) -> dict[str, object] | None:
        client.ensure(app.settings)
        return client.ask(paths, request, seconds=ASK_SECONDS)

    return engine_records(found, ask)


def _print(found: Collected) -> None:
    verb = "Would remove" if found.dry_run else "Removed"
    click.echo(
        f"{verb} {len(found.worktrees)} worktrees, {found.states} states of attempts,"
        f" {found.events} events of {found.traces} traces, {found.command_jobs} background commands."
    )
    if found.engine_records is not None:
        click.echo(f"The engine forgot {found.engine_records} ended attempts.")
    elif found.engine_note:
        click.echo(f"The engine's own records were not looked at: {found.engine_note}")
    if found.vacuumed_bytes:
        click.echo(f"Gave {found.vacuumed_bytes / 2**20:.0f} MiB of the database back.")
    if found.kept:
        click.echo("Kept:")
    for one in found.kept[:SHOWN]:
        click.echo(f"  {one.path}: {one.reason}")
    if len(found.kept) > SHOWN:
        click.echo(f"  … and {len(found.kept) - SHOWN} more (--json names them all)")
