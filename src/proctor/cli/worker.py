"""`proctor worker`: execute tasks of a shared PostgreSQL on this machine, in the foreground."""

from __future__ import annotations

import click

__all__ = ["worker"]


@click.command()
def worker() -> None:
    """Execute tasks of the shared PostgreSQL here until interrupted; any number of machines may.

    Set PROCTOR_DATABASE_URL to the database and PROCTOR_TRACE_KEY to the text of trace.key of the first machine.
    """
    import asyncio
    from pathlib import Path

    from proctor.app import open_app
    from proctor.engine.supervisor import Supervisor
    from proctor.protocol.errors import UsageError

    app = open_app(Path("/"))
    if app.database.dialect == "sqlite":
        message = "A worker shares a queue over PostgreSQL; set PROCTOR_DATABASE_URL. On SQLite the supervisor works."
        raise UsageError(message=message)
    click.echo(
        f"Working for {app.database.place}; Ctrl-C ends it, and what it runs goes on elsewhere.", err=True
    )
    try:
        asyncio.run(
            Supervisor(lambda: app.executor(kind="worker"), app.writer, kind="worker", idle_s=None).run()
        )
    finally:
        app.close()
