"""Which way out of its sandbox a command gets: none, a list of hosts, or the whole network. Pure.

Invariants: a host nobody listed is asked for, or denied where the profile has a list; a list from the repository narrows
what is allowed and never frees from a question; what is said here only ever holds at sandbox level 3 (or is refused).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proctor.gate.policy import Decision, Effect
from proctor.gate.profiles import Profile
from proctor.sandbox.hosts import HostRuleError, HostRules
from proctor.sandbox.spec import Level, Network

__all__ = ["freed_by_hosts", "host_effect", "way_out"]

# Rules whose commands need the network to be of any use; who may run them gets it.
_NETWORK: Final = ("network.", "git.network", "git.push", "install.", "publish.", "github", "infrastructure")
# Those that only fetch: with a list of hosts they stay within it.
_FETCHING: Final = ("network.", "git.network", "install.")


def host_effect(profile: Profile, host: str) -> tuple[Effect, str, str]:
    """What a call's wish for one host means: the effect, its code and the reason."""
    try:
        HostRules([host])
    except HostRuleError as error:
        return Effect.DENY, "host_rule", str(error)
    if profile.hosts is None:
        return Effect.ASK, "host_needs_approval", f"the command wants to reach {host}"
    if not HostRules(profile.hosts).covers(host):
        reason = f"{host} is not among the hosts of the profile {profile.name}"
        return Effect.DENY, "host_not_allowed", reason
    if profile.hosts_free:
        return Effect.ALLOW, "host_allowed", f"{host} is among the hosts of the profile {profile.name}"
    return Effect.ASK, "host_needs_approval", f"the command wants to reach {host}"


def freed_by_hosts(profile: Profile, level: Level, decision: Decision | None) -> bool:
    """Whether a command that would ask stays within the user's own list of hosts, so that there is nothing to ask."""
    if decision is None or not profile.hosts or not profile.hosts_free or level < Level.BWRAP:
        return False
    asking = [part.rule for part in decision.parts if part.effect is Effect.ASK]
    fetching = bool(asking) and all(rule.startswith(_FETCHING) for rule in asking)
    return fetching and decision.rule in asking and not decision.irreversible


def way_out(profile: Profile, named: Sequence[str], decisions: Sequence[Decision | None]) -> dict[str, Any]:
    """The network of a call whose wishes have passed: for `Confined`."""
    if named:
        return {"network": Network.HOSTS, "hosts": tuple(dict.fromkeys(named))}
    rules = [part.rule for decision in decisions if decision is not None for part in decision.parts]
    about = any(rule.startswith(_NETWORK) for rule in rules)
    if about and profile.hosts is None:
        return {"network": Network.FULL}
    if profile.hosts and (about or profile.hosts_free):
        return {"network": Network.HOSTS, "hosts": profile.hosts, "hosts_optional": not about}
    return {}
