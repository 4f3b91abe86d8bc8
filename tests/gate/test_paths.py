"""The path policy: inside roots by components, names of secrets, git's own files and Proctor's state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.gate.policy import POSTURES, judge_path


def effect(path: str, *, write: bool = False, profile: str = "standard", attended: bool = True) -> str:
    """Judge a path in /repo."""
    decision = judge_path(
        path,
        write=write,
        roots=("/repo",),
        profile=profile,
        attended=attended,
        protected=("/repo/.state", "/state"),
    )
    return decision.effect.value


@pytest.mark.parametrize(
    "path", ["src/a.py", "/repo/src/a.py", "./a", "a/../b", "/repo", ".env.example", ".gitignore"]
)
def test_paths_inside_are_allowed(path: str) -> None:
    """What lies inside a root may be read and written."""
    assert effect(path) == effect(path, write=True) == "allow"


@pytest.mark.parametrize(
    "path", ["../x", "/repo-evil/x", "/etc/passwd", "a/../../x", "/repo/../etc/x", "/", "/tmp/x"]
)
def test_paths_outside_ask_or_are_denied_by_profile(path: str) -> None:
    """A prefix of text is not a root: outside asks, and is denied in enterprise and unattended."""
    assert effect(path) == "ask"
    assert effect(path, profile="enterprise") == effect(path, profile="unattended") == "deny"
    assert effect(path, attended=False) == "deny"


@pytest.mark.parametrize(
    "path", [".env", "a/.env.local", ".ssh/config", "id_rsa", "x.pem", ".netrc", "credentials.json"]
)
def test_secrets_ask(path: str) -> None:
    """Files named like secrets ask for reading and writing, in every profile."""
    assert effect(path) == effect(path, write=True) == "ask"
    assert all(effect(path, profile=name) in {"ask", "deny"} for name in POSTURES)


def test_git_and_state_are_not_written() -> None:
    """Git's own files may be read but not written; Proctor's state is closed both ways."""
    assert effect(".git/HEAD") == "allow"
    assert effect(".git/hooks/pre-commit", write=True) == "deny"
    assert effect("sub/.GIT/config", write=True) == "deny"
    assert effect("/state/token") == effect("/repo/.state/x") == effect(".state", write=True) == "deny"


@pytest.mark.parametrize("path", ["proctor.toml", "proctor.local.toml", "sub/PROCTOR.local.toml"])
def test_what_decides_over_agents_is_asked_before_it_is_written(path: str) -> None:
    """Rules, profile and limits come from these files: who may write them freely allows himself anything."""
    assert effect(path) == "allow"
    assert effect(path, write=True) == "ask"
    assert effect(path, write=True, profile="unattended") == "deny"


@pytest.mark.parametrize("path", ["", "a\0b", "a\nb", "\u202ea", "~/x", "~root/x"])
def test_unclear_paths_are_denied(path: str) -> None:
    """Empty paths, control characters and `~` are denied."""
    assert effect(path) == "deny"


def test_no_root_means_no_path() -> None:
    """Without an allowed root nothing is allowed."""
    assert judge_path("a", write=False, roots=()).effect == "deny"


@given(
    st.lists(st.sampled_from(["..", ".", "a", "b", "", "repo", "repo-evil"]), min_size=1, max_size=8),
    st.booleans(),
)
def test_no_combination_of_parts_leaves_the_root(parts: list[str], absolute: bool) -> None:
    """Whatever `..` and `.` are strung together, what is allowed lies inside the root."""
    import posixpath

    path = ("/" if absolute else "") + "/".join(parts)
    if effect(path) == "allow":
        full = posixpath.normpath(posixpath.join("/repo", path)).replace("//", "/")
        assert full == "/repo" or full.startswith("/repo/")
