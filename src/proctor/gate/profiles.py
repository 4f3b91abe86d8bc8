"""Profiles: the rules the gate applies. Six are built in, others stand under `[profiles.NAME]` in the settings.

Invariants: a profile is frozen and made anew from its table, so nobody can change another's; an unknown name is refused;
what cannot be taken back asks in every profile (and is denied where nobody asks); a profile written in `proctor.toml`,
which belongs to the repository, may only be stricter than the one it builds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from proctor.config import SHARED_FILE, LimitSettings, RawTable
from proctor.config.kinds import near
from proctor.gate.limits import Limits, tighter
from proctor.gate.policy import POSTURES, Effect, Kind, Posture
from proctor.protocol.errors import ConfigError, UsageError
from proctor.protocol.tools import MOCK, REAL, SideEffect
from proctor.sandbox.hosts import HostRuleError, check_hosts

__all__ = [
    "BUILT_IN",
    "Profile",
    "Runtime",
    "UnknownProfileError",
    "all_profiles",
    "find_profile",
    "limits_of_settings",
]


class UnknownProfileError(UsageError, ValueError):
    """There is no profile {name!r}; take one of {known}.{near}"""

    code = "unknown_profile"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What one running agent may use; 100 percent is one core. None: no limit of this profile."""

    seconds: int | None = 3600
    memory_mb: int | None = None
    cpu_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One set of rules."""

    name: str
    description: str
    guardrails: str
    posture: Posture
    asks: frozenset[SideEffect] = frozenset()
    """Side effects that need a person's answer."""
    never_asks: bool = False
    """Nobody is there: what would be asked is denied."""
    once_per_task: bool = False
    """An answer holds for the same class of acts for the rest of the task."""
    adapters: tuple[str, ...] | None = None
    """Outside systems that may be used; None: all. `mock` always may."""
    hosts: tuple[str, ...] | None = None
    """Hosts a command may reach, through our proxy; None: what has passed as a command about the network gets all of it."""
    hosts_free: bool = False
    """Whether these hosts need no question: only when the user has listed them, never the repository."""
    local: bool = True
    """Whether Proctor's own tools act for real; else everything is simulated."""
    limits: Limits = field(default_factory=Limits)
    """For each session, plan or direct request."""
    ceiling: Limits = field(default_factory=Limits)
    """For everything under this profile in one day (UTC)."""
    runtime: Runtime = field(default_factory=Runtime)

    def allows_adapter(self, adapter: str) -> bool:
        """Whether a tool may act through this adapter."""
        if adapter == MOCK:
            return True
        if adapter == REAL:
            return self.local
        return self.adapters is None or adapter in self.adapters

    def sentences(self) -> list[str]:
        """What it allows, in plain words."""
        return [
            self.description,
            *_asking(self),
            *_adapters(self),
            *_hosts(self),
            *_limits(self.limits, "each session or plan"),
        ]


_SEEDS_RUNTIME: Final = Runtime(seconds=3600, memory_mb=2048, cpu_percent=50)
_CHANGES: Final = frozenset({SideEffect.PROPOSE, SideEffect.EXECUTE})

BUILT_IN: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            Profile(
                name="standard",
                description="Edits in a worktree and commands in the sandbox are free; leaving the sandbox asks.",
                guardrails="sandbox",
                posture=POSTURES["standard"],
            ),
            Profile(
                name="careful",
                description="Every change asks, once for each class of acts and task.",
                guardrails="strict",
                posture=POSTURES["careful"],
                asks=_CHANGES,
                once_per_task=True,
            ),
            Profile(
                name="unattended",
                description="Like standard, but nobody is asked: what would ask is denied.",
                guardrails="sandbox",
                posture=POSTURES["unattended"],
                never_asks=True,
            ),
            Profile(
                name="enterprise",
                description="Every proposal and every execution asks.",
                guardrails="strict",
                posture=POSTURES["enterprise"],
                asks=_CHANGES,
                adapters=("salesforce", "dynamics", MOCK),
                limits=Limits(
                    calls=200,
                    domains=MappingProxyType({"territory": 50, "intelligence": 40, "engagement": 30}),
                ),
                runtime=_SEEDS_RUNTIME,
            ),
            Profile(
                name="smb",
                description="Proposals are free, every execution asks.",
                guardrails="moderate",
                posture=POSTURES["smb"],
                asks=frozenset({SideEffect.EXECUTE}),
                adapters=("hubspot", "pipedrive", MOCK),
                limits=Limits(
                    calls=100,
                    domains=MappingProxyType({"engagement": 30, "intelligence": 25, "qualification": 20}),
                ),
                runtime=_SEEDS_RUNTIME,
            ),
            Profile(
                name="technical",
                description="Only what cannot be taken back or leaves the sandbox asks; outside systems are simulated.",
                guardrails="relaxed",
                posture=POSTURES["technical"],
                adapters=(MOCK,),
                limits=Limits(calls=500),
                runtime=_SEEDS_RUNTIME,
            ),
        )
    }
)


def find_profile(name: str, custom: RawTable | None = None) -> Profile:
    """Give the profile of this name; never another in its place."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    tables = custom.values if custom is not None else {}
    if name not in tables:
        known = [*BUILT_IN, *sorted(tables)]
        raise UnknownProfileError(name=name, known=", ".join(known), near=near(name, known))
    return _custom(name, tables[name], (custom or RawTable()).where(name))


def all_profiles(custom: RawTable | None = None) -> list[Profile]:
    """All that can be chosen, the built-in ones first."""
    own = sorted(set(custom.values) - set(BUILT_IN)) if custom is not None else []
    return [*BUILT_IN.values(), *(find_profile(name, custom) for name in own)]


def limits_of_settings(limits: LimitSettings) -> Limits:
    """The limits of a settings file in whole numbers."""
    return Limits(
        calls=limits.calls,
        tokens=limits.tokens,
        micro_usd=None if limits.usd is None else round(limits.usd * 1_000_000),
        millis=None if limits.seconds is None else limits.seconds * 1000,
    )


# ── profiles of the user's own ────────────────────────────────────────────────────────────────────────────────────

_KEYS: Final = frozenset(
    {
        "base",
        "description",
        "asks",
        "never_asks",
        "once_per_task",
        "adapters",
        "hosts",
        "simulate",
        "free",
        "limits",
        "ceiling",
    }
)
_LIMIT_KEYS: Final = frozenset({"calls", "tokens", "usd", "seconds", "domains", "tools"})


def _custom(name: str, table: object, where: str) -> Profile:
    if not isinstance(table, Mapping):
        raise ConfigError(where=where, problem=f"[profiles.{name}] must be a table", allowed="")
    _refuse_unknown(table, _KEYS, f"[profiles.{name}]", where)
    base = BUILT_IN.get(str(table.get("base", "standard")))
    if base is None:
        allowed = f"Allowed: {', '.join(BUILT_IN)}."
        raise ConfigError(
            where=where, problem=f"[profiles.{name}] base is no built-in profile", allowed=allowed
        )
    wanted = _wanted(name, table, base, where)
    return _at_least_as_strict(base, wanted) if where.startswith(SHARED_FILE) else wanted


def _wanted(name: str, table: Mapping[str, Any], base: Profile, where: str) -> Profile:
    read = _Reader(name, table, where)
    never = read.flag("never_asks", base.never_asks)
    kinds = read.words("free", [kind.name.lower() for kind in Kind], base.posture.free and _kinds(base))
    posture = Posture(
        name,
        frozenset(Kind[kind.upper()] for kind in kinds),
        asks=not never,
        outside=Effect.DENY if never else base.posture.outside,
    )
    asks = read.words("asks", [effect.value for effect in SideEffect], [effect.value for effect in base.asks])
    adapters = read.words("adapters", None, base.adapters)
    return Profile(
        name=name,
        description=read.text("description", f"Your own, built on {base.name}."),
        guardrails=base.guardrails,
        posture=posture,
        asks=frozenset(SideEffect(effect) for effect in asks),
        never_asks=never,
        once_per_task=read.flag("once_per_task", base.once_per_task),
        adapters=None if adapters is None else tuple(dict.fromkeys((*adapters, MOCK))),
        hosts=read.hosts(base.hosts),
        hosts_free="hosts" in table,
        local=not read.flag("simulate", not base.local),
        limits=read.limits("limits", base.limits),
        ceiling=read.limits("ceiling", base.ceiling),
        runtime=base.runtime,
    )


def _kinds(base: Profile) -> list[str]:
    return sorted(kind.name.lower() for kind in base.posture.free)


def _at_least_as_strict(base: Profile, wanted: Profile) -> Profile:
    """A repository brings its settings along, so they may narrow what its user chose and not widen it."""
    never = base.never_asks or wanted.never_asks
    free = base.posture.free & wanted.posture.free
    outside = max(base.posture.outside, wanted.posture.outside, key=lambda effect: effect.rank)
    adapters = wanted.adapters
    if base.adapters is not None:
        adapters = tuple(name for name in base.adapters if wanted.adapters is None or name in wanted.adapters)
    return replace(
        wanted,
        posture=Posture(wanted.name, free, asks=not never, outside=outside),
        asks=base.asks | wanted.asks,
        never_asks=never,
        once_per_task=base.once_per_task and wanted.once_per_task,
        adapters=adapters,
        hosts_free=False,
        local=base.local and wanted.local,
        limits=tighter(base.limits, wanted.limits),
        ceiling=tighter(base.ceiling, wanted.ceiling),
    )


def _refuse_unknown(table: Mapping[Any, Any], known: Iterable[str], what: str, where: str) -> None:
    unknown = sorted(str(key) for key in table if key not in set(known))
    if unknown:
        allowed = f"Allowed: {', '.join(sorted(known))}.{near(unknown[0], known)}"
        raise ConfigError(where=where, problem=f"{what} has no setting {unknown[0]!r}", allowed=allowed)


class _Reader:
    """Reads one table; says where a wrong value stands."""

    def __init__(self, name: str, table: Mapping[str, Any], where: str) -> None:
        self._name, self._table, self._where = name, table, where

    def _wrong(self, key: str, must: str) -> ConfigError:
        return ConfigError(
            where=self._where, problem=f"[profiles.{self._name}] {key} must be {must}", allowed=""
        )

    def flag(self, key: str, default: bool) -> bool:
        value = self._table.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._table.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def words(self, key: str, known: list[str] | None, default: Any) -> Any:
        value = self._table.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
            raise self._wrong(key, "a list of texts")
        if known is not None and set(value) - set(known):
            raise self._wrong(key, f"a list of some of {', '.join(known)}")
        return value

    def hosts(self, default: tuple[str, ...] | None) -> tuple[str, ...] | None:
        found = self.words("hosts", None, default)
        try:
            check_hosts(found or ())
        except HostRuleError as error:
            raise self._wrong("hosts", f"a list of hosts: {error}") from None
        return None if found is None else tuple(dict.fromkeys(found))

    def limits(self, key: str, default: Limits) -> Limits:
        table = self._table.get(key)
        if table is None:
            return default
        if not isinstance(table, Mapping):
            raise self._wrong(key, "a table")
        _refuse_unknown(table, _LIMIT_KEYS, f"[profiles.{self._name}.{key}]", self._where)
        usd = table.get("usd")
        if usd is not None and (
            isinstance(usd, bool) or not isinstance(usd, int | float) or not 0 <= usd < 1e9
        ):
            raise self._wrong(f"{key}.usd", "a number, at least 0")
        seconds = self._whole(key, table, "seconds")
        return Limits(
            calls=self._whole(key, table, "calls"),
            tokens=self._whole(key, table, "tokens"),
            micro_usd=None if usd is None else round(usd * 1_000_000),
            millis=None if seconds is None else seconds * 1000,
            domains=self._counts(key, table, "domains"),
            tools=self._counts(key, table, "tools"),
        )

    def _whole(self, key: str, table: Mapping[str, Any], name: str) -> int | None:
        value = table.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53
        ):
            raise self._wrong(f"{key}.{name}", "a whole number, at least 0 (0: nothing is allowed)")
        return value

    def _counts(self, key: str, table: Mapping[str, Any], name: str) -> Mapping[str, int]:
        counts = table.get(name, {})
        if not isinstance(counts, Mapping):
            raise self._wrong(f"{key}.{name}", "a table of whole numbers")
        found = {str(one): self._whole(f"{key}.{name}", counts, one) for one in counts}
        return MappingProxyType({one: value for one, value in found.items() if value is not None})


# ── plain words ───────────────────────────────────────────────────────────────────────────────────────────────────


def _asking(profile: Profile) -> list[str]:
    if profile.never_asks:
        return ["Nobody is asked: what would need an answer, and what cannot be taken back, is denied."]
    free = [kind for kind in Kind if kind in profile.posture.free]
    words = {Kind.READ: "reading", Kind.EDIT: "editing", Kind.RUN: "running the project's own code"}
    outside = "asks" if profile.posture.outside is Effect.ASK else "is denied"
    found = [f"Commands that are free in the sandbox: {', '.join(words[kind] for kind in free) or 'none'}."]
    if profile.asks:
        found.append(f"Tools that {' or '.join(sorted(profile.asks))} ask first.")
    found.append(f"A command that touches a path outside the workspace {outside}; a file tool never may.")
    found.append("What cannot be taken back always asks.")
    return found


def _adapters(profile: Profile) -> list[str]:
    found = [] if profile.local else ["All tools are simulated; results say so."]
    if profile.adapters is not None:
        outside = [name for name in profile.adapters if name != MOCK]
        found.append(
            f"Outside systems: {', '.join(outside) or 'none'}; others are simulated, and results say so."
        )
    return found


def _hosts(profile: Profile) -> list[str]:
    if profile.hosts is None:
        return []
    shown = ", ".join(profile.hosts) or "none"
    asked = "" if profile.hosts_free else "; reaching them asks first, because the repository lists them"
    return [f"Hosts that commands may reach, through a proxy (sandbox level 3): {shown}{asked}."]


def _limits(limits: Limits, what: str) -> list[str]:
    parts = [
        (limits.calls, "calls"),
        (limits.tokens, "tokens"),
        (None if limits.micro_usd is None else f"${limits.micro_usd / 1_000_000:.2f}", ""),
        (None if limits.millis is None else limits.millis // 1000, "seconds"),
        *((count, f"calls of {name}") for name, count in {**limits.domains, **limits.tools}.items()),
    ]
    shown = [f"{amount} {word}".strip() for amount, word in parts if amount is not None]
    return [f"At most, for {what}: {', '.join(shown)}."] if shown else [f"No limit of its own for {what}."]
