"""`proctor db`: where the database is, its upgrade, check and backup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.config import Settings
    from proctor.store.database import Database

__all__ = ["db"]

EXIT_ALTERED = 7


@contextmanager
def _database() -> Iterator[tuple[Settings, Database]]:
    from proctor.config import load_settings
    from proctor.store.database import Database

    settings = load_settings()
    database = Database(settings.database_url)
    try:
        yield settings, database
    finally:
        database.close()


@click.group(cls=Commands)
def db() -> None:
    """Upgrade, check and back up the database."""


@db.command()
@json_option
def path(as_json: bool) -> None:
    """Print where the database is."""
    with _database() as (_, database):
        if as_json:
            print_json({"dialect": database.dialect, "place": database.place})
        else:
            click.echo(database.place)


@db.command()
@json_option
def upgrade(as_json: bool) -> None:
    """Bring the database's schema to this version of Proctor.

    An SQLite database does it by itself when it is opened; PostgreSQL waits for this command.
    """
    from proctor.store.schema import schema_version
    from proctor.store.schema import upgrade as upgrade_schema

    with _database() as (_, database):
        before = schema_version(database)
        after = upgrade_schema(database)
    if as_json:
        print_json({"before": before, "after": after, "changed": before != after})
    elif before == after:
        click.echo(f"The schema is up to date ({after}).")
    else:
        click.echo(f"Upgraded the schema from {before or 'nothing'} to {after}.")


@db.command()
@json_option
def check(as_json: bool) -> int:
    """Look for damage, wrong settings and lost rows; exit code 7 when something is wrong."""
    from proctor.store.check import check as check_store

    with _database() as (_, database):
        findings = check_store(database)
    if as_json:
        print_json(
            {"ok": not findings, "place": database.place, "findings": [asdict(one) for one in findings]}
        )
    elif findings:
        for one in findings:
            click.echo(f"{one.subject}: {one.problem}. {one.cure}")
    else:
        click.echo(f"{database.place}: nothing wrong.")
    return EXIT_ALTERED if findings else 0


@db.command()
@click.argument("target", type=click.Path(path_type=Path), required=False)
@json_option
def backup(target: Path | None, as_json: bool) -> None:
    """Copy the database to TARGET, a file or a directory, while others go on using it.

    Without TARGET the copy goes to Proctor's own backups. The copy is checked before it gets its name.
    """
    from proctor.store.backup import backup as backup_store

    with _database() as (settings, database):
        own = settings.paths.backups_dir / "db"
        copy = backup_store(database, target or own, make_directory=target is None)
    if as_json:
        print_json({"path": copy, "bytes": copy.stat().st_size})
    else:
        click.echo(copy)
