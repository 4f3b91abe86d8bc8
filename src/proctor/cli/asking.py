"""Answer a question inline, while one is attached: shown as in the inbox, answered as by `proctor approve` and `deny`.

Only a person at a terminal is asked; Enter leaves the question open for later, and nothing else is changed by that.
"""

from __future__ import annotations

import sys
import termios
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.app import App

__all__ = ["answer_here", "at_terminal", "forget_typed"]

_GRANTS = {"t": "task", "3": "30m", "a": "always"}


def at_terminal() -> bool:
    """Whether somebody can be asked here."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def forget_typed() -> None:
    """Drop what was typed before a question was shown: it is no answer to it. Called before the prompt, never after."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def answer_here(app: App, approval_id: str) -> bool:
    """Show an open question and take the answer; False when it was left open or nobody is there."""
    from proctor.cli.approve import give_answer, recognised
    from proctor.cli.inbox import print_question
    from proctor.gate.approvals import pending
    from proctor.protocol.errors import RefusedError, UsageError

    if not at_terminal():
        return False
    try:
        recognised(app.settings)
    except RefusedError:
        return False  # an agent's terminal: a person answers elsewhere
    with app.database.read() as connection:
        rows = [row for row in pending(connection, datetime.now(UTC)) if row["approval_id"] == approval_id]
    if not rows:
        return False
    print_question(rows, datetime.now(UTC))
    forget_typed()
    choice, reason = _choice(bool(rows[0]["classes"]) and not rows[0]["irreversible"])
    if choice == "l":
        return False
    try:
        give_answer(app, [approval_id], choice != "n", reason, _GRANTS.get(choice))
    except UsageError as error:  # somebody else was quicker
        click.echo(str(error), err=True)
    return True


def _choice(classes: bool) -> tuple[str, str]:
    """The letter, and the reason of a no."""
    more = ", for this [t]ask, [3]0 minutes, [a]lways" if classes else ""
    allowed = click.Choice(["y", "n", "l", *(_GRANTS if classes else ())], case_sensitive=False)
    try:
        choice = click.prompt(
            f"[y]es once{more}, [n]o, [l]ater", type=allowed, default="l", show_choices=False
        )
        return choice, click.prompt("Why not (told to the agent)", default="not now") if choice == "n" else ""
    except click.Abort:
        raise KeyboardInterrupt from None  # leaving is no answer
