"""What a CLI agent asks for is weighed by what it touches; what was not seen whole, is denied or final has no class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gate.agent_acts import AgentAct, AgentActs

ROOT = Path("/srv/place")


def weigh(tool: str, inputs: object) -> AgentAct:
    """By the built-in rules, in one place."""
    return AgentActs().weigh(tool, inputs, workspace=None, roots=[ROOT])


@pytest.mark.parametrize(
    ("tool", "inputs", "classes"),
    [
        ("Bash", {"command": "npm test -- --watch"}, ("command:", "npm test")),
        ("Bash", {"command": "git fetch origin && make"}, ("command:", "git fetch")),
        ("shell", {"command": ["deploy", "staging", "a b"]}, ("command:no-rule", "deploy staging")),
        ("Write", {"file_path": "/srv/place/src/a.py", "content": "x"}, ("tool:Write",)),
        ("Edit", {"file_path": "src/a.py"}, ("tool:Edit",)),
        ("Write", {"file_path": "/srv/other/a.py"}, ("path:", "/srv/other/a.py")),
        ("WebFetch", {"url": "https://docs.example.org/a?b"}, ("host:docs.example.org",)),
        ("mcp__jira__create", {"title": "x"}, ("tool:mcp__jira__create",)),
    ],
)
def test_the_class_says_what_is_touched(tool: str, inputs: dict[str, Any], classes: tuple[str, ...]) -> None:
    """A command by its first words, a file in the place by the tool, a file elsewhere by its path, a site by its host."""
    act = weigh(tool, inputs)
    assert act.classes
    assert all(any(part in name for name in act.classes) for part in classes)
    assert not act.denied
    assert act.consequences


@pytest.mark.parametrize(
    ("tool", "inputs"),
    [
        ("Bash", {"command": "git push --force origin main"}),
        ("Bash", {"command": "$(cat cmd) now"}),
        ("Bash", {"command": "echo 'unclosed"}),
        ("Bash", '{"command": "echo a… truncated: 9000 more characters'),
        ("Bash", None),
        ("Write", {"file_path": ".git/hooks/pre-commit"}),
        ("WebFetch", {"url": "no address"}),
    ],
)
def test_what_cannot_be_named_safely_has_no_class(tool: str, inputs: object) -> None:
    """Irreversible, known at run time only, unreadable, cut or denied: no grant can cover it."""
    assert weigh(tool, inputs).classes == ()


def test_every_touched_thing_must_be_covered() -> None:
    """A request with a command and a path outside needs both classes."""
    act = weigh("Run", {"command": "deploy staging", "path": "/srv/other/x"})
    assert len(act.classes) == 2


@pytest.mark.parametrize("command", ["rm -rf /", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:"])
def test_what_the_policy_denies_says_why(command: str) -> None:
    """The reason is the rule's, for the agent and the trace."""
    assert weigh("Bash", {"command": command}).denied


@given(
    st.dictionaries(
        st.sampled_from(["command", "file_path", "url", "x"]),
        st.one_of(st.none(), st.integers(), st.text(max_size=60), st.lists(st.text(max_size=9), max_size=4)),
    )
)
def test_any_input_is_weighed_and_a_final_act_never_has_a_class(inputs: dict[str, Any]) -> None:
    """Nothing raises; classes fit their column; no class where the act is denied or cannot be taken back."""
    act = weigh("Any", inputs)
    assert all(len(name) <= 255 for name in act.classes)
    assert not (act.classes and (act.denied or act.irreversible))
