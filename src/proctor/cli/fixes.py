"""`proctor fixes`: make, lint, list and show fix files, and make the follow-up of one. Nothing here runs a command."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.fixes_verify import run, verify
from proctor.cli.output import json_option, print_json, print_table
from proctor.protocol.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from proctor.proof.exchange import Exchange, Listed
    from proctor.proof.findings import LintFinding
    from proctor.proof.fixfile import FixDocument

__all__ = ["fixes"]


@click.group()
def fixes() -> None:
    """Fix files: what is to be mended goes out, comes back with a result in each fix, and is judged."""


def _root() -> Path:
    from proctor.config.load import current_directory, find_workspace

    here = current_directory()
    return find_workspace(here) or here


def _box() -> Exchange:
    from proctor.proof.exchange import Exchange

    return Exchange(_root())


def _load(word: str) -> FixDocument:
    from proctor.proof.fixfile import load_fix_file

    return load_fix_file(_box().find(word))


@fixes.command()
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
@json_option
def new(focus: str, component: str | None, review_id: str | None, assigned_to: str, source: str | None, from_standards: bool,
        as_json: bool, **one: str | None) -> int:  # fmt: skip
    """Write the next fix file of the focus area FOCUS (snake_case) into orchestrator/outgoing."""
    from proctor.proof.fixfile import parse_fix_file
    from proctor.proof.followup import render_fix_file
    from proctor.proof.mend import INSTRUCTIONS

    listed = _wanted(source, one, from_standards=from_standards)
    box = _box()
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
    found = _findings(document, box.root)
    if as_json:
        print_json({"path": str(path), "findings": [each.as_dict() for each in found]})
    else:
        click.echo(str(path))
        _print_findings(found)
    return 0


def _wanted(source: str | None, one: dict[str, str | None], *, from_standards: bool) -> list[Any]:
    """The fixes that were asked for, in exactly one of three ways."""
    single = {name: value for name, value in one.items() if value is not None}
    if (source is not None) + bool(single) + from_standards != 1:
        ways = (
            "--fixes FILE, --from-standards, or --file, --line, --severity, --issue, --fix and --verification"
        )
        raise UsageError(message=f"Say what is to be mended in one way: {ways}.")
    if source is not None:
        return _read_list(source)
    if from_standards:
        return _of_standards()
    names = {"path": "file", "change": "fix"}
    members = {names.get(name, name): value for name, value in single.items()}
    line = members.get("line") or ""
    return [{"id": 1, **members, "line": int(line) if line.isascii() and line.isdigit() else line}]


def _read_list(source: str) -> list[Any]:
    from proctor.proof.fixfile import MAX_BYTES, read_capped
    from proctor.proof.jsontext import scan_json

    raw = sys.stdin.buffer.read(MAX_BYTES + 1) if source == "-" else read_capped(Path(source))
    if len(raw) > MAX_BYTES:
        raise UsageError(message=f"The list has more than {MAX_BYTES:,} bytes. Split it into several files.")
    value = scan_json(raw.decode("utf-8", "replace"), source).value
    listed = value.get("fixes") if isinstance(value, dict) else value
    if not isinstance(listed, list):
        raise UsageError(message=f"{source} must hold a list of fixes, or an object with a list `fixes`.")
    return listed


def _of_standards() -> list[Any]:
    from proctor.config.load import load_settings
    from proctor.proof.standards import check_tree, standards_settings
    from proctor.proof.standards_report import fix_file_of

    found = check_tree(_root(), standards_settings(load_settings().standards))
    if not found:
        raise NotFoundError(kind="violation of", name="[standards]", cure="Every rule that is set is kept.")
    listed: list[Any] = fix_file_of(found, review_id="x", component="x", date="x")["fixes"]
    return listed


@fixes.command()
@click.argument("names", nargs=-1)
@click.option("--fix", "mending", is_flag=True, help="Apply the cures that change no meaning.")
@json_option
def lint(names: tuple[str, ...], mending: bool, as_json: bool) -> int:
    """Lint fix files by path, name or number; all of orchestrator/ by default. Exit code 1 if there is an error."""
    from proctor.proof.findings import has_errors

    box = _box()
    paths = [box.find(name) for name in names] or [
        one.path for one in box.files() if one.path.suffix == ".json"
    ]
    report: dict[str, list[LintFinding]] = {}
    for path in paths:
        if mending:
            _mend(path, quiet=as_json)
        report[str(path)] = _lint_path(path, box.root)
    if as_json:
        print_json({"files": {name: [one.as_dict() for one in found] for name, found in report.items()}})
    else:
        for name, found in report.items():
            click.echo(f"{name}: " + (f"{len(found)} findings" if found else "nothing found"))
            _print_findings(found)
    return 1 if any(has_errors(found) for found in report.values()) else 0


def _mend(path: Path, *, quiet: bool) -> None:
    from proctor.proof.fixfile import read_capped, replace_file
    from proctor.proof.mend import mend

    try:
        text = read_capped(path).decode("utf-8")
    except UnicodeDecodeError:
        return  # the lint that follows says it
    mended, done = mend(text)
    if mended != text:
        replace_file(path, mended)
        for sentence in () if quiet else done:
            click.echo(f"mended: {sentence}")


def _lint_path(path: Path, root: Path) -> list[LintFinding]:
    from proctor.proof.findings import LintFinding, Weight
    from proctor.proof.fixfile import FixFileError, load_fix_file
    from proctor.proof.lint import lint_name

    try:
        document = load_fix_file(path)
    except FixFileError as error:
        cure = "See docs/reference/fix-file.schema.json."
        wrong = [
            LintFinding(
                "file.schema",
                Weight.ERROR,
                one.field or "the file",
                f"{one.sentence[:1].upper()}{one.sentence[1:]}.",
                cure,
                one.line,
            )
            for one in error.problems
        ]
        return [*lint_name(path.name), *wrong]
    return _findings(document, root)


def _findings(document: FixDocument, root: Path) -> list[LintFinding]:
    from proctor.proof.lint import lint_document, lint_name

    follow_up = document.data.previous_file is not None
    named = lint_name(document.name, document.data.review_id, follow_up=follow_up)
    return [*named, *lint_document(document, root=root)]


def _print_findings(found: list[LintFinding]) -> None:
    for one in found:
        click.echo(f"  {one}")


@fixes.command("list")
@json_option
def list_files(as_json: bool) -> None:
    """List the files of orchestrator/outgoing and orchestrator/incoming."""
    rows = [_row(one) for one in _box().files()]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("There are no files. Make one with `proctor fixes new`.")
    else:
        shown = [
            (r["box"], r["name"], r["review_id"], f"{r['answered']}/{r['fixes']}", r["problem"]) for r in rows
        ]
        print_table(["box", "name", "review", "answered", "problem"], shown)


def _row(one: Listed) -> dict[str, Any]:
    from proctor.proof.fixfile import FixFileError, load_fix_file

    row: dict[str, Any] = {
        "box": one.box,
        "name": one.path.name,
        "review_id": "",
        "fixes": 0,
        "answered": 0,
        "problem": one.problem,
    }
    if one.path.suffix != ".json" or (one.name is not None and one.name.kind != "fixes"):
        return row
    try:
        document = load_fix_file(one.path)
    except FixFileError as error:
        return {**row, "problem": one.problem or str(error.problems[0])}
    answered = sum(fix.result is not None for fix in document.fixes)
    return {**row, "review_id": document.data.review_id, "fixes": len(document.fixes), "answered": answered}


@fixes.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one fix file by path, name or number."""
    document = _load(name)
    if as_json:
        print_json(document.source.value)
        return
    data = document.data
    click.echo(f"{document.name}: {data.review_id}, {data.component}, {data.date}, for {data.assigned_to}")
    if data.previous_file:
        click.echo(f"follows {data.previous_file}")
    for fix in data.fixes:
        click.echo(
            f"\n{fix.id}  {fix.severity.value}  {fix.path}:{fix.line}  {fix.result.status if fix.result else 'not answered'}"
        )
        for label, text in (("issue", fix.issue), ("fix", fix.fix), ("verification", fix.verification)):
            click.echo(f"   {label}: {_one_line(text)}")
        for change in (fix.result.changes_made or []) if fix.result else []:
            click.echo(f"   changed: {_one_line(change)}")
        if fix.result:
            click.echo(f"   verify: {_one_line(fix.result.verification_command)}")
            click.echo(f"   check: {_one_line(fix.result.hallucination_check)}")


def _one_line(text: str) -> str:
    """Text of a file that others wrote, without line ends and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@fixes.command()
@click.argument("name")
@json_option
def followup(name: str, as_json: bool) -> None:
    """Write the next file of a cycle with the fixes that failed, were done in part, or were never answered."""
    document = _load(name)
    path = write_followup(_box(), document)
    if as_json:
        print_json({"path": str(path)})
    else:
        click.echo(str(path))


def write_followup(box: Exchange, document: FixDocument, judgements: dict[str, Any] | None = None) -> Path:
    """Write the follow-up under the next number after the file's own."""
    from proctor.proof.followup import focus_of, render_fix_file
    from proctor.proof.followup import followup as content_of
    from proctor.proof.names import sequence_of

    today = datetime.now(UTC).date().isoformat()
    content = content_of(document, date=today, judgements=judgements)
    after = sequence_of(document.name) or 0
    return box.create(focus_of(document), "fixes", render_fix_file(content), after=after)


fixes.add_command(run)
fixes.add_command(verify)
