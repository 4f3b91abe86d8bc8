"""`proctor chat`: talk to an API model that works through the gate; what needs an answer is asked right here."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.agents.model_rows import Chat
    from proctor.agents.model_turn import TurnEnd
    from proctor.app import App
    from proctor.cli.chat_screen import Screen

__all__ = ["chat"]

EXIT_FAILED = 1
EXIT_NEEDS_YOU = 3
EXIT_INTERRUPTED = 130
SHOWN_AGAIN = 6
MOST_STDIN = 200_001


@click.command()
@click.argument("message", required=False)
@click.option("--agent", metavar="NAME", help="Whom to ask: an agent with an API model (SOLACE by default).")
@click.option("--resume", metavar="ID", help="Go on with a chat (the end of its id is enough).")
@click.option("--list", "listing", is_flag=True, help="List the newest chats.")
@click.option("--profile", metavar="NAME", help="The rules that hold in a new chat.")
@json_option
def chat(
    message: str | None,
    agent: str | None,
    resume: str | None,
    listing: bool,
    profile: str | None,
    as_json: bool,
) -> int:
    """Talk to a model that can use every tool; with a MESSAGE (or standard input) once, else until you leave.

    Ctrl-C stops an answer and not the chat; Ctrl-D leaves. Exit code 3: a question waits for you.
    """
    from proctor.app import open_app
    from proctor.sandbox.process import close_idle_keepers

    app = open_app()
    try:
        if listing:
            return _list(app, as_json)
        said = message if message is not None else _piped()
        if said is None and not as_json:
            return _interactive(app, _chosen(app, agent, resume, profile), going_on=resume is not None)
        if said is None and resume is None:
            raise click.UsageError("Give a MESSAGE, or leave --json out to talk.")
        return _once(app, _chosen(app, agent, resume, profile), said, as_json)
    finally:
        app.close()
        close_idle_keepers()


def _piped() -> str | None:
    """What stands on standard input, if that is no terminal."""
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read(MOST_STDIN) or None


def _chosen(app: App, agent: str | None, resume: str | None, profile: str | None) -> Chat:
    import getpass

    from proctor.agents.model_chats import DEFAULT_AGENT
    from proctor.config import current_directory

    if resume is not None:
        return app.chats.get(resume)
    place = app.settings.workspace or current_directory()
    return app.chats.open(agent or DEFAULT_AGENT, workspace=place, by=getpass.getuser(), profile=profile)


# ── listing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _list(app: App, as_json: bool) -> int:
    found = app.chats.recent(limit=50)
    if as_json:
        print_json([_row(app, one) for one in found])
    elif not found:
        click.echo("No chats. Begin one with `proctor chat`.")
    else:
        lines = [(c.chat_id, app.chats.stands(c), c.agent_name, c.messages, c.title[:60]) for c in found]
        print_table(("CHAT", "STATE", "AGENT", "MESSAGES", "TITLE"), lines)
    return 0


def _row(app: App, found: Chat) -> dict[str, Any]:
    names = ("chat_id", "title", "workspace", "profile", "trace_id", "turn", "messages", "created_at")
    more = {"agent": found.agent_name, "state": app.chats.stands(found), "waiting_for": found.waiting_for}
    return {**{name: getattr(found, name) for name in names}, **more, "updated_at": found.updated_at}


# ── once ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _once(app: App, found: Chat, said: str | None, as_json: bool) -> int:
    from proctor.cli.chat_screen import Screen

    screen = Screen(app, streams=False, quiet=as_json)
    try:
        end = asyncio.run(_turn(app, found.chat_id, said, screen))
    except KeyboardInterrupt:
        click.echo(f"Stopped. Go on with `proctor chat --resume {found.chat_id}`.", err=True)
        return EXIT_INTERRUPTED
    if as_json:
        print_json(_ended(app.chats.get(found.chat_id), end))
    else:
        click.echo(screen.tame(end.text), err=not end.ok)
        click.echo(f"({found.chat_id})", err=True)
    return _code(end)


async def _turn(app: App, chat_id: str, said: str | None, screen: Screen) -> TurnEnd:
    from proctor.agents.model_chats import Watch

    watch = Watch(listen=screen.listen, ask=screen.ask)
    end = await (app.chats.say(chat_id, said, watch) if said is not None else app.chats.go_on(chat_id, watch))
    await screen.end()
    return end


def _ended(found: Chat, end: TurnEnd) -> dict[str, Any]:
    cost = None if end.used.micro_usd is None else end.used.micro_usd / 1_000_000
    tokens = {"input_tokens": end.used.input_tokens, "output_tokens": end.used.output_tokens}
    return {
        "chat_id": found.chat_id,
        "trace_id": found.trace_id,
        "outcome": end.outcome.value,
        "message": end.text,
        "approvals": end.waiting_for,
        "requests": end.requests,
        "usage": {**tokens, "cost_usd": cost},
    }


def _code(end: TurnEnd) -> int:
    if end.waiting_for:
        return EXIT_NEEDS_YOU
    return 0 if end.ok else EXIT_FAILED


# ── until you leave ───────────────────────────────────────────────────────────────────────────────────────────────


def _interactive(app: App, found: Chat, *, going_on: bool) -> int:
    from proctor.cli.chat_screen import Screen

    screen = Screen(app, streams=True)
    spec = app.chats.spec(found.agent_name, None if found.workspace is None else Path(found.workspace))
    click.echo(
        f"{found.agent_name} ({spec.provider}:{spec.model}), {found.chat_id}, profile {found.profile}."
    )
    click.echo("Ctrl-C stops an answer, Ctrl-D leaves.")
    if going_on:
        _again(app, found, screen)
    with asyncio.Runner() as runner:
        if going_on and app.chats.stands(found) in {"parked", "interrupted"}:
            _spoken(app, runner, found.chat_id, None, screen)
        while (line := _read()) is not None:
            if line.strip():
                _spoken(app, runner, found.chat_id, line, screen)
    click.echo(f"Go on with `proctor chat --resume {found.chat_id}`.")
    return 0


def _again(app: App, found: Chat, screen: Screen) -> None:
    after = max(0, found.messages - SHOWN_AGAIN)
    for row in app.chats.messages(found.chat_id, after=after):
        if row["role"] != "tool" and row["text"]:
            who = {"user": "you", "assistant": found.agent_name}.get(row["role"], "·")
            click.echo(f"{who}: {screen.tame(row['text'])[:1000]}")


def _read() -> str | None:
    """One line of the person; None when they leave. Ctrl-C only drops what was typed."""
    while True:
        try:
            return input("you> ")
        except EOFError:
            click.echo()
            return None
        except KeyboardInterrupt:
            click.echo("\n(Ctrl-D leaves)")


def _spoken(app: App, runner: asyncio.Runner, chat_id: str, line: str | None, screen: Screen) -> None:
    """One turn; whatever goes wrong with it, the chat stays open."""
    from proctor.protocol.errors import ProctorError

    try:
        end = runner.run(_answered(app, chat_id, line, screen))
    except KeyboardInterrupt:
        click.echo("\n(stopped)")
    except ProctorError as error:
        click.echo(str(error), err=True)
    else:
        screen.finish(end)


async def _answered(app: App, chat_id: str, line: str | None, screen: Screen) -> TurnEnd:
    """A turn with the person attached: what still waits is asked here first, and then the chat goes on."""
    found = app.chats.get(chat_id)
    if app.chats.stands(found) == "parked":
        await screen.ask_for(found.waiting_for)
        end = await _turn(app, chat_id, None, screen)
        if line is None or end.waiting_for:
            return end
        screen.finish(end)
    return await _turn(app, chat_id, line, screen)
