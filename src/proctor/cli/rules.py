"""`proctor rules`: the architecture rules that analysis and prompts use. Every change passes the gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from proctor.cli.calling import call_tool
from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table
from proctor.protocol.errors import UsageError

__all__ = ["rules"]

FILE_BYTES = 16_000_000


@click.group(cls=Commands, default="list")
def rules() -> None:
    """List, search, add, edit, import and export architecture rules."""


@rules.command("list")
@click.option("--feature-type", help="Only rules of this feature type.")
@json_option
def list_(feature_type: str | None, as_json: bool) -> None:
    """List the rules by feature type."""
    inputs = {"feature_type": feature_type} if feature_type else {}
    _print(call_tool("get_architecture_rules", inputs), as_json)


@rules.command()
@click.argument("keyword")
@json_option
def search(keyword: str, as_json: bool) -> None:
    """Find rules with KEYWORD in feature type or description."""
    _print(call_tool("search_architecture_rules", {"keyword": keyword}), as_json)


@rules.command()
@click.argument("feature_type")
@click.option("--backend-pattern", help="How the server's side is built.")
@click.option("--frontend-pattern", help="How the user's side is built.")
@click.option("--rules-description", help="What holds, in sentences; agents are told it.")
@click.option("--integration-point", multiple=True, help="Where it meets the rest; may be given often.")
@click.option("--example", multiple=True, help="A file or command to look at; may be given often.")
@json_option
def add(feature_type: str, as_json: bool, **words: Any) -> None:
    """Add a rule for FEATURE_TYPE."""
    done = call_tool("add_architecture_rule", {"feature_type": feature_type, **_given(words)})
    _print_one(done, as_json)


@rules.command()
@click.argument("rule_id", metavar="ID", type=int)
@click.option("--feature-type", help="Another name for what it is about.")
@click.option("--backend-pattern", help="How the server's side is built.")
@click.option("--frontend-pattern", help="How the user's side is built.")
@click.option("--rules-description", help="What holds, in sentences; agents are told it.")
@click.option(
    "--integration-point", multiple=True, help="Where it meets the rest; may be given often; replaces all."
)
@click.option(
    "--example", multiple=True, help="A file or command to look at; may be given often; replaces all."
)
@json_option
def edit(rule_id: int, as_json: bool, **words: Any) -> None:
    """Change the given parts of the rule ID; what it said before stays in the trace."""
    given = _given(words)
    if not given:
        raise UsageError(message="Say what to change; see `proctor rules edit --help`.")
    _print_one(call_tool("edit_architecture_rule", {"id": rule_id, **given}), as_json)


@rules.command("export")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def export(file: Path | None) -> None:
    """Write all rules as JSON to FILE, or print them."""
    done = call_tool("export_architecture_rules", {})
    document = {"format": done["format"], "rules": done["rules"]}
    if file is None:
        print_json(document)
    else:
        file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        click.echo(f"{done['count']} rules are in {file}.", err=True)


@rules.command("import")
@click.argument("file", type=click.File("r"))
@json_option
def import_(file: Any, as_json: bool) -> None:
    """Take in rules from FILE (`-` for standard input); one of the same feature type is brought up to date."""
    text = file.read(FILE_BYTES + 1)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(message=f"This is no JSON: {error}.") from None
    if isinstance(document, list):
        document = {"rules": document}
    if not isinstance(document, dict) or len(text) > FILE_BYTES:
        raise UsageError(message="Give what `proctor rules export` writes.")
    done = call_tool("import_architecture_rules", document)
    if as_json:
        print_json(done)
    else:
        click.echo(f"{done['message']}.")


def _given(words: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, under the tool's names."""
    plural = {"integration_point": "integration_points", "example": "examples"}
    return {
        plural.get(name, name): list(value) if name in plural else value
        for name, value in words.items()
        if value not in (None, ())
    }


def _print(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done["rules"])
        return
    if not done["rules"]:
        click.echo("No such rule. `proctor rules list` shows all, `proctor rules add` makes one.")
        return
    rows = [(rule["id"], rule["feature_type"], rule["rules_description"] or "-") for rule in done["rules"]]
    print_table(("ID", "FEATURE TYPE", "DESCRIPTION"), rows)
    if done["truncated"]:
        click.echo("… truncated.", err=True)


def _print_one(done: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(done["rule"])
    else:
        click.echo(f"{done['message']}: {done['rule']['id']} {done['rule']['feature_type']}.")
