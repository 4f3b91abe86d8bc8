"""Driver names and where their classes live; third parties add theirs by the entry point group
`proctor.drivers`.

A driver is loaded only when it is used. Its class is called with the configured command (empty: its own).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import cast

from proctor.agents.driver import Driver
from proctor.protocol.errors import NotFoundError

__all__ = ["BUILT_IN", "GROUP", "make_driver", "names"]

GROUP = "proctor.drivers"
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "claude": "proctor.agents.claude:ClaudeDriver",
        "codex": "proctor.agents.codex:CodexDriver",
        "model": "proctor.agents.model_driver:ModelDriver",
        "scripted": "proctor.agents.scripted:ScriptedDriver",
    }
)
Factory = Callable[[Sequence[str]], Driver]


def names() -> tuple[str, ...]:
    """All drivers this installation has."""
    return tuple(sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))}))


def make_driver(name: str, command: Sequence[str] = ()) -> Driver:
    """Load a driver by name; a plugin cannot replace a built-in one."""
    return _factory(name)(command)


def _factory(name: str) -> Factory:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return cast(Factory, getattr(import_module(module), attribute))
    for point in entry_points(group=GROUP, name=name):
        return cast(Factory, point.load())
    raise NotFoundError(kind="driver", name=name, cure=f"Known drivers: {', '.join(names())}.")
