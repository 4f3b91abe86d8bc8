"""Rules and settings of each workspace, read again only when one of the files they come from has changed, and what
follows from the settings for all calls of one kind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from proctor.config import LOCAL_FILE, SHARED_FILE, Settings, load_settings
from proctor.gate.adapters import Binding, bind
from proctor.gate.limits import Limits, tighter
from proctor.gate.policy import RuleSet, builtin_rules
from proctor.gate.policy.settings import rules_of_workspace
from proctor.gate.profiles import Profile, find_profile, limits_of_settings
from proctor.protocol.tools import Call, Tool

__all__ = ["Ground", "Grounds", "RuleBook", "SettingsShelf"]

T = TypeVar("T")
MAX_KEPT: Final = 256
_Stamp = tuple[tuple[int, int, int] | None, ...]


class _Kept(Generic[T]):
    """What was made of a workspace's files; safe for many threads."""

    def __init__(self, make: Callable[[Path], T], files: tuple[str, ...]) -> None:
        self._make, self._files = make, files
        self._kept: dict[Path, tuple[_Stamp, T]] = {}
        self._lock = threading.Lock()

    def of(self, workspace: Path) -> T:
        """The value that holds now."""
        place = str(workspace)
        stamp = tuple([_look(f"{place}/{name}") for name in self._files])
        with self._lock:
            kept = self._kept.get(workspace)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        value = self._make(workspace)
        with self._lock:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[workspace] = (stamp, value)
        return value


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - seven for each call, and Path costs thrice as much
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class RuleBook:
    """The policy's rules by workspace."""

    def __init__(self) -> None:
        # Git's index too: whether the local file is the repository's own depends on it.
        self._kept = _Kept(rules_of_workspace, (SHARED_FILE, LOCAL_FILE, ".git/index", ".git"))

    def of(self, workspace: Path | None) -> RuleSet:
        """The rules that hold there now."""
        return builtin_rules() if workspace is None else self._kept.of(workspace)


class SettingsShelf:
    """The settings by workspace, as a process that serves many of them needs it."""

    def __init__(self, own: Settings, environ: Mapping[str, str]) -> None:
        self._own = own
        self._kept = _Kept(lambda place: load_settings(place, environ), (SHARED_FILE, LOCAL_FILE, ".env"))

    def of(self, workspace: Path | None) -> Settings:
        """The settings that hold there now; without a workspace, those the process began with."""
        return self._own if workspace is None else self._kept.of(workspace)


@dataclass(frozen=True, slots=True)
class Ground:
    """What holds for every call of one tool under one profile, as long as the settings are the same."""

    tool: Tool
    settings: Settings
    profile: Profile
    binding: Binding
    limits: Limits
    """Of each session, plan or direct request."""
    protected: tuple[Path, ...]
    """Proctor's own places, which no tool may touch; worktrees are elsewhere and may be."""


class Grounds:
    """Works grounds out once; two threads may do the same work, and then keep the same."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str, str, str], Ground] = {}

    def of(self, tool: Tool, call: Call, settings: Settings) -> Ground:
        """The ground of a call; refuses an unknown profile."""
        place = (id(settings), call.tool, call.profile, call.adapter)
        kept = self._kept.get(place)
        if kept is None or kept.settings is not settings or kept.tool is not tool:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            kept = self._kept[place] = _ground(tool, call, settings)
        return kept


def _ground(tool: Tool, call: Call, settings: Settings) -> Ground:
    profile, paths = find_profile(call.profile, settings.profiles), settings.paths
    return Ground(
        tool,
        settings,
        profile,
        bind(tool, call.adapter, profile),
        tighter(profile.limits, limits_of_settings(settings.limits)),
        (paths.state_dir, paths.runtime_dir, paths.backups_dir, paths.blobs_dir),
    )
