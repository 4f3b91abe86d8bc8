"""Which network a command gets: none, some hosts, or all; by profile, by call and by who asks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config import RawTable
from proctor.gate.judge import Case, judge
from proctor.gate.policy import builtin_rules
from proctor.gate.profiles import BUILT_IN, Profile, find_profile
from proctor.gate.verdict import Allow, Ask, Deny, Verdict
from proctor.protocol.errors import ConfigError
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Reaches, Runs, Touch
from proctor.sandbox.hosts import HostRules
from proctor.sandbox.spec import Level, Network
from proctor.tools.catalog import standard_registry

LOCAL, SHARED = "proctor.local.toml:3", "proctor.toml:3"
HOSTS = ["example.org", "*.files.example"]


def profile_of(where: str = LOCAL, **table: object) -> Profile:
    """A profile as a settings file writes it."""
    return find_profile("mine", RawTable({"mine": {"hosts": HOSTS, **table}}, {(): where}))


def verdict(
    profile: Profile, *touches: Touch, actor: ActorKind = ActorKind.AGENT, level: Level = Level.BWRAP
) -> Verdict:
    """Judge one command."""
    tool = standard_registry().find("execute_command")
    return judge(Case(tool, touches, actor, profile, Path("/home/ada/project"), builtin_rules(), level))


def allowed(found: Verdict) -> Allow:
    """The verdict as an Allow."""
    assert isinstance(found, Allow), found
    return found


def test_a_fetching_command_within_the_users_hosts_is_not_asked_for() -> None:
    """Also where nobody could be asked; it gets exactly the list, and must have it."""
    for base in ("standard", "unattended"):
        mine = profile_of(base=base)
        for command in ("pip install requests", "curl https://example.org/simple", "git fetch origin"):
            confined = allowed(verdict(mine, Runs(command))).confined
            assert (confined.network, confined.hosts, confined.hosts_optional) == (
                Network.HOSTS,
                tuple(HOSTS),
                False,
            )


@pytest.mark.parametrize(
    "command", ["git push", "npm publish", "curl x | sh", "rm x", "pip install a; git push"]
)
def test_hosts_free_nothing_but_fetching(command: str) -> None:
    """Publishing, pushing and what cannot be taken back ask or are denied as ever."""
    assert not isinstance(verdict(profile_of(), Runs(command)), Allow)


def test_an_ordinary_command_may_use_the_hosts_and_runs_without() -> None:
    """Tests that fetch something work, and on a weaker machine they run without network."""
    confined = allowed(verdict(profile_of(), Runs("pytest -q"))).confined
    assert (confined.network, confined.hosts_optional) == (Network.HOSTS, True)
    assert allowed(verdict(BUILT_IN["standard"], Runs("pytest -q"))).confined.network is Network.OFF


def test_without_level_three_a_fetching_command_asks_as_before() -> None:
    """The list cannot be held there, so it frees from nothing."""
    assert isinstance(verdict(profile_of(), Runs("pip install requests"), level=Level.LANDLOCK), Ask)


def test_a_list_of_the_repository_narrows_and_frees_nothing() -> None:
    """proctor.toml comes with the code: its hosts still ask, an ordinary command gets none, an approved one only these."""
    shared = profile_of(SHARED)
    asked = verdict(shared, Runs("pip install requests"))
    assert isinstance(asked, Ask)
    assert (asked.confined.network, asked.confined.hosts) == (Network.HOSTS, tuple(HOSTS))
    assert allowed(verdict(shared, Runs("pytest -q"))).confined.network is Network.OFF


def test_an_empty_list_means_no_network_at_all() -> None:
    """Zero is none, also for a command that was approved."""
    asked = verdict(replace(profile_of(), hosts=()), Runs("pip install requests"))
    assert isinstance(asked, Ask)
    assert asked.confined.network is Network.OFF


def test_a_host_that_a_call_names_is_asked_for_by_name() -> None:
    """The question can be granted for that host; the answer opens this host and no other."""
    asked = verdict(BUILT_IN["standard"], Runs("pytest -q"), Reaches("api.example.org"))
    assert isinstance(asked, Ask)
    assert (asked.code, asked.classes) == ("host_needs_approval", ("host:api.example.org",))
    assert (asked.confined.network, asked.confined.hosts) == (Network.HOSTS, ("api.example.org",))
    denied = verdict(BUILT_IN["unattended"], Runs("pytest -q"), Reaches("api.example.org"))
    assert isinstance(denied, Deny)


def test_a_call_gets_less_than_the_profile_and_never_more() -> None:
    """Hosts of the list pass, others are denied, nonsense too."""
    mine = profile_of()
    confined = allowed(verdict(mine, Runs("pytest -q"), Reaches("one.files.example"))).confined
    assert confined.hosts == ("one.files.example",)
    for host in ("evil.test", "example.org:8443", "*.org", "http://example.org", "127.0.0.1"):
        found = verdict(mine, Runs("pytest -q"), Reaches(host))
        assert isinstance(found, Deny)
        assert found.code in {"host_not_allowed", "host_rule"}


def test_a_persons_own_request_reaches_the_hosts_it_names() -> None:
    """A direct request is not asked about, and stays within its list."""
    confined = allowed(
        verdict(
            BUILT_IN["standard"], Runs("curl https://a.example"), Reaches("a.example"), actor=ActorKind.HUMAN
        )
    ).confined
    assert (confined.network, confined.hosts) == (Network.HOSTS, ("a.example",))


def test_proctors_own_runs_have_no_network_whatever_is_listed() -> None:
    """Proof commands may be written by agents."""
    for touches in ((Runs("pytest -q"),), (Runs("pytest -q"), Reaches("example.org"))):
        found = verdict(profile_of(), *touches, actor=ActorKind.PROCTOR)
        assert isinstance(found, Deny) or found.confined.network is Network.OFF


@pytest.mark.parametrize("hosts", [["*"], ["http://a.b"], [""], "example.org", ["*.com"]])
def test_a_wrong_list_is_refused_with_its_place(hosts: object) -> None:
    """A mistake never means more than was meant."""
    with pytest.raises(ConfigError, match="hosts"):
        profile_of(hosts=hosts)


RULE = st.sampled_from(["a.b", "*.a.b", "x.a.b", "*.x.a.b", "a.b:8080", "*.a.b:8080", "1.2.3.4", "c.d"])


@given(
    st.lists(RULE, min_size=1),
    RULE,
    st.sampled_from(["a.b", "x.a.b", "y.x.a.b", "c.d", "1.2.3.4"]),
    st.sampled_from([80, 443, 8080]),
)
def test_what_a_covered_rule_allows_the_list_allows(
    rules: list[str], rule: str, host: str, port: int
) -> None:
    """`covers` never lets a call widen the list."""
    from proctor.sandbox.hosts import Target

    listed, target = HostRules(rules), Target(host, port)
    if listed.covers(rule) and not HostRules([rule]).refusal(target):
        assert not listed.refusal(target)


def test_the_profile_says_its_hosts_in_plain_words() -> None:
    """`proctor profiles show` names them, and whether they ask."""
    assert any("example.org" in line and "asks first" not in line for line in profile_of().sentences())
    assert any("asks first" in line for line in profile_of(SHARED).sentences())
