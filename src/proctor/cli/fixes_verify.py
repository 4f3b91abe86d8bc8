"""`proctor fixes run` and `verify`: agents work on the fixes of a file; each is judged by its own commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proctor.cli.output import json_option, print_json

if TYPE_CHECKING:
    from proctor.proof.fixfile import FixDocument

__all__ = ["run", "verify"]


@click.command("verify")
@click.argument("file")
@click.option(
    "--base", metavar="REV", help="The revision before the fixes; HEAD for work that is not committed."
)
@click.option(
    "--timeout", type=click.IntRange(1, 86_400), default=300, show_default=True, help="Seconds per command."
)
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit XML to this file."
)
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request.")
@json_option
@click.pass_context
def verify(
    ctx: click.Context,
    file: str,
    base: str | None,
    timeout: int,
    junit: Path | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Judge every fix of FILE: its check must fail before it, pass with it, and fail again without it.

    Exit code 0 only if all are proven; 1: one is refuted; 8: one stays open.
    """
    from proctor.proof.fixfile import load_fix_file
    from proctor.proof.judgement import Word, exit_code_of

    document = load_fix_file(_found(file))
    rows, receipts, decision = asyncio.run(_verify(document, file, base, timeout))
    if junit is not None:
        from proctor.proof.report import as_junit

        junit.write_text(as_junit(receipts))
    if as_json:
        print_json(
            {"file": document.name, "review_id": document.data.review_id, "fixes": rows, "decision": decision}
        )
    elif markdown:
        from proctor.proof.report import as_markdown

        click.echo(as_markdown(receipts))
    else:
        _print(rows, decision, document.name)
    ctx.exit(exit_code_of([Word(row["verdict"]) for row in rows]))


def _found(word: str) -> Path:
    from proctor.config.load import current_directory, find_workspace
    from proctor.proof.exchange import Exchange

    if Path(word).exists():
        return Path(word)
    here = current_directory()
    return Exchange(find_workspace(here) or here).find(word)


def _print(rows: list[dict[str, Any]], decision: dict[str, Any], name: str) -> None:
    from proctor.proof.screen import sign_of

    for row in rows:
        head = f"{sign_of(row['verdict'])} fix {row['id']}  {row['file']}:{row['line']}"
        click.echo(f"{head}  {row['status'] or 'not answered'}  {row['verdict']}: {_plain(row['reason'])}")
        for note in row["notes"]:
            click.echo(f"    note: {_plain(note)}")
    counts = {
        word: sum(row["verdict"] == word for row in rows) for word in ("proven", "refuted", "inconclusive")
    }
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    click.echo(f"\n{told}. Decision: {decision['action']} ({decision['reason']}).")
    if counts["proven"] == len(rows):
        click.echo("Every fix is proven; `proctor receipt verify` repeats each proof in any clone.")
    elif any(row["follow_up"] for row in rows):
        click.echo(f"Next: `proctor fixes followup {name}` asks again for what is refuted or not done.")
    else:
        click.echo("Next: see the reasons above; `proctor receipt show` has each run with its output.")


def _plain(text: str) -> str:
    """Others' words without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


async def _verify(
    document: FixDocument, file: str, base: str | None, seconds: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    from proctor.cli.proving import open_bench
    from proctor.proof.rulings import keep_rulings
    from proctor.protocol.decisions import Verdict, VerdictKind, decide

    rulings: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    receipts: list[dict[str, Any]] = []
    verdicts: list[Verdict] = []
    async with open_bench(seconds=seconds) as bench:
        ignore = ["orchestrator", *_inside(bench.work.trees.root, file)]
        for found in await bench.work.verify(document, base=base, ignore=ignore):
            made, place = await asyncio.to_thread(
                bench.recorder.record, found.judgement, trace_id=found.trace_id, more=found.facts()
            )
            receipts.append(made)
            rows.append(_told(found, place))
            target = f"fix {found.fix.id}"
            refuted = found.judgement.verdict(found.fix.severity, target)
            verdicts.append(
                refuted or Verdict("proctor", target, _kind(found.judgement.word.value, VerdictKind))
            )
            rulings[str(found.fix.id)] = found.ruling
        await asyncio.to_thread(
            keep_rulings, bench.app.settings.paths.data_dir / "rulings", document.text, rulings
        )
    chosen = decide(verdicts)
    return (
        rows,
        receipts,
        {"action": chosen.action.value, "reason": chosen.reason, "next_steps": list(chosen.next_steps)},
    )


def _kind(word: str, kinds: Any) -> Any:
    """What was not refuted: proven is approved, and what stays open is a warning."""
    return kinds.APPROVED if word == "proven" else kinds.WARNING


def _inside(root: Path, file: str) -> list[str]:
    """The fix file itself is no work of its own."""
    place = Path(file).resolve()
    return [str(place.relative_to(root))] if place.is_relative_to(root) else []


def _told(found: Any, place: Path) -> dict[str, Any]:
    fix, ruling, judgement = found.fix, found.ruling, found.judgement
    runs = {leg.name: [each.exit_code for each in leg.ran] for leg in judgement.legs}
    return {
        "id": fix.id,
        "file": fix.file,
        "line": fix.line,
        "severity": fix.severity.value,
        "status": fix.result.status if fix.result else None,
        "verdict": judgement.word.value,
        "rule": ruling.rule,
        "reason": ruling.reason,
        "weak": ruling.weak,
        "follow_up": ruling.follow_up,
        "notes": list(found.notes),
        "exit_codes": runs,
        "receipt": str(place),
        "trace_id": found.trace_id,
    }


@click.command("run")
@click.argument("file")
@click.option("--agent", help="Who is to do it; chosen by what it is good at when not given.")
@click.option(
    "--wait",
    type=click.IntRange(1, 86_400),
    default=3600,
    show_default=True,
    help="Seconds to wait for the results.",
)
@json_option
@click.pass_context
def run(ctx: click.Context, file: str, agent: str | None, wait: int, as_json: bool) -> None:
    """Let agents work on every fix of FILE that has no result; results are written into the same file.

    Each fix is a task of its own, worked on in a worktree of its own. The tasks go on when this command has ended.
    """
    from proctor.app import open_app
    from proctor.engine.client import ensure
    from proctor.engine.fix_run import FixRun

    place = _found(file)
    app = open_app()
    try:
        if agent is not None:
            from proctor.agents.roster import Roster

            agent = Roster(app.settings.agents).get(agent).name
        job = FixRun(app.tasks, app.database, app.writer, place, app.settings.workspace or place.parent)
        tasks = job.add(agent)
        ensure(app.settings)
        done: list[dict[str, Any]] = []

        def tell(fix_id: str, task: Any) -> None:
            done.append({"id": fix_id, "task_id": task.task_id, "status": task.status.value})
            if not as_json:
                click.echo(f"fix {fix_id}: {task.status.value} by {task.agent or '-'}")

        job.follow(tasks, seconds=wait, tell=tell)
        place = job.finish()
    finally:
        app.close()
    if as_json:
        print_json({"file": str(place), "tasks": done})
    elif not tasks:
        click.echo("Every fix has a result. `proctor fixes verify` judges them.")
    ctx.exit(0 if all(row["status"] == "completed" for row in done) else 1)
