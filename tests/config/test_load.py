"""Settings come from five sources in a fixed order, typed, and each tells where it came from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proctor.config import Settings, find_workspace, load_settings, show_settings
from proctor.protocol.errors import ConfigError


def load(root: Path, environ: dict[str, str] | None = None) -> Settings:
    """Load with a HOME of the test's own and nothing else."""
    return load_settings(root, {"HOME": str(root / "home"), **(environ or {})})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with an empty proctor.toml."""
    (tmp_path / "proctor.toml").write_text("")
    return tmp_path


def test_without_any_file_everything_has_its_default(tmp_path: Path) -> None:
    """A directory that is no workspace still has complete settings, and loading makes nothing."""
    settings = load(tmp_path)
    state = tmp_path / "home" / ".local" / "state" / "proctor"
    assert (settings.profile, settings.workspace, settings.agents) == (
        "standard",
        find_workspace(tmp_path),
        {},
    )
    assert settings.database_url == f"sqlite:///{state}/proctor.db"
    assert settings.engine_database_url == f"sqlite:///{state}/engine.db"
    assert set(settings.sources.values()) == {"default"}
    assert list(tmp_path.iterdir()) == []


def test_each_source_wins_over_those_before_it(root: Path) -> None:
    """Default, shared file, local file, .env, environment: the later one holds."""
    seen = [load(root).profile]
    (root / "proctor.toml").write_text('\nprofile = "careful"\n')
    seen.append(load(root).sources["profile"])
    (root / "proctor.local.toml").write_text('profile = "unattended"')
    seen.append(load(root).sources["profile"])
    (root / ".env").write_text("# mine\nPROCTOR_PROFILE=smb\n")
    seen += [load(root).profile, load(root).sources["profile"]]
    final = load(root, {"PROCTOR_PROFILE": "technical"})
    seen += [final.profile, final.sources["profile"]]
    assert seen == [
        *("standard", "proctor.toml:2", "proctor.local.toml:1", "smb", ".env:2"),
        *("technical", "environment PROCTOR_PROFILE"),
    ]


def test_an_empty_variable_is_none(root: Path) -> None:
    """`PROCTOR_PROFILE=` does not choose a profile without a name, nor hide the .env's."""
    (root / ".env").write_text("PROCTOR_PROFILE=careful\n")
    assert load(root, {"PROCTOR_PROFILE": ""}).profile == "careful"


def test_values_come_typed(root: Path) -> None:
    """Commands, programs, limits, tables of variables and numbers arrive as what they are."""
    (root / "proctor.toml").write_text(
        """
        [project]
        test = "pytest -q"
        lint = ["ruff check .", "mypy"]
        env = { CI = "1" }
        [agents.claude]
        [agents.helper]
        driver = "acp"
        command = "helper --flag 'two words'"
        capabilities = ["docs"]
        max_parallel = 3
        limits = { usd = 2, seconds = 60 }
        [limits]
        usd = 5
        [retention]
        days = 7
        """
    )
    settings = load(root, {"PROCTOR_LIMITS_TOKENS": "1000", "PROCTOR_LIMITS_USD": "7.5"})
    helper = settings.agents["helper"]
    assert settings.project.test == ("pytest -q",)
    assert settings.project.lint == ("ruff check .", "mypy")
    assert settings.project.env == {"CI": "1"}
    assert settings.project.name == root.name
    assert settings.agents["claude"].driver == "claude"
    assert (helper.driver, helper.command, helper.max_parallel) == (
        "acp",
        ("helper", "--flag", "two words"),
        3,
    )
    assert (helper.limits.usd, helper.limits.seconds, helper.limits.calls) == (2.0, 60, None)
    assert (settings.limits.usd, settings.limits.tokens, settings.retention.days) == (7.5, 1000, 7)


def test_tables_of_two_files_merge_key_by_key(root: Path) -> None:
    """The local file changes one key of an agent and keeps the others; lists replace."""
    (root / "proctor.toml").write_text(
        '[agents.a]\ndriver = "codex"\ncapabilities = ["x"]\nenv = {A = "1", B = "2"}\n'
    )
    (root / "proctor.local.toml").write_text(
        '[agents.a]\ncapabilities = ["y"]\nenv = {B = "3"}\n[agents.b]\n'
    )
    settings = load(root)
    agent = settings.agents["a"]
    assert (agent.driver, agent.capabilities, agent.env) == ("codex", ("y",), {"A": "1", "B": "3"})
    assert list(settings.agents) == ["a", "b"]
    assert settings.sources["agents.a.env.A"] == "proctor.toml:4"
    assert settings.sources["agents.a.env.B"] == "proctor.local.toml:3"


def test_reserved_tables_are_kept_with_their_places(root: Path) -> None:
    """[profiles] and [policy] are handed on unread, each value with its line, and a profile of one's own can be chosen."""
    (root / "proctor.toml").write_text(
        'profile = "mine"\n[profiles.mine]\nask = ["push"]\n[[policy.rules]]\nallow = "x"\n'
    )
    settings = load(root)
    assert settings.profiles.values == {"mine": {"ask": ["push"]}}
    assert settings.profiles.where("mine", "ask", 0) == "proctor.toml:3"
    assert settings.policy.values == {"rules": [{"allow": "x"}]}
    assert settings.policy.where("rules", 0, "allow") == "proctor.toml:5"
    assert settings.policy.where("rules", 0, "deny") == "proctor.toml:4"


def test_the_workspace_is_the_nearest_marked_directory(tmp_path: Path) -> None:
    """Both proctor.toml and .git (directory or file) mark a workspace, the nearest one upward."""
    inner = tmp_path / "repo" / "sub" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    assert find_workspace(inner) == tmp_path / "repo"
    (tmp_path / "repo" / "sub" / ".git").write_text("gitdir: elsewhere")
    assert find_workspace(inner) == tmp_path / "repo" / "sub"
    (inner / "proctor.toml").write_text("")
    assert find_workspace(inner) == inner


def test_settings_in_a_parent_that_anybody_may_write_are_ignored(tmp_path: Path) -> None:
    """Another user's proctor.toml in a directory like /tmp must not name commands that we run."""
    (tmp_path / "proctor.toml").write_text('profile = "unattended"')
    mine = tmp_path / "mine"
    mine.mkdir()
    assert find_workspace(mine) == tmp_path
    tmp_path.chmod(0o1777)
    assert find_workspace(mine) != tmp_path


def test_the_environment_is_handed_on_with_dotenv_below_it(root: Path) -> None:
    """Children get one environment: .env fills gaps and never overrides."""
    (root / ".env").write_text("A=file\nB=file\n")
    settings = load(root, {"A": "real"})
    assert (settings.environ["A"], settings.environ["B"]) == ("real", "file")


def test_dotenv_that_is_a_directory_is_a_virtual_environment(root: Path) -> None:
    """Some projects call their virtual environment `.env`; a pipe there must not hang us either."""
    (root / ".env").mkdir()
    assert load(root).profile == "standard"
    (root / ".env").rmdir()
    os.mkfifo(root / ".env")
    assert load(root).profile == "standard"


def test_every_shown_setting_has_a_source_and_secrets_are_hidden(root: Path) -> None:
    """What `proctor config` prints covers all settings and none of the secrets."""
    (root / "proctor.toml").write_text(
        '[project]\ntest = "run --key hunter2hunter2"\n[project.env]\nMY_TOKEN = "short"\n'
    )
    environ = {"API_KEY": "hunter2hunter2", "PROCTOR_DATABASE_URL": "postgresql://u:verysecret@h/n"}
    settings = load(root, environ)
    rows = {row.key: row for row in show_settings(settings)}
    assert rows["project.test"].value == ["run --key ***"]
    assert rows["project.env.MY_TOKEN"].value == "***"
    assert rows["database_url"] == (
        "database_url",
        "postgresql://u:***@h/n",
        "environment PROCTOR_DATABASE_URL",
    )
    assert set(settings.sources) <= set(rows)
    assert all(row.source for row in rows.values())
    assert not [secret for secret in ("API_KEY", "verysecret", "short") if secret in repr(settings)]


def test_a_start_that_cannot_be_resolved_is_one_sentence(tmp_path: Path) -> None:
    """A loop of links as the start is refused in our words."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigError, match="does not exist any more"):
        load(tmp_path / "a")
