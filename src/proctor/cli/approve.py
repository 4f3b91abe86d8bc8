"""`proctor approve` and `proctor deny`: a person's answers, written once and told to whoever waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.config import Settings
    from proctor.gate.approvals import Answered
    from proctor.gate.humans import Human

__all__ = ["approve", "deny", "give_answer", "recognised"]

SCOPES = {"task": "task", "30m": "time", "always": "always"}


@click.command()
@click.argument("approvals", nargs=-1, required=True, metavar="ID…")
@click.option(
    "--grant",
    type=click.Choice(list(SCOPES)),
    help="Also for this class of acts: in this task, 30 minutes, always.",
)
@click.option("--reason", default="", help="Kept with the answer.")
@json_option
def approve(approvals: tuple[str, ...], grant: str | None, reason: str, as_json: bool) -> None:
    """Say yes to the questions with these ids (the end of an id is enough); see `proctor inbox`."""
    _answer(approvals, True, reason, grant, as_json)


@click.command()
@click.argument("approvals", nargs=-1, required=True, metavar="ID…")
@click.option("--reason", required=True, help="Told to the agent.")
@json_option
def deny(approvals: tuple[str, ...], reason: str, as_json: bool) -> None:
    """Say no to the questions with these ids (the end of an id is enough), with the reason."""
    _answer(approvals, False, reason, None, as_json)


def recognised(settings: Settings) -> Human:
    """The user at this terminal; refuses what an agent started."""
    import getpass

    from proctor.gate.humans import user_at_terminal

    return user_at_terminal(settings.environ, token_file=settings.paths.token_file, name=getpass.getuser())


def _answer(names: Sequence[str], yes: bool, reason: str, grant: str | None, as_json: bool) -> None:
    from proctor.app import open_app

    app = open_app()
    try:
        done = give_answer(app, names, yes, reason, grant)
    finally:
        app.close()
    if as_json:
        print_json([_facts(one) for one in done])
        return
    for one in done:
        more = f" and {len(one.equal)} equal ones" if one.equal else ""
        granted = f"; granted: {', '.join(one.grants)}" if one.grants else ""
        click.echo(f"{one.approval_id}{more}: {'approved' if one.approved else 'denied'}{granted}.")


def give_answer(app: App, names: Sequence[str], yes: bool, reason: str, grant: str | None) -> list[Answered]:
    """Write the person's answers and let whoever waits go on."""
    done = _write(app, names, yes, reason, grant)
    _tell_supervisor(app, done)
    return done


def _write(app: App, names: Sequence[str], yes: bool, reason: str, grant: str | None) -> list[Answered]:
    """All answers or none: one transaction."""
    import sqlalchemy as sa

    from proctor.gate.approvals import answer
    from proctor.gate.grants import Scope
    from proctor.protocol.events import Draft

    who, now = recognised(app.settings), datetime.now(UTC)
    with app.database.read() as connection:
        ids = list(dict.fromkeys(_find(connection, name, now) for name in names))
    scope = None if grant is None else Scope(SCOPES[grant])

    def change(connection: sa.Connection) -> tuple[list[Answered], list[Draft]]:
        done: list[Answered] = []
        drafts: list[Draft] = []
        for approval_id in ids:
            if any(approval_id in one.equal for one in done):
                continue
            one, told = answer(
                connection, approval_id, approved=yes, by=who, reason=reason, grant=scope, now=now
            )
            done.append(one)
            drafts += told
        return done, drafts

    return app.writer.transact(change)


def _find(connection: object, name: str, now: datetime) -> str:
    """The question with this id, or the one open question whose id ends so."""
    import sqlalchemy as sa

    from proctor.gate.approvals import pending
    from proctor.protocol.errors import UsageError

    assert isinstance(connection, sa.Connection)
    found = [row["approval_id"] for row in pending(connection, now) if row["approval_id"].endswith(name)]
    if len(found) > 1:
        raise UsageError(message=f"{name!r} is the end of {len(found)} questions; give more of the id.")
    return found[0] if found else name


def _tell_supervisor(app: App, done: Sequence[Answered]) -> None:
    """Parked tasks go on: one must run for that. Otherwise it is enough to wake whoever is there."""
    import sqlalchemy as sa

    from proctor.engine import client
    from proctor.store.tables import approvals, chats, task_queue

    ids = [name for one in done for name in (one.approval_id, *one.equal)]
    parked = sa.select(task_queue.c.task_id).where(
        task_queue.c.status == "awaiting_approval",
        task_queue.c.task_id.in_(sa.select(approvals.c.task_id).where(approvals.c.approval_id.in_(ids))),
    )
    talks = sa.select(chats.c.chat_id).where(
        chats.c.state == "parked",
        chats.c.trace_id.in_(sa.select(approvals.c.trace_id).where(approvals.c.approval_id.in_(ids))),
    )
    with app.database.read() as connection:
        waits = [connection.execute(query.limit(1)).first() for query in (parked, talks)]
    if any(waits):
        client.ensure(app.settings)
    else:
        client.wake(app.settings.paths)


def _facts(one: Answered) -> dict[str, object]:
    status = "approved" if one.approved else "denied"
    return {"approval_id": one.approval_id, "status": status, "equal": one.equal, "grants": one.grants}
