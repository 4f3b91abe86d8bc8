"""Whatever is wrong in a settings file or variable is refused with its place and what is allowed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config import load_settings
from proctor.protocol.errors import ConfigError


def refusal(root: Path, text: str | bytes, environ: dict[str, str] | None = None) -> str:
    """The sentence with which a proctor.toml is refused."""
    (root / "proctor.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_settings(root, {"HOME": str(root), **(environ or {})})
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("\nproflie = 'x'", "proctor.toml:2", "'proflie' is not a setting. Allowed: agents, limits"),
        ("proflie = 'x'", "proctor.toml:1", "Did you mean 'profile'"),
        ("profile = 'carefull'", "proctor.toml:1", "there is no profile 'carefull'"),
        ("profile = 'carefull'", "proctor.toml:1", "Did you mean 'careful'?"),
        ("profile = 3", "proctor.toml:1", "profile must be text, not a whole number"),
        ("profile = ''", "proctor.toml:1", "not empty"),
        ("log_level = 'inf'", "proctor.toml:1", "Did you mean 'INFO'?"),
        ("[project]\ntset = 'x'", "proctor.toml:2", "'tset' is not a setting in [project]"),
        ("[project]\ntest = [1]", "proctor.toml:2", "list of commands"),
        ("project = 1", "proctor.toml:1", "project must be a table, not a whole number. Write [project]"),
        ("[[project]]\nname = 'x'", "proctor.toml:1", "project must be a table, not a list"),
        ("[agents]\nclaude = 'x'", "proctor.toml:2", "agents.claude must be a table"),
        ("[agents.'../x']", "proctor.toml:1", "cannot be a name in [agents]"),
        ("[agents.a]\n\nmax_paralel = 1", "proctor.toml:3", "Did you mean 'max_parallel'?"),
        ("[agents.a]\nmax_parallel = 0", "proctor.toml:2", "at least 1"),
        ("[agents.a]\nmax_parallel = true", "proctor.toml:2", "not true or false"),
        ('[agents.a]\ncommand = "\'"', "proctor.toml:2", "cannot be split into words"),
        ("[agents.a]\ncommand = []", "proctor.toml:2", "program with arguments"),
        ("[agents.a.env]\n'A=B' = 'x'", "proctor.toml:2", "cannot be a name in [agents.a.env]"),
        ("[agents.a.env]\nA = 1", "proctor.toml:2", "must be text, not a whole number. Put it in quotes"),
        ("[limits]\nusd = inf", "proctor.toml:2", "limits.usd must be a number, at least 0"),
        ("[limits]\nusd = nan", "proctor.toml:2", "limits.usd must be a number, at least 0"),
        ("[limits]\nusd = -1", "proctor.toml:2", "limits.usd must be a number, at least 0"),
        (f"[limits]\nusd = 1{'0' * 400}", "proctor.toml:2", "limits.usd must be a number, at least 0"),
        ("[limits]\nseconds = 1979-05-27", "proctor.toml:2", "not a date or time"),
        ("policy = 'x'", "proctor.toml:1", "policy must be a table"),
        ("database_url = 'x'", "proctor.toml:1", "Set PROCTOR_DATABASE_URL"),
        ("a = 1\nb = \n", "proctor.toml:2", "not valid TOML"),
        ("a = 'x", "proctor.toml:1", "not valid TOML"),
        ("a = 1\na = 2", "proctor.toml:2", "not valid TOML"),
        (b"a = 1\nb = '\xff'", "proctor.toml:2", "not UTF-8"),
        ("a = " + "[" * 100_000, "proctor.toml", "nested too deeply"),
        (b"#" * 10_000_000, "proctor.toml", "larger than 1,000,000 bytes"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    tmp_path: Path, text: str | bytes, where: str, words: str
) -> None:
    """Wrong keys, types, values, syntax and encodings each give one sentence with the place."""
    sentence = refusal(tmp_path, text)
    assert sentence.startswith(f"{where}: ")
    assert words in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PROCTOR_PROFILE", "nope", "there is no profile 'nope'"),
        ("PROCTOR_LIMITS_USD", "much", "must be a number"),
        ("PROCTOR_LIMITS_CALLS", "1.5", "must be a whole number"),
        ("PROCTOR_LIMITS_CALLS", "9" * 5000, "must be a whole number"),
        ("PROCTOR_PROFLE", "careful", "Did you mean PROCTOR_PROFILE?"),
        ("PROCTOR_LIMIT_USD", "1", "Did you mean PROCTOR_LIMITS_USD?"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, name: str, value: str, words: str) -> None:
    """A variable with a wrong value, or one that nearly names a setting, is refused by its name."""
    sentence = refusal(tmp_path, "", {name: value})
    assert sentence.startswith(f"environment {name}: ")
    assert words in sentence
    (tmp_path / ".env").write_text(f"X=1\n{name}={value}\n")
    assert refusal(tmp_path, "").startswith(".env:2: ")


def test_foreign_variables_are_left_alone(tmp_path: Path) -> None:
    """A PROCTOR_ variable that resembles no setting belongs to somebody else."""
    assert load_settings(tmp_path, {"HOME": str(tmp_path), "PROCTOR_SOMETHING": "x"}).profile == "standard"


def test_from_a_directory_below_the_file_is_named_in_full(tmp_path: Path) -> None:
    """The error can be followed from where the command was typed."""
    (tmp_path / "proctor.toml").write_text("x = 1")
    (tmp_path / "sub").mkdir()
    with pytest.raises(ConfigError, match=f"^{tmp_path}/proctor.toml:1: "):
        load_settings(tmp_path / "sub", {"HOME": str(tmp_path)})


def test_what_is_no_regular_file_is_one_sentence(tmp_path: Path) -> None:
    """A directory, a pipe (which must not hang) or a dangling link in the place of a settings file is refused."""
    path = tmp_path / "proctor.local.toml"
    (tmp_path / "proctor.toml").write_text("")
    path.mkdir()
    assert "not a regular file" in outcome(tmp_path)
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in outcome(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "nothing")
    assert "leads nowhere" in outcome(tmp_path)


def test_an_unreadable_file_is_one_sentence(tmp_path: Path) -> None:
    """A file that the system refuses to open is refused with the system's reason; a loop of links also for root."""
    path = tmp_path / "proctor.toml"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path, {"HOME": str(tmp_path)})


def test_a_wrong_secret_is_not_repeated(tmp_path: Path) -> None:
    """An error never shows the value of something that may be a secret."""
    wrong = {"PROCTOR_DATABASE_URL": "mysql://u:verysecret@h/n"}
    assert "verysecret" not in refusal(tmp_path, "", wrong)
    assert "verysecret" not in refusal(tmp_path, "[project.env]\nTOKEN = ['verysecret']")


@given(st.binary(max_size=60))
def test_any_bytes_load_or_are_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """No content of a settings file leads to anything but settings or a ConfigError."""
    root = tmp_path_factory.mktemp("any")
    (root / "proctor.toml").write_bytes(content)
    assert outcome(root).startswith(("loaded", "proctor.toml"))
    assert "\n" not in outcome(root)


def outcome(root: Path) -> str:
    """`loaded`, or the sentence of the refusal."""
    try:
        load_settings(root, {"HOME": str(root)})
    except ConfigError as error:
        return str(error)
    return "loaded"
