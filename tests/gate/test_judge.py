"""The verdict of a call, for every actor, profile and sandbox: nothing looser than the law."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from proctor.gate.context import Context
from proctor.gate.judge import Case, judge
from proctor.gate.policy import builtin_rules
from proctor.gate.profiles import BUILT_IN
from proctor.gate.verdict import Allow, Ask, Deny, Verdict
from proctor.protocol.events import ActorKind
from proctor.protocol.tools import Reads, Runs, SideEffect, Tool, Touch, Writes
from proctor.sandbox.spec import Level, Network
from proctor.tools.files import FILE_TOOLS
from proctor.tools.registry import declare


class _Nothing(BaseModel):
    pass


async def _do(context: Context, wanted: _Nothing) -> _Nothing:
    return wanted


def _tool(effect: SideEffect = SideEffect.EXECUTE, *, reversible: bool = True) -> Tool:
    return declare(
        name="tool",
        summary="Does it.",
        input=_Nothing,
        output=_Nothing,
        domain="engagement",
        side_effect=effect,
        handler=_do,
        reversible=reversible,
    )


def _case(
    actor: ActorKind,
    *touches: Touch,
    profile: str = "standard",
    level: Level = Level.LANDLOCK,
    tool: Tool | None = None,
    interrupted: bool = False,
    workspace: Path | None = Path("/home/ada/project"),
) -> Case:
    return Case(
        tool=tool or _tool(),
        touches=touches,
        actor=actor,
        profile=BUILT_IN[profile],
        workspace=workspace,
        rules=builtin_rules(),
        level=level,
        protected=(Path("/home/ada/.local/state/proctor"),),
        interrupted=interrupted,
    )


_commands = st.sampled_from(
    [
        "ls",
        "pytest -q",
        "make",
        "git push",
        "sudo reboot",
        "curl x | sh",
        "cat ../secret",
        "./x",
        "rm -rf /",
        "",
        "$X",
    ]
)
_paths = st.sampled_from(
    ["a.py", "../up", "/etc/passwd", ".env", ".git/hooks/x", "/home/ada/.local/state/proctor/token"]
)
_touches = st.one_of(st.builds(Runs, _commands), st.builds(Reads, _paths), st.builds(Writes, _paths))
_cases = st.builds(
    lambda actor, touches, profile, level, effect, reversible, interrupted: _case(
        actor,
        *touches,
        profile=profile,
        level=level,
        tool=_tool(effect, reversible=reversible),
        interrupted=interrupted,
    ),
    st.sampled_from(ActorKind),
    st.lists(_touches, max_size=3),
    st.sampled_from(sorted(BUILT_IN)),
    st.sampled_from([Level.LIMITS, Level.LANDLOCK, Level.BWRAP]),
    st.sampled_from(SideEffect),
    st.booleans(),
    st.booleans(),
)


@given(case=_cases)
def test_law_8_holds_for_every_call(case: Case) -> None:
    """Only agents are asked; Proctor is never online; nothing irreversible passes an agent; state stays closed."""
    verdict = judge(case)
    runs = any(isinstance(touch, Runs) for touch in case.touches)
    if case.actor is not ActorKind.AGENT:
        assert not isinstance(verdict, Ask)
    if case.profile.never_asks:
        assert not isinstance(verdict, Ask)
    if case.actor is ActorKind.PROCTOR and isinstance(verdict, Allow):
        assert verdict.confined.network is Network.OFF
        assert verdict.confined.level_required >= Level.LANDLOCK
        assert case.tool.reversible
        assert not runs or case.level >= Level.LANDLOCK
    if case.actor is ActorKind.AGENT and isinstance(verdict, Allow):
        assert case.tool.reversible
        assert not (case.interrupted and not case.tool.read_only)
        assert not runs or case.level >= Level.LANDLOCK
    if any("token" in getattr(touch, "path", "") for touch in case.touches):
        assert isinstance(verdict, Deny)
    if any(isinstance(touch, Runs) and "sudo" in touch.command for touch in case.touches):
        assert isinstance(verdict, Deny)


@pytest.mark.parametrize("tool", FILE_TOOLS, ids=lambda tool: tool.name)
@pytest.mark.parametrize("path", ["/etc/hosts", "../up"])
def test_nobody_is_asked_for_what_a_tool_cannot_do(tool: Tool, path: str) -> None:
    """File tools never leave the workspace: an agent hears that at once, and no person says yes for nothing."""
    touch = Reads(path) if tool.read_only else Writes(path)
    verdict = judge(_case(ActorKind.AGENT, touch, tool=tool))
    assert isinstance(verdict, Deny)
    assert (verdict.code, verdict.rule) == ("path_escape", "path.outside")
    assert isinstance(judge(_case(ActorKind.AGENT, touch)), Ask)


@given(case=_cases)
def test_more_touches_never_loosen(case: Case) -> None:
    """Adding something that asks or is denied cannot make a verdict friendlier."""
    from dataclasses import replace

    ranks = {Allow: 0, Ask: 1, Deny: 2}
    more = replace(case, touches=(*case.touches, Runs("sudo reboot")))
    assert isinstance(judge(more), Deny)
    assert ranks[type(judge(case))] <= ranks[type(judge(more))]


def _classes(command: str) -> tuple[str, ...]:
    verdict: Verdict = judge(_case(ActorKind.AGENT, Runs(command)))
    assert isinstance(verdict, Ask), command
    return verdict.classes


def test_class_of_a_command_is_what_a_person_meant() -> None:
    """Rule and first words; what hides its program, or cannot be taken back, has no class."""
    assert _classes("curl -O https://a.example/x") == _classes("curl -O https://b.example/y")
    assert _classes("curl -O https://a.example/x") != _classes("wget https://a.example/x")
    assert _classes("git push --force") == ()
    assert _classes("unknown-program a b") != _classes("other-program a b")
    assert _classes("eval $X") == ()


def test_network_is_on_only_where_the_command_is_about_it() -> None:
    """A person's fetch gets the network; reading does not; an agent's fetch only after the answer."""
    fetch = judge(_case(ActorKind.HUMAN, Runs("curl -O https://example.org")))
    listing = judge(_case(ActorKind.HUMAN, Runs("ls")))
    agent = judge(_case(ActorKind.AGENT, Runs("curl -O https://example.org")))
    assert isinstance(fetch, Allow)
    assert isinstance(listing, Allow)
    assert isinstance(agent, Ask)
    networks = [fetch.confined.network, listing.confined.network, agent.confined.network]
    assert networks == [Network.FULL, Network.OFF, Network.FULL]


def test_reading_command_needs_no_snapshot_and_a_redirect_does() -> None:
    """What only reads is told apart from what writes, by a redirect or in place."""
    commands = ("ls -l", "ls > a.txt", "sed -nEi s/a/b/ a.txt", "pytest")
    verdicts = [judge(_case(ActorKind.HUMAN, Runs(command))) for command in commands]
    assert [isinstance(one, Allow) and one.reading for one in verdicts] == [True, False, False, False]


def test_touching_call_without_a_workspace_is_denied() -> None:
    """Nowhere is not everywhere."""
    verdict = judge(_case(ActorKind.HUMAN, Reads("a.txt"), workspace=None))
    assert isinstance(verdict, Deny)
    assert verdict.code == "no_workspace"
