"""The table `[proof]` of proctor.toml: how long, with which commands, and which tests are known to fail by chance.

Per-path commands are for repositories of many parts: a change below `packages/a` is judged by that part's own command.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.config import RawTable, Settings
from proctor.protocol.errors import ConfigError

__all__ = ["ProofSettings", "commands_for", "proof_settings"]

_KNOWN = ("disk_mb", "docs", "flaky", "paths", "pictures", "seconds")


@dataclass(frozen=True, slots=True)
class ProofSettings:
    """What can be set about proofs."""

    seconds: int = 900
    disk_mb: int = 10_240
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flaky: tuple[str, ...] = ()
    docs: tuple[str, ...] = ()
    pictures: tuple[str, ...] = ()

    def is_flaky(self, test: str) -> bool:
        """Whether a test is on the list; `*` stands for any text."""
        return any(fnmatch.fnmatchcase(test, pattern) for pattern in self.flaky)


def proof_settings(settings: Settings) -> ProofSettings:
    """Read the table; what is wrong is named with its line."""
    table = settings.proof
    for name in table.values:
        if name not in _KNOWN:
            raise _wrong(
                table, (name,), f"{name[:80]!r} is not a setting in [proof]", f"Allowed: {', '.join(_KNOWN)}."
            )
    return ProofSettings(
        seconds=_whole(table, "seconds", 900, 86_400),
        disk_mb=_whole(table, "disk_mb", 10_240, 10_000_000),
        paths=_paths(table),
        flaky=_texts(table, ("flaky",), table.values.get("flaky", ())),
        docs=_texts(table, ("docs",), table.values.get("docs", ())),
        pictures=_texts(table, ("pictures",), table.values.get("pictures", ())),
    )


def _wrong(table: RawTable, path: tuple[str, ...], problem: str, allowed: str) -> ConfigError:
    return ConfigError(where=table.where(*path), problem=problem, allowed=allowed)


def _whole(table: RawTable, name: str, default: int, most: int) -> int:
    value = table.values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _wrong(table, (name,), f"proof.{name} must be a whole number", f"From 1 to {most}.")
    return value


def _texts(table: RawTable, path: tuple[str, ...], value: Any) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(
        isinstance(each, str) and each.strip() for each in found
    ):
        raise _wrong(
            table, path, f"proof.{'.'.join(path)} must be a text or a list of texts", "None of them empty."
        )
    return tuple(found)


def _paths(table: RawTable) -> dict[str, tuple[str, ...]]:
    value = table.values.get("paths", {})
    if not isinstance(value, Mapping):
        raise _wrong(
            table, ("paths",), "proof.paths must be a table", 'For example "packages/a" = "npm test -w a".'
        )
    return {str(path).strip("/"): _texts(table, ("paths", str(path)), line) for path, line in value.items()}


def commands_for(paths: Sequence[str], proof: ProofSettings, test: Sequence[str]) -> tuple[str, ...]:
    """The commands that judge a change of these paths: each part's own where one is set, else the project's."""
    if not proof.paths:
        return tuple(test)
    chosen: dict[str, None] = {}
    for path in paths:
        part = max((p for p in proof.paths if path == p or path.startswith(f"{p}/")), key=len, default=None)
        chosen.update(dict.fromkeys(test if part is None else proof.paths[part]))
    return tuple(chosen)
