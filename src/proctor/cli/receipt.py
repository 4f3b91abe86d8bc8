"""`proctor receipt`: show a receipt, or run it again on this machine and see whether it comes to the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from proctor.cli.groups import Commands
from proctor.cli.output import columns, json_option, print_json

__all__ = ["prove", "receipt"]

FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(cls=Commands)
def receipt() -> None:
    """Receipts: what was run for a change, where, and what came of it."""


@receipt.command()
@FILE
@json_option
def show(file: Path, as_json: bool) -> None:
    """Show a receipt; one that was altered is refused."""
    from proctor.proof.receipt import load_receipt
    from proctor.proof.screen import as_text

    found = load_receipt(file)
    if as_json:
        print_json(found)
    else:
        click.echo(as_text(found, columns()))


@receipt.command()
@FILE
@json_option
@click.pass_context
def verify(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Run everything of a receipt again in the repository here and compare.

    Exit code 0: it comes to the same; 1: it does not; 7: the receipt was altered; 8: it cannot be run here.
    """
    _verify(ctx, file, as_json)


@click.command()
@FILE
@json_option
@click.pass_context
def prove(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Run a receipt again and compare; the same as `proctor receipt verify`."""
    _verify(ctx, file, as_json)


def _verify(ctx: click.Context, file: Path, as_json: bool) -> None:
    from proctor.proof.judgement import exit_code_of
    from proctor.proof.receipt import load_receipt

    found = load_receipt(file)
    again = asyncio.run(_again(found))
    same = {"proven": "the same", "refuted": "not the same", "inconclusive": "inconclusive"}[again.word.value]
    if as_json:
        legs = [{"name": leg.name, "tree": leg.tree, "passed": leg.passed} for leg in again.legs]
        answer = {
            "receipt": found["verdict"],
            "digest": found["digest"],
            "again": same,
            "reasons": again.reasons,
        }
        print_json({**answer, "legs": legs})
    else:
        click.echo(f"{same}: the receipt says {found['verdict']}")
        for reason in again.reasons:
            click.echo(f"  {reason}")
    ctx.exit(exit_code_of([again.word]))


async def _again(found: dict[str, Any]) -> Any:
    from proctor.cli.proving import open_bench
    from proctor.proof.again import run_again
    from proctor.proof.legs import Legs

    async with open_bench() as bench:
        return await run_again(found, bench.work.trees, Legs(bench.work.runner))
