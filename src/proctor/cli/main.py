"""The `proctor` command: a lazy group, so that `--help` imports nothing heavy, and the one place that turns
errors into a sentence and an exit code.

Exit codes (docs/reference/exit-codes.md): 0 done; 1 failed; 2 wrong usage or settings; 3 needs you;
4 not found; 5 refused; 6 unavailable; 7 altered data found; 8 inconclusive; 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from proctor import __version__

__all__ = ["COMMANDS", "EXIT_INTERRUPTED", "cli", "main"]

EXIT_INTERRUPTED = 130
_CURES = (
    (
        {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR},
        "Make it accessible to you, or let XDG_STATE_HOME, XDG_DATA_HOME and XDG_CACHE_HOME name places that are;"
        " `proctor doctor` looks at them.",
    ),
    ({errno.ENOSPC, errno.EDQUOT}, "Free some space; `proctor gc` removes what is old."),
    ({errno.EMFILE, errno.ENFILE}, "Raise the number of open files (`ulimit -n`)."),
)

# name -> (module, attribute, one line of help, group in `proctor --help`)
COMMANDS: dict[str, tuple[str, str, str, str]] = {
    "demo": (
        "proctor.cli.demo",
        "demo",
        "Show the main job with simulated agents; no key, no account.",
        "Start",
    ),
    "init": ("proctor.cli.init", "init", "Write proctor.toml for this repository; asks nothing.", "Start"),
    "doctor": (
        "proctor.cli.doctor",
        "doctor",
        "Check this machine and say the cure for what is missing.",
        "Start",
    ),
    "tasks": ("proctor.cli.tasks", "tasks", "Put work into the queue and look at it.", "Start"),
    "serve": (
        "proctor.cli.serve",
        "serve",
        "Serve REST and WebSocket, and execute tasks, in the foreground.",
        "Start",
    ),
    "open": (
        "proctor.cli.open",
        "open_",
        "Show Proctor in your browser, by a link that works once.",
        "Watch",
    ),
    "chat": (
        "proctor.cli.chat",
        "chat",
        "Talk to a model that works through the gate, and answer it here.",
        "Start",
    ),
    "tools": ("proctor.cli.tools", "tools", "List the tools, and call one through the gate.", "Start"),
    "plan": ("proctor.cli.plan", "plan", "Run a list of governed calls; it goes on by itself.", "Start"),
    "agents": (
        "proctor.cli.agents",
        "agents",
        "Who is there, who is busy, who is offline and the cure.",
        "Watch",
    ),
    "status": ("proctor.cli.status", "status", "What needs you, what runs, what has finished.", "Watch"),
    "cost": ("proctor.cli.cost", "cost", "What was used: calls, tokens, money, time.", "Watch"),
    "trace": ("proctor.cli.trace", "trace", "Read, follow, verify and export the trace.", "Watch"),
    "check": (
        "proctor.cli.check",
        "check",
        "What of a change is proven, what is not, what is hollow.",
        "Finish",
    ),
    "receipt": ("proctor.cli.receipt", "receipt", "Show a receipt, or run it again and compare.", "Finish"),
    "prove": ("proctor.cli.receipt", "prove", "Run a receipt again; `receipt verify` in one word.", "Finish"),
    "backup": (
        "proctor.cli.backup",
        "backup",
        "Take, list, check, restore and prune exact backups.",
        "Finish",
    ),
    "fixes": (
        "proctor.cli.fixes",
        "fixes",
        "Make, lint and judge fix files: what to mend, what came of it.",
        "Finish",
    ),
    "standards": (
        "proctor.cli.standards",
        "standards",
        "Check the code standards that are set in [standards].",
        "Finish",
    ),
    "undo": ("proctor.cli.undo", "undo", "Take back the last change to a workspace.", "Finish"),
    "inbox": ("proctor.cli.inbox", "inbox", "What waits for your answer, and what it would do.", "Decide"),
    "approve": ("proctor.cli.approve", "approve", "Say yes to questions of the inbox.", "Decide"),
    "deny": ("proctor.cli.approve", "deny", "Say no to questions of the inbox, with the reason.", "Decide"),
    "pause": ("proctor.cli.pause", "pause", "Let nothing new begin; what runs goes on to its end.", "Decide"),
    "resume": ("proctor.cli.pause", "resume", "Go on after a pause.", "Decide"),
    "mcp": (
        "proctor.cli.mcp",
        "mcp",
        "Serve the tools to a CLI agent over MCP; it starts this itself.",
        "Setup",
    ),
    "integrate": (
        "proctor.cli.integrate",
        "integrate",
        "Let claude, codex or gemini use Proctor over MCP.",
        "Setup",
    ),
    "gc": ("proctor.cli.gc", "gc", "Remove what is old: worktrees, traces, engine records.", "Setup"),
    "service": (
        "proctor.cli.service",
        "service",
        "Keep the supervisor running, also after a reboot.",
        "Setup",
    ),
    "logout": (
        "proctor.cli.open",
        "logout",
        "Make a new token: every browser is signed out.",
        "Setup",
    ),
    "config": ("proctor.cli.config", "config", "Show the settings and where each comes from.", "Setup"),
    "profiles": (
        "proctor.cli.profiles",
        "profiles",
        "Show and choose the rules that the gate applies.",
        "Setup",
    ),
    "policy": (
        "proctor.cli.policy",
        "policy",
        "Ask what the policy says about a command or a path.",
        "Setup",
    ),
    "rules": ("proctor.cli.rules", "rules", "The architecture rules that agents are told.", "Setup"),
    "db": ("proctor.cli.db", "db", "Upgrade, check and back up the database.", "Setup"),
    "worker": ("proctor.cli.worker", "worker", "Execute tasks of a shared PostgreSQL here.", "Setup"),
    "supervisor": (
        "proctor.cli.supervisor",
        "supervisor",
        "The background process: start, status, stop.",
        "Setup",
    ),
    "compat": ("proctor.cli.compat", "compat", "Use Proctor under the seeds' own module names.", "Setup"),
    "completion": (
        "proctor.cli.completion",
        "completion",
        "Print the completion script of your shell.",
        "Setup",
    ),
    "version": ("proctor.cli.version", "version", "Print the version.", "Setup"),
}
GROUPS = ("Start", "Watch", "Decide", "Finish", "Setup")


class LazyGroup(click.Group):
    """Imports a command when it is called, never for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name all commands, as completion wants them."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one that is wanted."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _help, _group = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Answer an unknown name with the nearest known ones."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message} {_near(args[0])}".strip(), ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what one does with them."""
        for group in GROUPS:
            rows = [(name, entry[2]) for name, entry in COMMANDS.items() if entry[3] == group]
            if rows:
                with formatter.section(group):
                    formatter.write_dl(rows)


def _near(word: str) -> str:
    import difflib

    found = difflib.get_close_matches(word, COMMANDS)
    return f"Did you mean {' or '.join(found)}?" if found else "See `proctor --help`."


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="proctor", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.option("--json", "as_json", is_flag=True, help="Without a command: print JSON instead of text.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, as_json: bool) -> None:
    """Run AI coding agents on a repository and be answerable for what they did.

    Without a command: what needs you, what runs, what has finished.
    """
    ctx.obj = {"debug": debug}
    if ctx.invoked_subcommand is None:
        status = cli.get_command(ctx, "status")
        assert status is not None
        ctx.invoke(status, as_json=as_json)
    elif as_json:
        raise click.UsageError(
            f"--json goes behind the command: `proctor {ctx.invoked_subcommand} … --json`."
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; failures print one sentence with the cure, never a traceback unless --debug."""
    words = list(sys.argv[1:] if argv is None else argv)
    own, rest = _split(words)
    debug = "--debug" in own
    try:
        return _run([word for word in own if word != "--debug"] + rest)
    except Exception as error:
        if debug:
            raise
        code = _report(error)
        _give_up_on_output()
        return code


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Part the words at `--`: what follows belongs to the command, also when it looks like our flag."""
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end:]


def _run(words: list[str]) -> int:
    try:
        answer: Any = cli.main(args=words, prog_name="proctor", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        _give_up_on_output()  # the reader (head, less) went away: not a failure
        return 0
    return answer if isinstance(answer, int) else 0


def _give_up_on_output() -> None:
    """Keep the interpreter from complaining at exit about what could not be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception) -> int:
    from proctor.protocol.errors import ProctorError

    known = _refused_by_the_system(error) if isinstance(error, OSError) else error
    if isinstance(known, ProctorError):
        click.echo(_sentence(f"proctor: {known}"), err=True)
        return known.exit_code
    sentence = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {sentence[0]}" if sentence else type(error).__name__
    click.echo(f"proctor: {what} — this is a defect; run it again with --debug and report it.", err=True)
    return 1


def _sentence(text: str) -> str:
    """As it is in a pipe; wrapped at words for a terminal."""
    from proctor.cli.output import fold

    return (
        "\n".join(line for part in text.splitlines() for line in fold(part))
        if sys.stderr is not None and sys.stderr.isatty()
        else text
    )


def _refused_by_the_system(error: OSError) -> Exception:
    """A full disk or a directory that is not ours is no defect of any command: say which, and the cure."""
    from proctor.protocol.errors import UnavailableError

    cure = next((cure for numbers, cure in _CURES if error.errno in numbers), None)
    if cure is None:
        return error
    what = error.filename2 or error.filename or "The output"
    return UnavailableError(what=what, reason=error.strerror, cure=cure)


if __name__ == "__main__":
    sys.exit(main())
