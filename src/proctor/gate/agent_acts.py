"""What a CLI agent's own permission request would do: judged like a tool call, so that grants and denials are the same.

Its tools are not ours; what they touch is read from the inputs: a command, a path, an address. Invariants: an act that
was not seen whole, is denied by the policy or cannot be taken back has no class, so no grant ever covers it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from proctor.gate.policy import Decision, Effect, RuleSet, judge_command, judge_path
from proctor.gate.rulebook import RuleBook

__all__ = ["AgentAct", "AgentActs"]

COMMANDS: Final = ("command", "cmd", "script")
PATHS: Final = ("file_path", "path", "notebook_path", "filePath", "abs_path")
ADDRESSES: Final = ("url", "uri")
MAX_LINES: Final = 60
MAX_WIDTH: Final = 500
MAX_CLASS: Final = 255


@dataclass(frozen=True, slots=True)
class AgentAct:
    """One request, weighed."""

    classes: tuple[str, ...]
    """What a grant would have to cover; empty: only this very act can be answered."""
    irreversible: bool
    risk: str
    consequences: tuple[str, ...]
    denied: str = ""
    """Why the policy forbids it, so that nobody is asked."""


@dataclass(frozen=True, slots=True)
class _Touch:
    """One thing the act touches."""

    line: str
    classes: tuple[str, ...]
    decision: Decision | None = None


class AgentActs:
    """Weighs requests by the rules of the workspace they concern."""

    def __init__(self) -> None:
        self._rules = RuleBook()

    def weigh(self, tool: str, inputs: object, *, workspace: Path | None, roots: Sequence[Path]) -> AgentAct:
        """Say what an act is; `roots` are where the agent works, `workspace` is whose rules hold."""
        if not isinstance(inputs, Mapping):
            cut = (f"{tool}: {str(inputs)[:MAX_WIDTH]}",) if inputs else (f"{tool} without inputs",)
            return AgentAct((), False, "high", cut)
        touches = list(_touches(tool, inputs, self._rules.of(workspace), roots))
        decisions = [touch.decision for touch in touches if touch.decision is not None]
        denied = next((one.reason for one in decisions if one.effect is Effect.DENY), "")
        irreversible = any(one.irreversible for one in decisions)
        known = not irreversible and not denied and all(touch.classes for touch in touches)
        classes = {name[:MAX_CLASS] for touch in touches for name in touch.classes} if known else set()
        asks = irreversible or not touches or any(one.effect is not Effect.ALLOW for one in decisions)
        lines = [line[:MAX_WIDTH] for touch in touches for line in (touch.line, *_parts(touch.decision))]
        if irreversible:
            lines.append("cannot be taken back")
        return AgentAct(
            tuple(sorted(classes or ({f"tool:{tool}"} if known else ()))),
            irreversible,
            "high" if asks else "medium",
            tuple(lines[:MAX_LINES]) or _plain(tool, inputs),
            denied,
        )


def _touches(tool: str, inputs: Mapping[str, Any], rules: RuleSet, roots: Sequence[Path]) -> list[_Touch]:
    found = [_command(inputs[name], rules, roots) for name in COMMANDS if inputs.get(name)]
    found += [_path(tool, str(inputs[name]), roots) for name in PATHS if inputs.get(name)]
    found += [_address(str(inputs[name])) for name in ADDRESSES if inputs.get(name)]
    return found


def _command(given: object, rules: RuleSet, roots: Sequence[Path]) -> _Touch:
    words = [str(word) for word in given] if isinstance(given, list | tuple) else None
    text = str(given) if words is None else shlex.join(words)
    decision = judge_command(text, rules=rules, roots=[str(root) for root in roots])
    return _Touch(f"runs: {text}", _command_classes(decision), decision)


def _command_classes(decision: Decision) -> tuple[str, ...]:
    """Rule and first words of every part; a line with a word known only at run time has no class."""
    if decision.rule not in {part.rule for part in decision.parts}:
        return ()
    heads = [part.argv[:2] for part in decision.parts]
    if any(word is None for head in heads for word in head):
        return ()
    named = zip(decision.parts, heads, strict=True)
    return tuple(f"command:{part.rule}:{' '.join(word or '' for word in head)}" for part, head in named)


def _path(tool: str, path: str, roots: Sequence[Path]) -> _Touch:
    decision = judge_path(path, write=True, roots=roots)
    name = f"tool:{tool}" if decision.allowed else f"path:{decision.rule}:{path}"
    return _Touch(f"touches {path}", (name,), decision)


def _address(url: str) -> _Touch:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return _Touch(f"reaches {url}", (f"host:{host}",) if host else ())


def _parts(decision: Decision | None) -> list[str]:
    if decision is None or decision.allowed:
        return []
    shown = [
        f"{part.effect.value}: {' '.join('…' if word is None else word for word in part.argv)} "
        f"[{part.rule}] {part.reason}"
        for part in decision.parts
    ]
    return shown or [f"{decision.effect.value}: {decision.reason} [{decision.rule}]"]


def _plain(tool: str, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    lines = [f"{name}: {value}"[:MAX_WIDTH] for name, value in inputs.items()]
    return (f"uses {tool}", *lines[: MAX_LINES - 1])
