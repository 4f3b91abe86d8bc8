"""`proctor config` shows settings with their sources and never a secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proctor.cli.main import main


@pytest.fixture
def root(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace to stand in."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "proctor.toml").write_text(
        'profile = "careful"\n[project]\ntest = ["a", "b"]\n[project.env]\nTOKEN = "s3cretvalue"\n'
    )
    monkeypatch.chdir(place)
    monkeypatch.setenv("PROCTOR_DATABASE_URL", "postgresql://me:hunter2hunter2@db/name")
    return place


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run `proctor config` and give exit code, output and errors."""
    code = main(["config", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_all_settings_are_printed_with_their_sources(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text and JSON show the same values and places."""
    code, text, _ = run(capsys)
    assert code == 0
    assert ["profile", "careful", "proctor.toml:1"] in [line.split() for line in text.splitlines()]
    shown = json.loads(run(capsys, "--json")[1])
    assert shown["profile"] == {"value": "careful", "source": "proctor.toml:1"}
    assert shown["limits.usd"] == {"value": None, "source": "default"}
    assert all(key in text for key in shown)


@pytest.mark.parametrize(
    "words", [(), ("--json",), ("get", "database_url"), ("get", "project"), ("get", "project.env.TOKEN")]
)
def test_no_secret_is_printed(root: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Passwords in URLs and values named like secrets are replaced in every form of the command."""
    code, text, _ = run(capsys, *words)
    assert code == 0
    assert "***" in text
    assert not [secret for secret in ("hunter2", "s3cret") if secret in text]


def test_one_setting_is_printed_bare(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`get` suits scripts: the value alone, a list line by line, JSON on demand before or after."""
    assert run(capsys, "get", "profile")[1] == "careful\n"
    assert run(capsys, "get", "project.test")[1] == "a\nb\n"
    assert run(capsys, "get", "limits.usd")[1] == ""
    wanted = {"key": "profile", "value": "careful", "source": "proctor.toml:1"}
    assert json.loads(run(capsys, "get", "profile", "--json")[1]) == wanted
    assert json.loads(run(capsys, "--json", "get", "profile")[1]) == wanted


def test_an_unknown_setting_is_not_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt key exits 4 and offers the near ones."""
    code, _, error = run(capsys, "get", "profil")
    assert code == 4
    assert "Did you mean profile?" in error


def test_a_wrong_file_is_one_sentence_and_paths_still_work(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong settings exit 2 with file and line; `config path` helps to find the file."""
    (root / "proctor.toml").write_text("\nnope = 1\n")
    code, _, error = run(capsys)
    assert code == 2
    assert error.startswith("proctor: proctor.toml:2: 'nope' is not a setting.")
    code, text, _ = run(capsys, "path", "--json")
    places = json.loads(text)
    assert code == 0
    assert places["proctor.toml"] == str(root / "proctor.toml")
    assert places["proctor.local.toml"] is None


def test_an_unknown_flag_is_wrong_usage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown flags exit 2."""
    assert run(capsys, "--nope")[0] == 2
