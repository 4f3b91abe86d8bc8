"""`proctor policy explain`: one answer for one question, JSON lines for many."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proctor.cli.policy import policy


def ask(*words: str, given: str | bytes | None = None) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(policy, ["explain", *words], input=given, catch_exceptions=False)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "repo")


def test_one_command_is_explained_in_words_and_json() -> None:
    """The answer says the effect, the rule, the reason and the parts; denying is no failure of explaining."""
    told = ask("git add . && rm -rf x")
    assert told.exit_code == 0
    assert told.output.startswith("deny: ")
    assert "rm.recursive-force" in told.output
    answer = json.loads(ask("--json", "git push").output)
    assert (answer["effect"], answer["rule"], answer["irreversible"]) == ("ask", "git.push", True)


def test_lines_on_standard_input_get_one_json_answer_each() -> None:
    """Every line gets its answer in order, broken bytes and overlong lines too."""
    given = b"ls\nrm -rf /\n\xff\n\n" + b"a" * 100_000 + b"\nls -l"
    lines = [json.loads(line) for line in ask(given=given).output.splitlines()]
    assert [line["effect"] for line in lines] == ["allow", "deny", "deny", "ask", "ask", "allow"]
    assert [line["rule"] for line in lines][2:5] == ["text.encoding", "text.empty", "text.long"]


def test_the_profile_and_the_files_count(tmp_path: Path) -> None:
    """The profile is taken from the option or the settings, the rules from the workspace."""
    assert json.loads(ask("--json", "--profile", "unattended", "git push").output)["effect"] == "deny"
    assert json.loads(ask("--json", "--unattended", "git push").output)["code"] == "unattended_denied"
    (tmp_path / "repo" / "proctor.toml").write_text('profile = "careful"\n[policy]\ndeny = ["ls"]\n')
    assert json.loads(ask("--json", "pytest").output)["rule"] == "profile"
    assert json.loads(ask("--json", "ls").output)["rule"] == "project.deny.1"


def test_paths_are_explained() -> None:
    """The same for reading and writing a path."""
    assert json.loads(ask("--json", "--path", "a.py", "--write").output)["effect"] == "allow"
    assert json.loads(ask("--json", "--path", "../x").output)["rule"] == "path.outside"
    assert json.loads(ask("--json", "--path", ".git/config", "--write").output)["effect"] == "deny"


def test_wrong_usage_is_one_sentence() -> None:
    """An unknown profile and contradicting options exit with 2 and say the cure."""
    for words in (["--profile", "nope", "ls"], ["--write", "ls"], ["--path", "a", "ls"]):
        done = subprocess.run(
            [sys.executable, "-m", "proctor", "policy", "explain", *words], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert done.stderr.startswith("proctor: ")
        assert len(done.stderr.splitlines()) == 1
