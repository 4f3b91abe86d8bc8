"""`proctor fixes`: make, lint, list and show fix files, and make the follow-up of one. Nothing here runs a command."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.fixes_new import new
from proctor.cli.fixes_verify import run, verify
from proctor.cli.fixing import exchange_here, findings_of, print_findings
from proctor.cli.groups import Commands
from proctor.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from proctor.proof.exchange import Exchange, Listed
    from proctor.proof.findings import LintFinding
    from proctor.proof.fixfile import FixDocument

__all__ = ["fixes"]


@click.group(cls=Commands, default="list")
def fixes() -> None:
    """Fix files: what is to be mended goes out, comes back with a result in each fix, and is judged."""


def _load(word: str) -> FixDocument:
    from proctor.proof.fixfile import load_fix_file

    return load_fix_file(exchange_here().find(word))


@fixes.command()
@click.argument("names", nargs=-1)
@click.option("--fix", "mending", is_flag=True, help="Apply the cures that change no meaning.")
@json_option
def lint(names: tuple[str, ...], mending: bool, as_json: bool) -> int:
    """Lint fix files by path, name or number; all of orchestrator/ by default. Exit code 1 if there is an error."""
    from proctor.proof.findings import has_errors

    box = exchange_here()
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
            many = f"{len(found)} finding{'' if len(found) == 1 else 's'}" if found else "nothing found"
            click.echo(f"{name}: {many}")
            print_findings(found)
        if not report:
            click.echo("There are no files to lint. Make one with `proctor fixes new`.")
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
    return findings_of(document, root)


@fixes.command("list")
@json_option
def list_files(as_json: bool) -> None:
    """List the files of orchestrator/outgoing and orchestrator/incoming."""
    rows = [_row(one) for one in exchange_here().files()]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("There are no files. Make one with `proctor fixes new`.")
    else:
        shown = [
            (r["box"], r["name"], r["review_id"], f"{r['answered']}/{r['fixes']}", r["problem"]) for r in rows
        ]
        print_table(["BOX", "NAME", "REVIEW", "ANSWERED", "PROBLEM"], shown)


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
    """Write the next file of a cycle with the fixes that failed, were done in part, were refuted, or never answered.

    What was refuted is known from the last `proctor fixes verify` of the same text.
    """
    from proctor.config.load import load_settings
    from proctor.proof.rulings import kept_rulings

    document = _load(name)
    rulings = kept_rulings(load_settings().paths.data_dir / "rulings", document.text)
    if rulings is None and any(fix.result is not None for fix in document.fixes):
        words = "only what the executor says itself is carried"
        click.echo(
            f"{document.name} was not judged here as it is: {words}. `proctor fixes verify` judges it.",
            err=True,
        )
    path = write_followup(exchange_here(), document, rulings)
    if as_json:
        print_json({"path": str(path), "judged": rulings is not None})
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


fixes.add_command(new)
fixes.add_command(run)
fixes.add_command(verify)
