"""The settings, described once: name, kind, default, variable and meaning of each.

Validation, `proctor config` and docs/reference/settings.md derive from these classes; no other list exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proctor.config.kinds import Argv, Choice, Commands, Kind, Number, Prose, Text, Whole, Words
from proctor.config.paths import Paths

__all__ = [
    "PROFILES",
    "AgentSettings",
    "ApiSettings",
    "LimitSettings",
    "Meta",
    "ProjectSettings",
    "RawTable",
    "RetentionSettings",
    "Settings",
]

PROFILES = ("standard", "careful", "unattended", "enterprise", "smb", "technical")
SHELLS = ("bash", "pwsh")
LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known of one setting besides its default."""

    doc: str
    kind: Kind | None = None
    """Set for a single value."""
    section: type[Any] | None = None
    """Set for a table with fixed keys, or (named) a table of such tables."""
    named: bool = False
    texts: bool = False
    """Set for a table of texts under names the user chooses."""
    raw: bool = False
    """Set for a table that another room validates."""
    variables: tuple[str, ...] = ()
    """Further variables besides the derived PROCTOR_ name."""


def _value(kind: Kind, default: object, doc: str, *variables: str) -> Any:
    return field(default=default, metadata={"setting": Meta(doc, kind=kind, variables=variables)})


def _texts(doc: str) -> Any:
    # Values may be secrets, so they stay out of every repr.
    return field(default_factory=_empty, repr=False, metadata={"setting": Meta(doc, texts=True)})


def _section(section: type[Any], doc: str) -> dict[str, Meta]:
    return {"setting": Meta(doc, section=section)}


def _named(section: type[Any], doc: str) -> dict[str, Meta]:
    return {"setting": Meta(doc, section=section, named=True)}


def _raw(doc: str) -> dict[str, Meta]:
    return {"setting": Meta(doc, raw=True)}


def _empty() -> Mapping[Any, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RawTable:
    """A table that a higher room validates: its values, and where each path of it was written."""

    values: Mapping[str, Any] = field(default_factory=_empty)
    sources: Mapping[tuple[str | int, ...], str] = field(default_factory=_empty)

    def where(self, *path: str | int) -> str:
        """Where a path below this table was written; the nearest place above it if it was not."""
        while path and path not in self.sources:
            path = path[:-1]
        return self.sources.get(path, "default")


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """Limits that hold beside those of the profile; the tighter one wins."""

    calls: int | None = _value(Whole(), None, "Tool calls.")
    tokens: int | None = _value(Whole(), None, "Tokens, in and out.")
    usd: float | None = _value(Number(), None, "Money, in US dollars.")
    seconds: int | None = _value(Whole(), None, "Wall-clock seconds.")
    memory_mb: int | None = _value(Whole(minimum=64), None, "Memory of one agent with its children, in MiB.")
    cpu_percent: int | None = _value(Whole(maximum=100_000), None, "CPU of one agent; 100 is one core.")


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long things are kept."""

    days: int = _value(Whole(), 90, "Days after which finished traces may leave; a tombstone stays.")
    count: int = _value(
        Whole(), 10, "Newest backups kept per workspace; one that an open run needs stays too."
    )


@dataclass(frozen=True, slots=True)
class ProjectSettings:
    """How this repository is set up, tested and linted."""

    name: str = _value(Text(), "", "Name shown to people; the directory's name by default.")
    base_branch: str | None = _value(Text(), None, "Branch that work starts from and merges into.")
    setup: tuple[str, ...] = _value(Commands(), (), "Makes a fresh checkout ready to work in.")
    test: tuple[str, ...] = _value(Commands(), (), "Runs the tests; nothing can be proven without it.")
    lint: tuple[str, ...] = _value(Commands(), (), "Checks style and types.")
    env: Mapping[str, str] = _texts("Variables for the commands above.")
    services: Mapping[str, str] = _texts("Commands that must be running beside the tests, by name.")


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """How the model of an agent with the driver `model` is reached, paid and told."""

    base_url: str | None = _value(
        Text(),
        None,
        "Where the API is; the provider's own by default. One that is not on this machine counts only from "
        "proctor.local.toml, because your key is sent there.",
    )
    key: str | None = _value(
        Text(), None, "Name of the variable with the API key; the provider's usual one by default."
    )
    requests: int | None = _value(
        Whole(maximum=1000), None, "Model requests per chat message or attempt; 5 in a chat, 50 in a task."
    )
    max_tokens: int = _value(Whole(), 8192, "Most tokens of one answer.")
    num_ctx: int = _value(Whole(), 32_768, "Context that Ollama gives the model, in tokens.")
    seconds: int = _value(Whole(maximum=3600), 300, "Longest time of one model request.")
    input_usd: float | None = _value(
        Number(), None, "Price of a million tokens read, where the price list has none."
    )
    output_usd: float | None = _value(
        Number(), None, "Price of a million tokens written, where the price list has none."
    )
    prompt: str | None = _value(
        Prose(),
        None,
        "System prompt instead of the built-in one; {agent}, {person} and {project} are filled in.",
    )


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """One named agent."""

    driver: str = _value(
        Text(),
        "",
        "How it is spoken to (claude, codex, gemini, acp, model, scripted, …); its name by default.",
    )
    model: str | None = _value(Text(), None, "Model to ask for; the driver's own choice by default.")
    command: tuple[str, ...] = _value(Argv(), (), "Program to start instead of the driver's.")
    capabilities: tuple[str, ...] = _value(Words(), (), "What it is good at, for routing.")
    max_parallel: int = _value(Whole(maximum=1000), 1, "Tasks it may work on at once.")
    timeout: int = _value(Whole(), 3600, "Seconds for one attempt.")
    env: Mapping[str, str] = _texts("Variables for the agent's process.")
    limits: LimitSettings = field(
        default_factory=LimitSettings,
        metadata=_section(LimitSettings, "Limits of each attempt of this agent."),
    )
    api: ApiSettings = field(
        default_factory=ApiSettings,
        metadata=_section(ApiSettings, "How its model is reached, for the driver `model`."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that can be set, read once; `sources` tells of each dotted key where its value comes from."""

    paths: Paths
    workspace: Path | None
    database_url: str = field(repr=False)
    engine_database_url: str = field(repr=False)
    profile: str = _value(
        Text(), "standard", "Rules the gate applies: a built-in profile or one of [profiles]."
    )
    log_level: str = _value(
        Choice(LOG_LEVELS), "INFO", "Least important message that is logged.", "ORCHESTRATOR_LOG_LEVEL"
    )
    shell: str = _value(
        Choice(SHELLS),
        "bash",
        "Shell of `execute_command`: bash, or pwsh for PowerShell where it is installed.",
    )
    project: ProjectSettings = field(
        default_factory=ProjectSettings,
        metadata=_section(ProjectSettings, "How this repository is set up, tested and linted."),
    )
    agents: Mapping[str, AgentSettings] = field(
        default_factory=_empty, metadata=_named(AgentSettings, "Agents by name.")
    )
    limits: LimitSettings = field(
        default_factory=LimitSettings,
        metadata=_section(LimitSettings, "Limits of each session, plan or direct task."),
    )
    retention: RetentionSettings = field(
        default_factory=RetentionSettings, metadata=_section(RetentionSettings, "How long things are kept.")
    )
    profiles: RawTable = field(default_factory=RawTable, metadata=_raw("Profiles of your own, by name."))
    policy: RawTable = field(
        default_factory=RawTable, metadata=_raw("Lines that widen or narrow what the gate allows here.")
    )
    proof: RawTable = field(
        default_factory=RawTable,
        metadata=_raw(
            "How changes are proven: seconds, disk_mb, paths, flaky, docs, pictures (docs/howto/check.md)."
        ),
    )
    standards: RawTable = field(
        default_factory=RawTable,
        metadata=_raw(
            "Code standards that `proctor standards check` holds files to (docs/howto/fix-files.md)."
        ),
    )
    secrets: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=_empty, repr=False)
    sources: Mapping[str, str] = field(default_factory=_empty, repr=False)
