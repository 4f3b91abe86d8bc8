"""`proctor demo`: the main job with simulated agents, in a temporary directory, in half a minute."""

from __future__ import annotations

import click

from proctor.cli.output import json_option, print_json

__all__ = ["demo"]


@click.command()
@json_option
def demo(as_json: bool) -> int:
    """Show the main job with simulated agents; needs no key, no account, no service, and leaves nothing behind.

    Tasks with dependencies, a supervisor killed in the middle with kill -9, a takeover, and a trace that is verified.
    """
    from proctor.config import environment
    from proctor.testing.demo import Demo

    click.echo("Proctor: a demonstration with simulated agents.", err=as_json)
    facts = Demo(lambda line: click.echo(line, err=as_json), environment()).run()
    verdict = (
        "Nothing was lost, nothing was done twice." if facts["ok"] else "Something went wrong; see above."
    )
    click.echo(f"{verdict} ({facts['seconds']} s)", err=as_json)
    if as_json:
        print_json(facts, line=True)
    return 0 if facts["ok"] else 1
