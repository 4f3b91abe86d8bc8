"""`proctor completion SHELL`: the script that teaches a shell our commands."""

from __future__ import annotations

import click

from proctor.protocol.errors import UsageError

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    bash: `eval "$(proctor completion bash)"` in ~/.bashrc; zsh the same in ~/.zshrc; fish:
    `proctor completion fish | source` in config.fish.
    """
    from click.shell_completion import get_completion_class

    from proctor.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(message=f"There is no completion for {shell!r}; take one of {', '.join(SHELLS)}.")
    click.echo(kind(cli, {}, "proctor", "_PROCTOR_COMPLETE").source())
