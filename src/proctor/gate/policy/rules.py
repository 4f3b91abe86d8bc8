"""Rules as data: token prefixes with alternatives, an effect, a reason and examples that are checked when loaded.

Invariants: the strictest matching rule wins; no matching rule asks; a project's `allow` loosens nothing; a user's `allow`
loosens an ask that can be taken back, never a deny.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from proctor.gate.policy.decision import Effect, Kind
from proctor.protocol.errors import ConfigError

__all__ = [
    "Args",
    "Origin",
    "Rule",
    "RuleSet",
    "builtin_rules",
    "has_option",
    "load_rules",
    "rules_from_settings",
]

Argv = Sequence[str | None]
_FIELDS = frozenset({"prefix", "reason", "match", "not_match"})
_ALLOWED_FORM = (
    'Write "git push", or { prefix = ["git", ["push", "fetch"]], reason = "…", match = [], not_match = [] }.'
)


_REASONS = {
    Kind.READ: "changes nothing: only reads and prints",
    Kind.EDIT: "edits inside the workspace, which can be taken back",
    Kind.RUN: "runs the project's own code and tools inside the sandbox",
}


class Origin(StrEnum):
    """Who wrote a rule; what it may do follows from that."""

    BUILTIN = "builtin"
    USER = "user"
    PROJECT = "project"


class Args(StrEnum):
    """How the arguments of an allowed command are looked at."""

    TEXT = "text"  #: any text does no harm
    PATHS = "paths"  #: file names; run-time words only when they are tame
    PATTERN = "pattern"  #: a pattern first, then file names
    LITERAL = "literal"  #: options matter, so every word must be known


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the policy."""

    id: str
    prefix: tuple[tuple[str, ...], ...]
    effect: Effect
    reason: str
    kind: Kind = Kind.RUN
    args: Args = Args.LITERAL
    #: Each group must be present: any one of its options.
    having: tuple[tuple[str, ...], ...] = ()
    #: The prefix is the whole command: nothing may follow it.
    alone: bool = False
    irreversible: bool = False
    origin: Origin = Origin.BUILTIN
    match: tuple[str, ...] = ()
    not_match: tuple[str, ...] = ()

    def matches(self, argv: Argv) -> bool:
        """Whether the command begins with the prefix and has the options; what tightens also looks past options."""
        if self.alone and len(argv) != len(self.prefix):
            return False
        if not self._prefixed(argv):
            if self.effect is Effect.ALLOW or len(self.prefix) == 1:
                return False
            words = [argv[0], *(word for word in argv[1:] if word is None or not word.startswith("-"))]
            if not self._prefixed(words):
                return False
        return all(has_option(argv, group) for group in self.having)

    @property
    def weight(self) -> tuple[int, int, int, bool]:
        """The strictest rule decides; of equally strict ones, the one that says most about the command."""
        return self.effect.rank, len(self.prefix), len(self.having), self.alone

    def _prefixed(self, argv: Argv) -> bool:
        if len(argv) < len(self.prefix):
            return False
        return all(word in tokens for word, tokens in zip(argv, self.prefix, strict=False))


def has_option(argv: Argv, options: Iterable[str]) -> bool:
    """Whether one of the options is there: `-r` also in `-rf`, `--force` also as `--for`, `=x` for a plain word."""
    wanted = tuple(options)
    for word in argv[1:]:
        if not word:
            continue
        if word == "--":
            return any(option == "=--" for option in wanted)
        if any(_is_option(word, option) for option in wanted):
            return True
    return False


def _is_option(word: str, option: str) -> bool:
    if option.startswith("="):
        return word == option[1:]
    if not word.startswith("-"):
        return False
    if option.startswith("--"):
        name = word.split("=", 1)[0]
        return len(name) > 2 and option.startswith(name)
    if len(option) > 2:
        return word.split("=", 1)[0] == option
    return not word.startswith("--") and option[1] in word


class RuleSet:
    """All rules in force, found by the first word."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._by_name: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for name in rule.prefix[0]:
                self._by_name.setdefault(name, []).append(rule)

    def matching(self, argv: Argv) -> list[Rule]:
        """Give every rule that matches."""
        name = argv[0] if argv else None
        return [rule for rule in self._by_name.get(name or "", ()) if rule.matches(argv)]

    def with_rules(self, more: Iterable[Rule]) -> RuleSet:
        """Add rules, such as grants or a user's settings."""
        return RuleSet((*self.rules, *more))


def rules_from_settings(policy: Mapping[str, object], origin: Origin, *, where: str) -> tuple[Rule, ...]:
    """Read the `[policy]` table of a settings file; a wrong entry or example is an error with its cure."""
    rules: list[Rule] = []
    for key, entries in policy.items():
        if key not in {effect.value for effect in Effect}:
            raise ConfigError(
                where=where, problem=f"[policy] has no setting {key!r}", allowed="Allowed: allow, ask, deny."
            )
        if not isinstance(entries, list):
            raise ConfigError(where=where, problem=f"[policy] {key} must be a list", allowed=_ALLOWED_FORM)
        rules.extend(
            _rule_from(entry, Effect(key), origin, f"{origin.value}.{key}.{number}", where)
            for number, entry in enumerate(entries, start=1)
        )
    check_examples(rules, where=where)
    return tuple(rules)


def _rule_from(entry: object, effect: Effect, origin: Origin, name: str, where: str) -> Rule:
    table: Mapping[str, object] = (
        {"prefix": entry} if isinstance(entry, str | list) else entry if isinstance(entry, Mapping) else {}
    )
    unknown = sorted(set(table) - _FIELDS)
    prefix = _prefix(table.get("prefix"))
    if not prefix or unknown:
        problem = f"[policy] {effect.value}: cannot read {entry!r}" + (
            f" (unknown: {', '.join(unknown)})" if unknown else ""
        )
        raise ConfigError(where=where, problem=problem, allowed=_ALLOWED_FORM)
    verb = {"allow": "allows", "ask": "asks for", "deny": "denies"}[effect.value]
    return Rule(
        id=name,
        prefix=prefix,
        effect=effect,
        reason=str(table.get("reason") or f"{where} {verb} {' '.join('|'.join(group) for group in prefix)}"),
        args=Args.TEXT,
        origin=origin,
        match=_texts(table.get("match")),
        not_match=_texts(table.get("not_match")),
    )


def _prefix(value: object) -> tuple[tuple[str, ...], ...]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError:
            return ()
    if not isinstance(value, list):
        return ()
    groups = [(token,) if isinstance(token, str) else _texts(token) for token in value]
    return tuple(groups) if all(groups) and all(all(group) for group in groups) else ()


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def check_examples(rules: Iterable[Rule], *, where: str) -> None:
    """Refuse a rule that does not do what its own examples say."""
    from proctor.gate.policy.resolve import views_of_line

    for rule in rules:
        for example, wanted in [(text, True) for text in rule.match] + [
            (text, False) for text in rule.not_match
        ]:
            if any(rule.matches(view) for view in views_of_line(example)) is not wanted:
                verb = "does not match" if wanted else "matches"
                raise ConfigError(
                    where=where,
                    problem=f"policy rule {rule.id} {verb} its example {example!r}",
                    allowed="Correct the prefix or the example.",
                )


@cache
def builtin_rules() -> RuleSet:
    """Give the rules that come with Proctor (`builtin.toml`), their examples checked once."""
    text = files("proctor.gate.policy").joinpath("builtin.toml").read_text(encoding="utf-8")
    rules = [
        _builtin(Effect(effect), entry)
        for effect, entries in tomllib.loads(text).items()
        for entry in entries
    ]
    check_examples(rules, where="built-in policy")
    return RuleSet(rules)


def _builtin(effect: Effect, entry: Mapping[str, Any]) -> Rule:
    kind = Kind[str(entry.get("kind", "run")).upper()]
    return Rule(
        id=entry["id"],
        prefix=_prefix(entry["prefix"]),
        effect=effect,
        reason=entry.get("reason", _REASONS[kind]),
        kind=kind,
        args=Args(entry.get("args", "literal")),
        having=tuple(tuple(group) for group in entry.get("having", ())),
        alone=bool(entry.get("alone")),
        irreversible=effect is Effect.DENY or bool(entry.get("irreversible")),
        match=_texts(entry.get("match")),
        not_match=_texts(entry.get("not_match")),
    )


def load_rules(
    *, user: Mapping[str, object] | None = None, project: Mapping[str, object] | None = None
) -> RuleSet:
    """Put the built-in rules, the user's own and the project's together."""
    return builtin_rules().with_rules(
        (
            *rules_from_settings(user or {}, Origin.USER, where="your settings"),
            *rules_from_settings(project or {}, Origin.PROJECT, where="proctor.toml"),
        )
    )
