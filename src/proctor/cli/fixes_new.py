"""`proctor fixes new`: the next fix file, written by hand, from a list, from standards, from a judgement, from a review."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from proctor.cli.fixing import exchange_here, findings_of, print_findings, root_here
from proctor.cli.output import json_option, print_json
from proctor.protocol.errors import NotFoundError, UsageError

__all__ = ["new"]

_WAYS = (
    "--fixes FILE, --from-standards, --from-check FILE, --from-review FILE,"
    " or --file, --line, --severity, --issue, --fix and --verification"
)


@click.command()
@click.argument("focus")
@click.option("--component", help="What the fixes are about; the focus area by default.")
@click.option("--review-id", help="The cycle the fixes belong to; the number and focus area by default.")
@click.option("--assigned-to", default="executor", show_default=True, help="Who is to do it.")
@click.option("--fixes", "source", help="A JSON file with the list of fixes, or - for standard input.")
@click.option("--file", "path", help="One fix: the file, from the project's root.")
@click.option("--line", help="One fix: the line, or a range such as 85-92.")
@click.option("--severity", type=click.Choice(["critical", "major", "minor"]), help="One fix: how bad it is.")
@click.option("--issue", help="One fix: what is wrong.")
@click.option("--fix", "change", help="One fix: what to do.")
@click.option("--verification", help="One fix: how to test it.")
@click.option(
    "--from-standards", is_flag=True, help="One fix for each place that breaks a standard of [standards]."
)
@click.option(
    "--from-check",
    metavar="FILE",
    help="One fix for each thing that a receipt, or the JSON of `check` or `fixes verify`, leaves open; - for input.",
)
@click.option(
    "--from-review",
    metavar="FILE",
    help="One fix for each finding of a review: JSON, or a Markdown list with file:line; - for input.",
)
@json_option
def new(focus: str, component: str | None, review_id: str | None, assigned_to: str, source: str | None,
        from_standards: bool, from_check: str | None, from_review: str | None, as_json: bool,
        **one: str | None) -> int:  # fmt: skip
    """Write the next fix file of the focus area FOCUS (snake_case) into orchestrator/outgoing."""
    from proctor.proof.fixfile import parse_fix_file
    from proctor.proof.followup import render_fix_file
    from proctor.proof.mend import INSTRUCTIONS

    listed, gaps = _wanted(source, one, from_standards=from_standards, check=from_check, review=from_review)
    box = exchange_here()
    with box.allocated(focus, "fixes") as name:
        content = {
            "review_id": review_id or name.review_id,
            "component": component or focus,
            "date": datetime.now(UTC).date().isoformat(),
            "assigned_to": assigned_to,
            "instructions": INSTRUCTIONS,
            "fixes": listed,
        }
        text = render_fix_file(content)
        document = parse_fix_file(text, str(name))
        path = box.put(name, text)
    found = findings_of(document, box.root)
    if as_json:
        print_json({"path": str(path), "findings": [each.as_dict() for each in found], "fill_in": gaps})
        return 0
    click.echo(str(path))
    # A gap is told once, as what to fill in.
    print_findings([each for each in found if not (gaps and each.code == "fix.placeholder")])
    if gaps:
        click.echo(f"Fill in before it goes out, then run `proctor fixes lint {name}`:")
    for gap in gaps:
        click.echo(f"  {gap}")
    return 0


def _wanted(
    source: str | None, one: Mapping[str, str | None], *, from_standards: bool, check: str | None, review: str | None
) -> tuple[list[Any], list[str]]:  # fmt: skip
    """The fixes that were asked for, in exactly one way, and what is still missing in them."""
    single = {name: value for name, value in one.items() if value is not None}
    given: list[tuple[bool, Callable[[], tuple[list[Any], list[str]]]]] = [
        (source is not None, lambda: (_read_list(source or ""), [])),
        (from_standards, lambda: (_of_standards(), [])),
        (check is not None, lambda: _of_check(check or "")),
        (review is not None, lambda: _of_review(review or "")),
        (bool(single), lambda: ([_single(single)], [])),
    ]
    chosen = [make for wanted, make in given if wanted]
    if len(chosen) != 1:
        raise UsageError(message=f"Say what is to be mended in one way: {_WAYS}.")
    return chosen[0]()


def _single(single: Mapping[str, str]) -> dict[str, Any]:
    names = {"path": "file", "change": "fix"}
    members = {names.get(name, name): value for name, value in single.items()}
    line = members.get("line") or ""
    return {"id": 1, **members, "line": int(line) if line.isascii() and line.isdigit() else line}


def _text(source: str) -> str:
    from proctor.proof.fixfile import MAX_BYTES, read_capped

    raw = sys.stdin.buffer.read(MAX_BYTES + 1) if source == "-" else read_capped(Path(source))
    if len(raw) > MAX_BYTES:
        raise UsageError(message=f"The input has more than {MAX_BYTES:,} bytes. Split it into several files.")
    if b"\0" in raw:
        raise UsageError(message=f"{source} is binary; give text.")
    return raw.decode("utf-8", "replace")


def _read_list(source: str) -> list[Any]:
    from proctor.proof.jsontext import scan_json

    value = scan_json(_text(source), source).value
    listed = value.get("fixes") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise UsageError(message=f"{source} must hold a list of fixes, or an object with a list `fixes`.")
    return listed


def _of_standards() -> list[Any]:
    from proctor.config.load import load_settings
    from proctor.proof.standards import check_tree, standards_settings
    from proctor.proof.standards_report import fix_file_of

    found = check_tree(root_here(), standards_settings(load_settings().standards))
    if not found:
        raise NotFoundError(kind="violation of", name="[standards]", cure="Every rule that is set is kept.")
    listed: list[Any] = fix_file_of(found, review_id="x", component="x", date="x")["fixes"]
    return listed


def _of_check(source: str) -> tuple[list[Any], list[str]]:
    from proctor.proof.from_check import fixes_of_check
    from proctor.proof.jsontext import scan_json
    from proctor.proof.receipt import load_receipt

    value = scan_json(_text(source), source).value
    drafted = fixes_of_check(value, source, root=root_here(), load=lambda name: load_receipt(Path(name)))
    if not drafted.fixes:
        raise NotFoundError(
            kind="open thing in", name=source, cure="Nothing in it is refuted, hollow or open."
        )
    return drafted.fixes, drafted.gaps


def _of_review(source: str) -> tuple[list[Any], list[str]]:
    from proctor.proof.from_review import fixes_of_review

    drafted = fixes_of_review(_text(source), source)
    return drafted.fixes, drafted.gaps
