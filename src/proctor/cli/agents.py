"""`proctor agents`: who is there, who is busy, who is offline, and what cures it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from proctor.cli.event_lines import clock
from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.engine.agent_facts import AgentFact

__all__ = ["agents"]

_all_option = click.option(
    "--all", "everybody", is_flag=True, help="Also the seeds' API agents whose key or server is missing."
)


@click.group(cls=Commands, default="list")
def agents() -> None:
    """Show who is there, who is busy, who is offline and what cures it."""


@agents.command("list")
@_all_option
@json_option
def list_agents(everybody: bool, as_json: bool) -> None:
    """List the agents with their status, totals, success rate and average time."""
    found = _facts(everybody)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    headers = ("AGENT", "STATUS", "DRIVER", "DONE", "SUCCESS", "AVERAGE", "NOTE")
    print_table(headers, [_row(one) for one in found])
    if not any(one.status != "offline" for one in found):
        click.echo("Nobody can work here. The notes say the cure; `proctor demo` needs none of them.")


@agents.command("show")
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show everything about one agent."""
    (found,) = _facts(True, name)
    if as_json:
        print_json(asdict(found))
        return
    click.echo(f"{_name(found)}  {found.status}: {_note(found)}")
    facts = {
        "driver": found.driver,
        "model": found.model or "the driver's own choice",
        "version": found.version,
        "good at": ", ".join(found.capabilities),
        "at once": found.max_parallel,
        "works on": ", ".join(found.current_task_ids),
        "attempts": found.total_attempts,
        "completed": found.total_tasks_completed,
        "success": _rate(found),
        "average": _seconds(found),
        "tokens": found.total_tokens,
        "last active": None if found.last_active_at is None else clock(found.last_active_at),
    }
    for label, value in facts.items():
        if value not in {"", None}:
            click.echo(f"  {label}: {value}")


@agents.command("health")
@_all_option
@json_option
def health(everybody: bool, as_json: bool) -> None:
    """Look at every agent now: its program, key or server, and the cure for what is missing."""
    found = _facts(everybody)
    if as_json:
        names = ("name", "online", "status", "reason", "cure", "version", "present", "simulated")
        print_json([{name: asdict(one)[name] for name in names} for one in found])
    else:
        rows = [(_name(one), _online(one), one.version or "-", one.reason, one.cure or "-") for one in found]
        print_table(("AGENT", "HEALTH", "VERSION", "WHY", "CURE"), rows)


def _facts(everybody: bool, name: str | None = None) -> Sequence[AgentFact]:
    from proctor.agents.health import health_of_all
    from proctor.agents.roster import Roster
    from proctor.config import load_settings
    from proctor.engine.agent_facts import agent_facts
    from proctor.store.glance import glance

    settings = load_settings()
    roster = Roster(settings.agents)
    listed = roster.agents() if name is None else [roster.get(name)]
    with glance(settings.database_url) as look:
        found = agent_facts(look, listed, health_of_all(listed, settings.environ))
    return [one for one in found if everybody or one.shown]


def _row(one: AgentFact) -> tuple[object, ...]:
    return (
        _name(one),
        one.status,
        one.driver,
        one.total_tasks_completed,
        _rate(one),
        _seconds(one),
        _note(one),
    )


def _name(one: AgentFact) -> str:
    return f"{one.name} (simulated)" if one.simulated else one.name


def _online(one: AgentFact) -> str:
    return "online" if one.online else "offline"


def _rate(one: AgentFact) -> str:
    return "-" if one.success_rate is None else f"{one.success_rate:.0%}"


def _seconds(one: AgentFact) -> str:
    return "-" if one.avg_completion_time_ms is None else f"{one.avg_completion_time_ms / 1000:.1f} s"


def _note(one: AgentFact) -> str:
    paused = "paused; " if one.paused else ""
    if one.status == "busy":
        return f"{paused}works on {', '.join(one.current_task_ids[:3])}"
    return f"{paused}{one.reason}. {one.cure}".rstrip(". ") + ("." if one.cure else "")
