"""`proctor init` writes settings that load, asks nothing, and overwrites nothing unasked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.cli.main import main
from proctor.config import load_settings
from proctor.protocol.errors import UsageError
from proctor.workspace.detect import Detected
from proctor.workspace.initial import exclude_locally, render_settings, write_settings
from tests.workspace.projects import PROJECTS, make


@pytest.fixture
def root(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to stand in, with a HOME elsewhere."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_what_is_written_loads_back(root: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For every kind of project the settings hold exactly what was found, in about ten lines."""
    make(root, PROJECTS[name])
    assert main(["init", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    project = load_settings(root).project
    assert (project.setup, project.test, project.lint) == (
        PROJECTS[name].setup,
        PROJECTS[name].test,
        PROJECTS[name].lint,
    )
    assert said["file"] == str(root / "proctor.toml")
    assert said["next"] == "proctor doctor"
    assert len((root / "proctor.toml").read_text().splitlines()) <= 20


def test_it_says_what_it_found_and_what_comes_next(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person sees every finding and the next command; a missing test command is said plainly."""
    assert main(["init"]) == 0
    said = capsys.readouterr().out
    assert "Next: proctor doctor" in said
    assert "nothing can be proven" in said
    assert "# test =" in (root / "proctor.toml").read_text()


def test_agents_on_the_path_become_settings(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed CLI is written down and loads as an agent."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").write_text("#!/bin/sh\n")
    (programs / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    assert main(["init"]) == 0
    assert load_settings(root).agents["claude"].driver == "claude"


def test_an_existing_file_stays_unless_forced_and_is_kept_aside_then(
    root: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --force nothing changes; with it the old file, even a broken one, is kept in the data directory."""
    (root / "proctor.toml").write_text("broken = [")
    assert main(["init"]) == 2
    assert "--force" in capsys.readouterr().err
    assert (root / "proctor.toml").read_text() == "broken = ["
    assert main(["init", "--force", "--json"]) == 0
    kept = Path(json.loads(capsys.readouterr().out)["replaced"])
    assert kept.read_text() == "broken = ["
    assert home in kept.parents
    assert load_settings(root).profile == "standard"


def test_a_directory_in_the_files_place_is_never_replaced(root: Path) -> None:
    """Not even --force removes a directory."""
    (root / "proctor.toml").mkdir()
    assert main(["init"]) == 2
    assert main(["init", "--force"]) == 2
    assert (root / "proctor.toml").is_dir()


def test_a_file_made_in_between_is_not_overwritten(tmp_path: Path) -> None:
    """The last step itself refuses to replace, so no second caller can lose a file; no draft is left."""
    target = tmp_path / "proctor.toml"
    write_settings(target, "first", replace=False)
    with pytest.raises(UsageError, match="already exists"):
        write_settings(target, "second", replace=False)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["first"]


def test_from_below_the_roots_file_is_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a subdirectory of a repository the settings go to its root, and git ignores the local file."""
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=30)
    (root / "sub").mkdir()
    monkeypatch.chdir(root / "sub")
    assert main(["init"]) == 0
    assert (root / "proctor.toml").is_file()
    (root / "proctor.local.toml").write_text("")
    status = ["git", "-C", str(root), "status", "--porcelain"]
    shown = subprocess.run(status, capture_output=True, text=True, check=True, timeout=30).stdout
    assert shown.split() == ["??", "proctor.toml"]


def test_the_ignore_list_gets_one_line_and_keeps_its_own(tmp_path: Path) -> None:
    """Saying it twice adds one line; a last line without an end stays a line."""
    (tmp_path / ".git").mkdir()
    assert exclude_locally(tmp_path, "proctor.local.toml")
    exclude = tmp_path / ".git" / "info" / "exclude"
    exclude.write_text("mine")
    assert exclude_locally(tmp_path, "proctor.local.toml")
    assert exclude_locally(tmp_path, "proctor.local.toml")
    assert exclude.read_text() == "mine\nproctor.local.toml\n"


def test_without_git_it_works_and_says_so(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a repository nor the git program is needed."""
    monkeypatch.setenv("PATH", "")
    assert main(["init", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["base_branch"], said["local_file_ignored"]) == (None, False)


def test_a_directory_that_cannot_be_written_is_one_sentence(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk leaves no draft and no half file, and says the cure."""

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["init"]) == 6
    assert "no space left on device" in capsys.readouterr().err
    assert list(root.iterdir()) == []


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1).filter(
    lambda text: bool(text.strip())
)
COMMANDS = st.lists(TEXTS, max_size=3).map(tuple)


@given(TEXTS, COMMANDS, COMMANDS, COMMANDS, TEXTS)
def test_any_finding_survives_writing_and_loading(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    setup: tuple[str, ...],
    test: tuple[str, ...],
    lint: tuple[str, ...],
    branch: str,
) -> None:
    """Whatever quotes, backslashes or scripts a name or command holds, it comes back unchanged."""
    root = tmp_path_factory.mktemp("any")
    found = Detected(name, (), setup, test, lint, (), branch, ("claude",))
    (root / "proctor.toml").write_text(render_settings(found), encoding="utf-8")
    project = load_settings(root, {"HOME": str(root)}).project
    assert (project.name, project.setup, project.test, project.lint, project.base_branch) == (
        name,
        setup,
        test,
        lint,
        branch,
    )
