"""What Claude Code, Codex and Gemini CLI read: where an MCP server is entered, and what a command of the user's looks like.

Claude Code and Gemini CLI have slash commands; Codex has skills, which are called with a dollar sign. No secret is written
anywhere: a task's token comes by the environment, whose name alone stands in the entry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from proctor.agents.slash import ARGUMENTS, COMMANDS, Command
from proctor.cli.integrate_edits import json_with, json_without, toml_with, toml_without
from proctor.gate.humans import TASK_TOKEN as VARIABLE

__all__ = ["MARK", "NAMES", "Change", "changes_for"]

MARK: Final = "Written by `proctor integrate`; the next run overwrites it."
NAME: Final = "proctor"
# Where the state lies, and which it is; Codex hands on only what is named.
_PASSED: Final = (
    VARIABLE, "PROCTOR_RUN", "PROCTOR_DATABASE_URL", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
_START_SECONDS: Final = 60


@dataclass(frozen=True, slots=True)
class Change:
    """One file, and how its text changes."""

    path: Path
    put: Callable[[str], str]
    take: Callable[[str], str]
    own: bool = False
    """Wholly ours: somebody else's file of that name is not overwritten, and ours is removed as a whole."""


def changes_for(
    agent: str, *, home: Path, project: Path | None, environ: Mapping[str, str], program: Sequence[str]
) -> list[Change]:
    """Every file of one CLI; `project` for the repository's, else the user's own."""
    return _MAKERS[agent](home, project, environ, tuple(program))


# ── Claude Code ───────────────────────────────────────────────────────────────────────────────────────────────────


def _claude(
    home: Path, project: Path | None, environ: Mapping[str, str], program: tuple[str, ...]
) -> list[Change]:
    own = environ.get("CLAUDE_CONFIG_DIR")
    base = project / ".claude" if project else Path(own) if own else home / ".claude"
    settings = project / ".mcp.json" if project else (Path(own) if own else home) / ".claude.json"
    entry = {
        "type": "stdio",
        "command": program[0],
        "args": [*program[1:], "mcp"],
        "env": {VARIABLE: f"${{{VARIABLE}:-}}"},
    }
    files = [_file(base / "commands" / f"{one.name}.md", _claude_text(one)) for one in COMMANDS.values()]
    return [_json_entry(settings, entry), *files]


def _claude_text(command: Command) -> str:
    allowed = [f"mcp__{NAME}__{tool}" for tool in command.tools] + [
        f"Bash({line}:*)" for line in command.programs
    ]
    head = {
        "description": command.summary,
        "argument-hint": f"[{command.takes}]",
        "allowed-tools": ", ".join(allowed),
    }
    return _markdown(head, command.text.replace(ARGUMENTS, "$ARGUMENTS"))


# ── Codex ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _codex(
    home: Path, project: Path | None, environ: Mapping[str, str], program: tuple[str, ...]
) -> list[Change]:
    own = environ.get("CODEX_HOME")
    base = project / ".codex" if project else Path(own) if own else home / ".codex"
    entry = {
        "command": program[0],
        "args": [*program[1:], "mcp"],
        "env_vars": list(_PASSED),
        "startup_timeout_sec": _START_SECONDS,
    }
    table, path = f"mcp_servers.{NAME}", base / "config.toml"
    config = Change(
        path,
        lambda text: toml_with(text, table, entry, str(path)),
        lambda text: toml_without(text, table, str(path)),
    )
    files = [_file(base / "skills" / one.name / "SKILL.md", _codex_text(one)) for one in COMMANDS.values()]
    return [config, *files]


def _codex_text(command: Command) -> str:
    head = {
        "name": command.name,
        "description": f"{command.summary}. Only when the user asks for ${command.name}.",
    }
    text = command.text.replace(ARGUMENTS, f"what the user wrote behind ${command.name}").replace(
        "/orch-", "$orch-"
    )
    return _markdown(head, text)


# ── Gemini CLI ────────────────────────────────────────────────────────────────────────────────────────────────────


def _gemini(
    home: Path, project: Path | None, _environ: Mapping[str, str], program: tuple[str, ...]
) -> list[Change]:
    base = (project or home) / ".gemini"
    # Gemini hides variables that look like secrets from servers unless they are named.
    entry = {
        "command": program[0],
        "args": [*program[1:], "mcp"],
        "env": {VARIABLE: f"${VARIABLE}"},
        "timeout": _START_SECONDS * 1000,
    }
    files = [_file(base / "commands" / f"{one.name}.toml", _gemini_text(one)) for one in COMMANDS.values()]
    return [_json_entry(base / "settings.json", entry), *files]


def _gemini_text(command: Command) -> str:
    text = command.text.replace(ARGUMENTS, "{{args}}")
    assert '"""' not in text, "it would end the prompt"
    assert "\\" not in text, "it would begin an escape"
    return f'# {MARK}\ndescription = {json.dumps(command.summary)}\nprompt = """\n{text}\n"""\n'


# ── what they share ───────────────────────────────────────────────────────────────────────────────────────────────


def _json_entry(path: Path, entry: Mapping[str, Any]) -> Change:
    where = str(path)
    return Change(
        path,
        lambda text: json_with(text, "mcpServers", NAME, entry, where),
        lambda text: json_without(text, "mcpServers", NAME, where),
    )


def _file(path: Path, text: str) -> Change:
    return Change(path, lambda _: text, lambda _: "", own=True)


def _markdown(head: Mapping[str, str], text: str) -> str:
    lines = [f"{name}: {json.dumps(value)}" for name, value in head.items()]
    return "\n".join(["---", *lines, "---", "", text, "", f"<!-- {MARK} -->", ""])


_MAKERS: Final = {"claude": _claude, "codex": _codex, "gemini": _gemini}
NAMES: Final = tuple(_MAKERS)
