"""Judges one call: the policy on everything it touches, then the profile, then who asks (law 8). Runs nothing.

Invariants: the strictest finding decides; nothing here turns a Deny into anything else; what cannot be taken back never
passes an agent without a question; where nobody can be asked, asking is denying.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from proctor.gate.context import Confined
from proctor.gate.policy import Decision, Effect, Kind, RuleSet, judge_command, judge_path
from proctor.gate.profiles import Profile
from proctor.gate.reach import freed_by_hosts, host_effect, way_out
from proctor.gate.verdict import Allow, Ask, Deny, Verdict
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Reaches, Reads, Runs, Tool, Touch, Writes
from proctor.sandbox.spec import Level

__all__ = ["Case", "judge"]

_CLASS_WORDS: Final = 2
_MAX_CLASS: Final = 255
_FILES: Final = "filesystem"
_OUTSIDE: Final = "path.outside"


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known of a call before it runs."""

    tool: Tool
    touches: tuple[Touch, ...]
    actor: ActorKind
    profile: Profile
    workspace: Path | None
    rules: RuleSet
    level: Level
    protected: tuple[Path, ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """One finding about the call."""

    effect: Effect
    code: str
    rule: str
    reason: str
    irreversible: bool = False
    classes: tuple[str, ...] = ()
    decision: Decision | None = None


def judge(case: Case) -> Verdict:
    """Give the answer for one call."""
    if case.touches and case.workspace is None:
        return Deny(
            "no_workspace", "the call touches files or runs a command, and no workspace is named", "gate"
        )
    found = [*_touched(case), *_profiled(case), *_irreversible(case), *_again(case)]
    worst = max(found, key=lambda one: one.effect.rank, default=None)
    if worst is not None and worst.effect is Effect.DENY:
        return Deny(worst.code, worst.reason, worst.rule)
    asking = [one for one in found if one.effect is Effect.ASK and not _freed(case, one)]
    judges = {ActorKind.HUMAN: _for_human, ActorKind.AGENT: _for_agent, ActorKind.PROCTOR: _for_proctor}
    return judges[case.actor](case, found, asking)


# ── what the call touches ─────────────────────────────────────────────────────────────────────────────────────────


def _touched(case: Case) -> list[_Found]:
    return [one for touch in case.touches for one in _touch(case, touch)]


def _touch(case: Case, touch: Touch) -> list[_Found]:
    match touch:
        case Reads(path):
            return [_path(case, path, write=False)]
        case Writes(path):
            return [_path(case, path, write=True)]
        case Runs(command, cwd):
            return [_path(case, cwd, write=False), _command(case, command)]
        case Reaches(host):
            return [_host(case, host)]


def _path(case: Case, path: str, *, write: bool) -> _Found:
    # Asking and denying by profile is decided below, for all findings alike.
    posture = replace(case.profile.posture, asks=True)
    decision = judge_path(
        path, write=write, roots=(case.workspace or Path("/"),), profile=posture, protected=case.protected
    )
    return _of(decision, (f"path:{decision.rule}:{path}",))


def _command(case: Case, command: str) -> _Found:
    posture = replace(case.profile.posture, asks=True)
    decision = judge_command(command, profile=posture, rules=case.rules, roots=(str(case.workspace),))
    return _of(decision, _command_classes(decision))


def _host(case: Case, host: str) -> _Found:
    effect, code, reason = host_effect(case.profile, host)
    return _Found(effect, code, "network.host", reason, classes=(_shortened(f"host:{host}"),))


def _freed(case: Case, one: _Found) -> bool:
    """Whether a question is answered by the user's own list of hosts; Proctor's own runs have no network at all."""
    return case.actor is not ActorKind.PROCTOR and freed_by_hosts(case.profile, case.level, one.decision)


def _command_classes(decision: Decision) -> tuple[str, ...]:
    """What a grant for this command would cover: rule and first words of each part that asks.

    A line whose form asks, or that names a program only at run time, has no class: only itself can be answered.
    """
    asking = [part for part in decision.parts if part.effect is Effect.ASK]
    if decision.rule not in {part.rule for part in asking}:
        return ()
    classes = set()
    for part in asking:
        words = part.argv[:_CLASS_WORDS]
        if any(word is None for word in words):
            return ()
        classes.add(f"command:{part.rule}:{' '.join(word or '' for word in words)}")
    return tuple(sorted(classes))


def _of(decision: Decision, classes: tuple[str, ...]) -> _Found:
    short = tuple(_shortened(one) for one in classes)
    effect, irreversible = decision.effect, decision.irreversible
    return _Found(effect, decision.code, decision.rule, decision.reason, irreversible, short, decision)


def _shortened(text: str) -> str:
    """A class fits its column; a longer one keeps its identity by its hash."""
    if len(text) <= _MAX_CLASS:
        return text
    return text[: _MAX_CLASS - 65] + ":" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


# ── what the profile and the tool itself say ──────────────────────────────────────────────────────────────────────


def _profiled(case: Case) -> list[_Found]:
    """Side effects the profile asks for; commands are judged finer than that, by what they do."""
    effect = case.tool.side_effect
    if effect not in case.profile.asks or any(isinstance(touch, Runs) for touch in case.touches):
        return []
    reason = f"the profile {case.profile.name} asks before a tool may {effect.value}"
    rule, classes = f"profile.{effect.value}", (f"tool:{case.tool.name}",)
    return [_Found(Effect.ASK, "side_effect_needs_approval", rule, reason, classes=classes)]


def _irreversible(case: Case) -> list[_Found]:
    if case.tool.reversible:
        return []
    reason = f"what {case.tool.name} does cannot be taken back"
    return [_Found(Effect.ASK, "irreversible_needs_approval", "tool.irreversible", reason, irreversible=True)]


def _again(case: Case) -> list[_Found]:
    """A call that was begun and whose end nobody knows may have happened."""
    if not case.interrupted or case.tool.read_only:
        return []
    reason = "the call was begun before and interrupted; it may have happened already"
    return [_Found(Effect.ASK, "interrupted_needs_approval", "gate.interrupted", reason, irreversible=True)]


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _for_human(case: Case, found: Sequence[_Found], asking: Sequence[_Found]) -> Verdict:
    """A person's direct request: what would ask runs, in a real sandbox; only an interrupted call is not repeated."""
    if any(one.code == "interrupted_needs_approval" for one in asking):
        cure = "Look whether it happened; then call again with a new idempotency key."
        return Deny("call_interrupted", "the call was begun before and interrupted", "gate.interrupted", cure)
    commands = any(isinstance(touch, Runs) for touch in case.touches)
    needed = Level.LANDLOCK if asking and commands else Level.LIMITS
    if case.level < needed:
        cure = "Run it in your own terminal, or give this machine a sandbox: `proctor doctor`."
        return Deny(
            "sandbox_level", "this command needs a sandbox and the machine has none", "sandbox.level", cure
        )
    return Allow(Confined(needed, **_network(case, found)), _reading(case, found), _low(case, commands))


def _for_agent(case: Case, found: Sequence[_Found], asking: Sequence[_Found]) -> Verdict:
    commands = any(isinstance(touch, Runs) for touch in case.touches)
    level = min(case.level, Level.LANDLOCK)
    if case.tool.domain == _FILES and any(one.rule == _OUTSIDE for one in asking):
        # The tool itself never leaves the workspace, so a person's yes would be for nothing.
        cure = "Give a path inside the workspace."
        return Deny("path_escape", "the path lies outside the workspace", _OUTSIDE, cure)
    every = list(asking)
    if commands and level < Level.LANDLOCK:
        reason = "the machine has no sandbox, so every command of an agent asks"
        every.append(_Found(Effect.ASK, "sandbox_level", "sandbox.level", reason, irreversible=True))
    if not every:
        freed = [one for one in found if one.effect is Effect.ASK]
        return Allow(Confined(Level.LANDLOCK, **_network(case, freed)), _reading(case, found))
    worst = max(every, key=lambda one: (one.irreversible, one.effect.rank))
    if case.profile.never_asks:
        return Deny(
            "unattended_denied", f"{worst.reason}; nobody is asked under {case.profile.name}", worst.rule
        )
    irreversible = any(one.irreversible for one in every)
    classless = irreversible or not all(one.classes for one in every)
    classes = () if classless else tuple(sorted({name for one in every for name in one.classes}))
    decisions = tuple(one.decision for one in every if one.decision is not None)
    confined = Confined(level, **_network(case, asking))
    return Ask(worst.code, worst.reason, worst.rule, irreversible, classes, confined, decisions)


def _for_proctor(case: Case, found: Sequence[_Found], asking: Sequence[_Found]) -> Verdict:
    """Proctor's own runs, of commands that agents may have written: confined and without network, or not at all."""
    blocked = [one for one in asking if one.irreversible or not one.code.startswith("command")]
    if blocked:
        return Deny(
            "inconclusive", f"Proctor does not do this by itself: {blocked[0].reason}", blocked[0].rule
        )
    if any(isinstance(touch, Runs) for touch in case.touches) and case.level < Level.LANDLOCK:
        cure = "Give this machine a sandbox: `proctor doctor`."
        return Deny(
            "inconclusive", "it was not run, because the machine has no sandbox", "sandbox.level", cure
        )
    return Allow(Confined(Level.LANDLOCK), _reading(case, found))


def _network(case: Case, found: Sequence[_Found]) -> dict[str, Any]:
    """On only for commands that are about the network and have passed, or within a list of hosts."""
    if not any(isinstance(touch, Runs) for touch in case.touches):
        return {}
    named = [touch.host for touch in case.touches if isinstance(touch, Reaches)]
    return way_out(case.profile, named, [one.decision for one in found])


def _reading(case: Case, found: Sequence[_Found]) -> bool:
    """Whether every command is one the policy knows to read only."""
    parts = [part for one in found if one.decision is not None for part in one.decision.parts]
    # A redirect makes any command write; looking for its sign alone errs on the side of saving.
    writes = any(
        isinstance(touch, Writes) or (isinstance(touch, Runs) and ">" in touch.command)
        for touch in case.touches
    )
    if writes or not parts:
        return False
    kinds = {rule.id: rule.kind for rule in case.rules.rules}
    return all(kinds.get(part.rule) is Kind.READ for part in parts)


def _low(case: Case, commands: bool) -> tuple[str, ...]:
    if not commands or case.level >= Level.LANDLOCK:
        return ()
    return ("This machine has no sandbox: the command was only limited in time and output.",)
