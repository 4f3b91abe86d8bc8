"""`proctor tools`: which tools there are, what each takes and gives, and using one through the gate."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.calling import EXIT_NEEDS_YOU, draw_progress, end_progress, open_desk
from proctor.cli.groups import Commands
from proctor.cli.output import fold, json_option, print_json, print_table
from proctor.protocol.errors import UsageError

if TYPE_CHECKING:
    from proctor.cli.calling import Desk
    from proctor.protocol.tools import CallResult

__all__ = ["kind_of", "tools"]

INPUT_BYTES = 16_000_000
WATCH_SECONDS = 10.0


@click.group(cls=Commands, default="list")
def tools() -> None:
    """List the tools, show one, or call one through the gate."""


@tools.command("list")
@click.option("--domain", help="Only tools of this domain.")
@json_option
def list_(domain: str | None, as_json: bool) -> None:
    """List all tools: what they do to the world and whether that can be taken back."""
    found = [one for one in _schemas() if domain in {None, one["domain"]}]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            one["name"],
            one["domain"],
            one["side_effect"],
            "yes" if one["reversible"] else "no",
            one["description"],
        )
        for one in found
    ]
    print_table(("NAME", "DOMAIN", "EFFECT", "REVERSIBLE", "WHAT"), rows)


@tools.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one tool, found by name or alias: parameters, outputs, adapters."""
    from proctor.engine.control_tools import whole_registry

    schema = whole_registry().schema(name)
    if as_json:
        print_json(schema)
        return
    click.echo("\n".join(fold(f"{schema['name']}: {schema['description']}", hang=2)))
    facts = {
        "also called": ", ".join(schema["aliases"]),
        "domain": schema["domain"],
        "effect": schema["side_effect"],
        "reversible": "yes" if schema["reversible"] else "no",
        "adapters": ", ".join(schema["adapters"]),
    }
    for label, value in facts.items():
        if value:
            click.echo(f"{label}: {value}")
    for title, word in (("takes", "input_schema"), ("gives", "output_schema")):
        click.echo(f"{title}:")
        for field, about in schema[word].get("properties", {}).items():
            must = " (needed)" if field in schema[word].get("required", ()) and word == "input_schema" else ""
            said = f"{field}: {kind_of(about)}{must}  {about.get('description', '')}".rstrip()
            click.echo("\n".join(fold(said, 2, 4)))


@tools.command()
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--input", "document", help="Inputs as a JSON object; `-` reads it from standard input.")
@click.option("--as-agent", metavar="NAME", help="Under the rules for an agent of this name.")
@click.option("--profile", help="The profile to use; the settings' own by default.")
@json_option
def call(
    name: str,
    pairs: tuple[str, ...],
    document: str | None,
    as_agent: str | None,
    profile: str | None,
    as_json: bool,
) -> int:
    """Call the tool NAME with KEY=VALUE… through the gate: judged, counted, snapshotted, traced.

    A background command is watched until it ends, because it ends with the process that started it.
    """
    inputs = _inputs(name, pairs, document)

    async def go() -> CallResult:
        async with open_desk(profile=profile, as_agent=as_agent) as desk:
            done = await desk.call(name, inputs, draw_progress())
            end_progress()
            return await _watched(desk, done)

    return _print(asyncio.run(go()), as_json)


def _schemas() -> list[dict[str, Any]]:
    from proctor.engine.control_tools import whole_registry

    return whole_registry().schemas()


def kind_of(about: Mapping[str, Any]) -> str:
    """Name the type of a parameter in a word or two."""
    if "anyOf" in about:
        return " or ".join(kind_of(one) for one in about["anyOf"])
    if "enum" in about:
        return " or ".join(str(one) for one in about["enum"])
    return str(about.get("type") or about.get("$ref", "anything").rpartition("/")[2])


def _inputs(name: str, pairs: tuple[str, ...], document: str | None) -> dict[str, Any]:
    """Put document and pairs together; a pair wins over the document."""
    from proctor.engine.control_tools import whole_registry

    tool = whole_registry().find(name)
    fields: Mapping[str, Any] = tool.input.model_json_schema().get("properties", {})
    found = _document(document) if document is not None else {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise UsageError(
                message=f"{pair!r} is not KEY=VALUE; `proctor tools show {tool.name}` lists the keys."
            )
        found[key] = _value(value, fields.get(tool.parameter_aliases.get(key, key), {}))
    return found


def _document(text: str) -> dict[str, Any]:
    if text == "-":
        text = sys.stdin.read(INPUT_BYTES + 1)
    if len(text) > INPUT_BYTES:
        raise UsageError(message=f"The inputs are longer than {INPUT_BYTES} characters.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(message=f"The inputs are no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise UsageError(message="The inputs must be a JSON object.")
    return found


def _value(text: str, about: Mapping[str, Any]) -> Any:
    """Take lists, tables and null as JSON where the parameter is no text; text stays as it was typed."""
    kinds = kind_of(about).split(" or ")
    if "string" in kinds or (text != "null" and text[:1] not in {"[", "{"}):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


async def _watched(desk: Desk, done: CallResult) -> CallResult:
    """Stay with a background command until it ends; Ctrl-C stops it."""
    if done.tool != "start_command" or done.output is None or done.simulated:
        return done
    job = {"job_id": done.output["job_id"]}
    click.echo(f"{job['job_id']} runs; Ctrl-C stops it.", err=True)
    try:
        while _running(done):
            done = await desk.call("command_status", {**job, "wait_seconds": WATCH_SECONDS})
            if _running(done):
                click.echo(f"… {_plain((done.output or {})['progress'])}", err=True)
    except asyncio.CancelledError:
        await asyncio.shield(desk.call("stop_command", job))
        raise
    return done


def _running(done: CallResult) -> bool:
    return done.ok and bool((done.output or {}).get("running"))


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _print(done: CallResult, as_json: bool) -> int:
    if as_json:
        print_json(_row(done))
    else:
        _print_text(done)
    if done.waiting:
        return EXIT_NEEDS_YOU
    if done.error is not None:
        return done.error.exit_code
    return 1 if (done.output or {}).get("success") is False else 0


def _row(done: CallResult) -> dict[str, Any]:
    error = done.error and {"code": done.error.code, "message": done.error.message}
    return {
        "call_id": done.call_id,
        "tool": done.tool,
        "trace_id": done.trace_id,
        "state": done.state.value,
        "ok": done.ok,
        "simulated": done.simulated,
        "output": done.output,
        "error": error,
        "notes": done.notes,
        "approval_id": done.approval_id,
        "snapshot_id": done.snapshot_id,
        "duration_ms": done.duration_ms,
    }


def _print_text(done: CallResult) -> None:
    """Print what one wants to see: a command's own output, a file's text, else the output as JSON."""
    for note in done.notes:
        click.echo(note, err=True)
    if done.simulated:
        click.echo("SIMULATED: a mock adapter made this up.", err=True)
    if done.waiting:
        click.echo(f"It waits for an answer: `proctor approve {done.approval_id}`.", err=True)
    elif done.error is not None:
        click.echo(f"proctor: {done.error.message}", err=True)
    elif done.output is not None and "stdout" in done.output:
        click.echo(done.output["stdout"], nl=False)
        click.echo(done.output["stderr"], nl=False, err=True)
    elif done.output is not None and "content" in done.output:
        click.echo(done.output["content"], nl=False)
    else:
        print_json(done.output)
