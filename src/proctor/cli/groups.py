"""Groups of commands: one that can list does so when no command is named, and help shows whole sentences."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["Commands"]

_SENTENCE = 400


class Commands(click.Group):
    """A group with a default: `proctor tasks --json` is `proctor tasks list --json`."""

    def __init__(self, *args: Any, default: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.default = default
        if default:
            self.subcommand_metavar = "[COMMAND] [ARGS]..."

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default in front of options that are not the group's own; a shell that completes wants all commands."""
        if self.default and not ctx.resilient_parsing and not self.names_a_command(ctx, args):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def names_a_command(self, ctx: click.Context, args: list[str]) -> bool:
        """Whether the words are for a command, or ask for the group's help; a misspelt command counts as one."""
        return bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with all of their first sentence."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                usual = " (without a command, too)" if name == self.default else ""
                rows.append((name, command.get_short_help_str(_SENTENCE).rstrip(".") + usual + "."))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
