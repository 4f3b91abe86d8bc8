"""Profiles: the seeds' numbers, custom ones with their cures, and nothing that loosens by accident."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config import RawTable
from proctor.gate.limits import Limits
from proctor.gate.policy import Effect, Kind
from proctor.gate.profiles import BUILT_IN, UnknownProfileError, all_profiles, find_profile
from proctor.protocol.errors import ConfigError
from proctor.protocol.tools import SideEffect

SHARED, LOCAL = "proctor.toml:1", "proctor.local.toml:1"


def _table(where: str = LOCAL, **profile: object) -> RawTable:
    return RawTable({"mine": profile}, {(): where})


@pytest.mark.parametrize(
    ("name", "calls", "domains", "asks", "adapters", "guardrails"),
    [
        (
            "enterprise",
            200,
            {"territory": 50, "intelligence": 40, "engagement": 30},
            {"execute", "propose"},
            ("salesforce", "dynamics", "mock"),
            "strict",
        ),
        (
            "smb",
            100,
            {"engagement": 30, "intelligence": 25, "qualification": 20},
            {"execute"},
            ("hubspot", "pipedrive", "mock"),
            "moderate",
        ),
        ("technical", 500, {}, set(), ("mock",), "relaxed"),
    ],
)
def test_profiles_of_the_seeds_have_their_numbers(
    name: str, calls: int, domains: dict[str, int], asks: set[str], adapters: tuple[str, ...], guardrails: str
) -> None:
    """SPEC.md 1.B.5, exactly; and the worker limits of seed 003."""
    profile = find_profile(name)
    assert (profile.limits.calls, dict(profile.limits.domains)) == (calls, domains)
    assert profile.asks == asks
    assert profile.adapters == adapters
    assert profile.guardrails == guardrails
    limits = (profile.runtime.cpu_percent, profile.runtime.memory_mb, profile.runtime.seconds)
    assert limits == (50, 2048, 3600)


def test_mock_is_always_allowed_and_others_only_by_name() -> None:
    """Offline first; an outside system that is not named is not used."""
    assert all(profile.allows_adapter("mock") for profile in all_profiles())
    assert find_profile("smb").allows_adapter("hubspot")
    assert not find_profile("smb").allows_adapter("salesforce")
    assert not find_profile("technical").allows_adapter("hubspot")
    assert find_profile("standard").allows_adapter("anything")


def test_custom_profile_builds_on_a_built_in_one() -> None:
    """What it does not say is the base's; the user's own file may also loosen."""
    mine = find_profile(
        "mine",
        _table(base="enterprise", asks=["execute"], limits={"calls": 7, "usd": 0.5, "tools": {"look": 0}}),
    )
    assert mine.asks == {SideEffect.EXECUTE}
    assert mine.limits == Limits(calls=7, micro_usd=500_000, tools={"look": 0})
    assert mine.adapters == ("salesforce", "dynamics", "mock")
    assert mine.posture.outside is Effect.DENY


def test_profile_of_the_repository_may_only_tighten() -> None:
    """proctor.toml comes with the code; whoever clones it is not less protected for that."""
    loose = {"base": "careful", "asks": [], "free": ["read", "edit", "run"], "limits": {"calls": 10**6}}
    shared, local = (find_profile("mine", _table(where, **loose)) for where in (SHARED, LOCAL))
    assert shared.asks == BUILT_IN["careful"].asks
    assert shared.posture.free == {Kind.READ}
    assert local.asks == frozenset()
    assert local.posture.free == set(Kind)
    wide = find_profile(
        "mine", _table(SHARED, base="smb", adapters=["salesforce", "hubspot"], limits={"calls": 999})
    )
    assert wide.adapters == ("hubspot", "mock")
    assert wide.limits.calls == 100
    tight = find_profile("mine", _table(SHARED, asks=["execute"], never_asks=True, limits={"calls": 3}))
    assert tight.never_asks
    assert tight.asks == {SideEffect.EXECUTE}
    assert tight.limits.calls == 3


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"base": "nothing"}, "base is no built-in profile"),
        ({"ask": []}, "has no setting 'ask'"),
        ({"asks": "execute"}, "asks must be a list"),
        ({"asks": ["explode"]}, "asks must be a list of some of"),
        ({"never_asks": "yes"}, "never_asks must be true or false"),
        ({"limits": {"calls": -1}}, "limits.calls must be a whole number"),
        ({"limits": {"calls": True}}, "limits.calls must be a whole number"),
        ({"limits": {"usd": float("inf")}}, "limits.usd must be a number"),
        ({"limits": {"dollars": 3}}, "has no setting 'dollars'"),
        ({"limits": {"domains": 3}}, "limits.domains must be a table"),
        ({"free": ["read", "delete"]}, "free must be a list of some of"),
    ],
)
def test_wrong_profile_is_refused_with_its_place(table: dict[str, object], problem: str) -> None:
    """A mistake in a profile never means a looser one."""
    with pytest.raises(ConfigError) as caught:
        find_profile("mine", _table(LOCAL, **table))
    assert problem in str(caught.value)
    assert str(caught.value).startswith(LOCAL)


def test_unknown_profile_is_a_value_error_with_the_known_ones() -> None:
    """As the seeds' callers expect it."""
    with pytest.raises(ValueError, match=r"no profile 'default'; take one of standard, careful"):
        find_profile("default")
    with pytest.raises(UnknownProfileError, match="mine"):
        find_profile("other", _table())


def test_nobody_replaces_a_built_in_profile() -> None:
    """A table with a built-in name changes nothing."""
    loose = RawTable({"careful": {"asks": []}}, {(): LOCAL})
    assert find_profile("careful", loose) is BUILT_IN["careful"]
    assert [profile.name for profile in all_profiles(loose)] == list(BUILT_IN)


def test_every_profile_says_what_it_allows() -> None:
    """Plain sentences, each with an end."""
    for profile in all_profiles(_table()):
        sentences = profile.sentences()
        assert len(sentences) >= 2
        assert all(sentence.endswith(".") for sentence in sentences)


_values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10), st.text(max_size=5), st.lists(st.text(max_size=5))
)
_keys = st.sampled_from(
    ["base", "asks", "never_asks", "adapters", "simulate", "free", "limits", "ceiling", "x"]
)
_tables = st.dictionaries(
    _keys, st.one_of(_values, st.dictionaries(st.sampled_from(["calls", "usd", "domains"]), _values))
)


@given(table=_tables)
def test_repository_can_never_loosen_whatever_it_writes(table: dict[str, object]) -> None:
    """Any table in proctor.toml is refused or gives a profile at least as strict as its base."""
    try:
        mine = find_profile("mine", RawTable({"mine": table}, {(): SHARED}))
    except ConfigError:
        return
    base = BUILT_IN[str(table.get("base", "standard"))]
    assert mine.asks >= base.asks
    assert mine.posture.free <= base.posture.free
    assert mine.posture.outside.rank >= base.posture.outside.rank
    assert mine.never_asks >= base.never_asks
    assert mine.limits.calls is None or base.limits.calls is None or mine.limits.calls <= base.limits.calls
    assert base.limits.calls is None or mine.limits.calls is not None
