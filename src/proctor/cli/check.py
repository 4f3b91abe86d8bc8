"""`proctor check`: what of a change is proven, what is not, and what is hollow. Needs no agent and no key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from proctor.cli.output import columns, json_option, print_json
from proctor.protocol.errors import UsageError

__all__ = ["check"]

KINDS = ("fix", "feature", "refactor", "docs", "ui")


@click.command()
@click.argument("ref", required=False)
@click.option("--staged", is_flag=True, help="What is staged, against HEAD.")
@click.option("--uncommitted", is_flag=True, help="All work that is not committed, against HEAD.")
@click.option("--base", metavar="REV", help="Compare with this revision; where the branch began by default.")
@click.option(
    "--kind", type=click.Choice(KINDS), help="What the change is for; guessed from the diff by default."
)
@click.option(
    "--timeout", type=click.IntRange(1, 86_400), help="Seconds one command may take; 900 by default."
)
@click.option(
    "--coverage", is_flag=True, help="Trace which changed lines are executed, also where that is slow."
)
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write JUnit XML to this file."
)
@click.option(
    "--receipt", type=click.Path(dir_okay=False, path_type=Path), help="Write the receipt to this file too."
)
@click.option("--markdown", is_flag=True, help="Print Markdown for a pull request.")
@json_option
@click.pass_context
def check(
    ctx: click.Context,
    ref: str | None,
    staged: bool,
    uncommitted: bool,
    base: str | None,
    kind: str | None,
    timeout: int | None,
    coverage: bool,
    junit: Path | None,
    receipt: Path | None,
    markdown: bool,
    as_json: bool,
) -> None:
    """Judge a change: REF is a branch, a commit or a range A..B; without one, work that is not committed, else the branch.

    \b
    fix, feature   proven when its tests fail without it and pass with it
    refactor       preserved when the same tests pass and run all changed lines
    docs           checked, or not applicable
    ui             shown, when a command makes pictures

    Exit code 0: it holds; 1: refuted; 3: a person must look; 8: inconclusive.
    """
    if as_json and markdown:
        raise UsageError(message="Choose --json or --markdown, not both.")
    from proctor.proof.kinds import Kind
    from proctor.proof.workbench import Wish

    wish = Wish(ref, base, staged, uncommitted, Kind(kind) if kind else None)
    made, place, code = asyncio.run(_judge(wish, timeout, coverage))
    _write(made, junit, receipt)
    if as_json:
        from proctor.proof.advice import next_step

        print_json({**made, "receipt": str(place), "next": next_step(made)})
    elif markdown:
        from proctor.proof.report import as_markdown

        click.echo(as_markdown([made]))
    else:
        from proctor.proof.screen import as_text

        click.echo(as_text(made, columns()))
        click.echo(f"\n  receipt: {place}")
    ctx.exit(code)


async def _judge(wish: Any, seconds: int | None, coverage: bool) -> tuple[dict[str, Any], Path, int]:
    from proctor.cli.proving import open_bench
    from proctor.proof.judgement import exit_code_of

    async with open_bench(seconds=seconds, trace_lines=coverage) as bench:
        if bench.work.shadow:
            raise UsageError(
                message="This directory is no git repository: nothing to compare with. Go to one, or run `git init`."
            )
        found = await bench.work.check(wish)
        made, place = await asyncio.to_thread(bench.recorder.record, found, trace_id=bench.trace_id)
        return made, place, exit_code_of([found.word], needs_you=found.needs_you)


def _write(made: dict[str, Any], junit: Path | None, receipt: Path | None) -> None:
    from proctor.proof.record import write_receipt
    from proctor.proof.report import as_junit

    if junit is not None:
        junit.write_text(as_junit([made]))
    if receipt is not None:
        write_receipt(made, receipt)
