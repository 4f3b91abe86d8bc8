"""`proctor integrate` writes what each CLI reads, leaves everything else as it was, and takes it out without a trace."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from proctor.agents.slash import COMMANDS
from proctor.cli.integrate import integrate
from proctor.cli.integrate_agents import MARK, NAMES
from proctor.cli.integrate_edits import EditError, json_with, json_without, toml_with, toml_without
from proctor.protocol.errors import RefusedError

ENTRY: dict[str, Any] = {"command": "proctor", "args": ["mcp"], "env": {"A": "${A:-}"}}
TABLE: dict[str, Any] = {"command": "proctor", "args": ["mcp"], "seconds": 60}
agents = pytest.mark.parametrize("agent", NAMES)
scopes = pytest.mark.parametrize("scope", ["user", "project"])
CLAUDE = '{\n  "oauthAccount": {"key": "sk-ant-secret"},\n\t"numStartups": 3}'
CODEX = """model = "gpt-5.5"  # mine

[mcp_servers.other]
command = "x"

# about the projects
[projects."/a b"]
trust_level = "trusted"
"""
GEMINI = (
    '{"mcpServers": {"other": {"command": "x"}}, "security": {"auth": {"selectedType": "gemini-api-key"}}}\n'
)
SETTINGS = {
    ("claude", "user"): (".claude.json", CLAUDE),
    ("claude", "project"): (".mcp.json", GEMINI),
    ("codex", "user"): (".codex/config.toml", CODEX),
    ("codex", "project"): (".codex/config.toml", CODEX),
    ("gemini", "user"): (".gemini/settings.json", GEMINI),
    ("gemini", "project"): (".gemini/settings.json", GEMINI),
}


@pytest.fixture
def repo(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in."""
    place = tmp_path / "repo"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)
    return place


def _run(*words: str, fails: type[Exception] | None = None) -> Result:
    done = CliRunner().invoke(integrate, list(words))
    assert (done.exception is None) if fails is None else isinstance(done.exception, fails), done.output
    return done


def _files(*places: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@agents
@scopes
def test_put_in_repeated_and_taken_out_leaves_everything_as_it_was(
    agent: str, scope: str, home: Path, repo: Path
) -> None:
    """The entry is there beside all the rest, a second run changes nothing, and `--remove` gives back the very bytes."""
    base = home if scope == "user" else repo
    name, text = SETTINGS[agent, scope]
    settings = base / name
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(text)
    settings.chmod(0o640)
    before = _files(home, repo)
    shown = _run(agent, "--scope", scope, "--dry-run")
    assert _files(home, repo) == before
    assert "would be changed" in shown.output
    _run(agent, "--scope", scope)
    after = _files(home, repo)
    assert len(after) == len(before) + len(COMMANDS)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    entry = _entry(settings)
    assert entry["args"][-1] == "mcp"
    assert entry["command"].endswith("proctor")
    assert (entry["command"] == "proctor") is (scope == "project")
    again = json.loads(_run(agent, "--scope", scope, "--json").output)
    assert {one["action"] for one in again["files"]} == {"unchanged"}
    assert _files(home, repo) == after
    _run(agent, "--scope", scope, "--remove")
    assert _files(home, repo) == before


def _entry(settings: Path) -> dict[str, Any]:
    text = settings.read_text()
    found: dict[str, Any] = (
        tomllib.loads(text)["mcp_servers"] if settings.suffix == ".toml" else json.loads(text)["mcpServers"]
    )
    assert settings.name == ".claude.json" or "other" in found
    entry: dict[str, Any] = found["proctor"]
    return entry


@agents
@scopes
def test_where_nothing_was_nothing_is_left(agent: str, scope: str, home: Path, repo: Path) -> None:
    """A new user's files are made whole, and gone after `--remove`."""
    before = _files(home, repo)
    _run(agent, "--scope", scope)
    made = set(_files(home, repo)) - set(before)
    assert len(made) == 1 + len(COMMANDS)
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in made)
    _run(agent, "--scope", scope, "--remove")
    assert _files(home, repo) == before


@agents
def test_no_secret_and_no_path_of_this_machine_is_written_into_the_repository(
    agent: str, home: Path, repo: Path
) -> None:
    """What is committed works for everybody: the program by its name, the token by the name of its variable."""
    from proctor.gate.humans import load_token

    token = load_token(home / "state" / "proctor" / "token")
    _run(agent, "--scope", "project")
    for path, raw in _files(repo).items():
        text = raw.decode()
        assert token not in text
        assert str(home) not in text, path
        assert str(repo) not in text, path


def test_the_difference_shows_what_changes_and_nothing_around_it(home: Path, repo: Path) -> None:
    """An agent's own keys stand in the same file, even on the same line."""
    (home / ".claude.json").write_text('{"primaryApiKey": "sk-ant-secret", "numStartups": 3}')
    for words in ((), ("--remove",)):
        for shown in (_run("claude", *words, "--dry-run").output, _run("claude", *words, "--json").output):
            assert "sk-ant-secret" not in shown
            assert "PROCTOR_TASK_TOKEN" in shown or words


@agents
def test_a_command_that_is_somebody_elses_is_not_overwritten(agent: str, home: Path, repo: Path) -> None:
    """A file of that name without our mark is the user's own: refused before anything is written, kept by `--remove`."""
    name = {"claude": ".claude/commands/orchestrate.md", "codex": ".codex/skills/orchestrate/SKILL.md"}
    mine = home / name.get(agent, ".gemini/commands/orchestrate.toml")
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    before = _files(home, repo)
    _run(agent, fails=RefusedError)
    assert _files(home, repo) == before
    _run(agent, "--remove")
    assert _files(home, repo) == before


@pytest.mark.parametrize("text", ["{ // a comment\n}", "[]", '{"mcpServers": 3}', "{"])
def test_settings_that_cannot_be_edited_for_certain_are_left_alone(text: str, home: Path, repo: Path) -> None:
    """The refusal says what to write by hand."""
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(text)
    done = _run("gemini", fails=EditError)
    assert "by hand" in str(done.exception)
    assert "mcpServers" in str(done.exception)
    assert (home / ".gemini" / "settings.json").read_text() == text


def test_a_link_stays_a_link_and_a_project_needs_a_repository(
    home: Path, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who keeps dotfiles elsewhere keeps them there."""
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    (home / ".claude.json").symlink_to(real)
    _run("claude")
    assert (home / ".claude.json").is_symlink()
    assert "proctor" in json.loads(real.read_text())["mcpServers"]
    monkeypatch.chdir(home)
    assert "no repository" in str(_run("claude", "--scope", "project", fails=Exception).exception)


def test_other_homes_of_the_agents_are_found(home: Path, repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CODEX_HOME and CLAUDE_CONFIG_DIR are where the programs look."""
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.setenv(name, str(home / name))
    _run("codex")
    _run("claude")
    assert (home / "CODEX_HOME" / "config.toml").exists()
    assert (home / "CLAUDE_CONFIG_DIR" / ".claude.json").exists()
    assert (home / "CLAUDE_CONFIG_DIR" / "commands" / "orch-stop.md").exists()


def test_every_command_names_tools_that_exist_and_says_what_is_missing() -> None:
    """The six commands of the seeds, over real tools; a peer review is not pretended."""
    from proctor.engine.control_tools import control_tools

    known = {tool.name for tool in control_tools(lambda: None)}
    assert list(COMMANDS) == [
        "orchestrate",
        "orch-status",
        "orch-review",
        "orch-pause",
        "orch-resume",
        "orch-stop",
    ]
    for command in COMMANDS.values():
        assert set(command.tools) <= known
        assert all(f"`{tool}`" in command.text for tool in command.tools[:1])
        assert command.tools or command.programs
    assert "do not exist" in COMMANDS["orch-review"].text


@agents
def test_written_commands_can_be_read_by_their_format(agent: str, home: Path, repo: Path) -> None:
    """Front matter or TOML with a description; the place of the arguments is spelled as that CLI spells it."""
    _run(agent)
    made = [path for path, raw in _files(home).items() if MARK in raw.decode()]
    assert len(made) == len(COMMANDS)
    sign = {"claude": "$ARGUMENTS", "codex": "wrote behind $orch", "gemini": "{{args}}"}[agent]
    for path in made:
        text = path.read_text()
        assert sign in text
        if agent == "gemini":
            assert set(tomllib.loads(text)) == {"description", "prompt"}
        else:
            assert text.startswith("---\n")
            head = text.split("---\n")[1]
            assert "description: " in head
            assert all(json.loads(line.partition(": ")[2]) for line in head.splitlines())


# ── the edits ─────────────────────────────────────────────────────────────────────────────────────────────────────

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(names.filter(lambda name: name != "mcpServers"), values, max_size=4)


@given(
    document=documents,
    others=st.none() | st.dictionaries(names, values, min_size=1, max_size=3),
    indent=st.sampled_from([None, 2, 4, "\t"]),
)
def test_json_comes_back_to_the_byte(
    document: dict[str, Any], others: dict[str, Any] | None, indent: Any
) -> None:
    """Whatever else is in the file, in whatever layout: in, again, and out."""
    whole = (
        document
        if others is None
        else {**document, "mcpServers": {k: v for k, v in others.items() if k != "proctor"} or {"x": 1}}
    )
    text = json.dumps(whole, indent=indent, ensure_ascii=False)
    edited = json_with(text, "mcpServers", "proctor", ENTRY, "f")
    expected = {**whole, "mcpServers": {**whole.get("mcpServers", {}), "proctor": ENTRY}}
    assert json.loads(edited) == expected
    assert json_with(edited, "mcpServers", "proctor", ENTRY, "f") == edited
    assert json_without(edited, "mcpServers", "proctor", "f") == text


lines = st.lists(
    st.sampled_from(
        """
# a comment
a = "x"  # [not.a.header]
[other]
[mcp_servers.x]
command = "[y]"
[[list]]
b = 1
[mcp_servers.proctorial]
# [mcp_servers.proctor]
   [ spaced . out ]""".splitlines()
    ),
    max_size=12,
)


@given(parts=lines, ending=st.sampled_from(["", "\n", "\n\n"]))
def test_toml_keeps_the_rest_and_comes_back(parts: list[str], ending: str) -> None:
    """Comments, look-alikes and layout stay; what cannot be parsed is refused."""
    text = "\n".join(parts) + ending
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(EditError):
            toml_with(text, "mcp_servers.proctor", TABLE, "f")
        return
    edited = toml_with(text, "mcp_servers.proctor", TABLE, "f")
    after = tomllib.loads(edited)
    assert after["mcp_servers"].pop("proctor") == TABLE
    assert {k: v for k, v in after.items() if v != {} or k in before} == before
    assert edited.startswith(text)
    assert toml_with(edited, "mcp_servers.proctor", TABLE, "f") == edited
    assert toml_without(edited, "mcp_servers.proctor", "f").rstrip("\n") == text.rstrip("\n")


def test_an_older_entry_is_replaced_where_it_stands() -> None:
    """With the tables below it, in the middle of a file; one written another way is left to the user."""
    old = 'a = 1\n[mcp_servers.proctor]\ncommand = "old"\n[mcp_servers.proctor.env]\nB = "c"\n# about z\n[z]\nb = 2\n'
    edited = toml_with(old, "mcp_servers.proctor", TABLE, "f")
    assert tomllib.loads(edited) == {"a": 1, "mcp_servers": {"proctor": TABLE}, "z": {"b": 2}}
    assert edited.endswith("# about z\n[z]\nb = 2\n")
    assert toml_without(old, "mcp_servers.proctor", "f") == "a = 1\n# about z\n[z]\nb = 2\n"
    with pytest.raises(EditError, match="table of its own"):
        toml_with('mcp_servers = {proctor = {command = "x"}}\n', "mcp_servers.proctor", TABLE, "f")
