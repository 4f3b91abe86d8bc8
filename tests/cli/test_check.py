"""`proctor check`, `receipt`, `prove`, `fixes verify|run` as a user types them, and the integrations' scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from tests.layers.tree import ROOT
from tests.proof.repos import PATH, commit, git, new_repo, write
from tests.support.supervisors import stop_supervisor

UNITTEST = f"{sys.executable} -m unittest discover -v -s tests -t ."
OLD, NEW = "def double(n):\n    return abs(n) * 2\n", "def double(n):\n    return n * 2\n"


def suite(*rows: str) -> str:
    """A test file with one assertion per row."""
    lines = ["import unittest", "from calc import double", "", "class T(unittest.TestCase):"]
    for number, row in enumerate(rows):
        lines += [f"    def test_{number}(self):", f"        assert {row}"]
    return "\n".join(lines) + "\n"


MENDED = {"calc.py": NEW, "tests/test_calc.py": suite("double(2) == 4", "double(-3) == -6")}


@pytest.fixture
def repo(home: Path, tmp_path: Path) -> Path:
    """A repository with a defect."""
    files = {"calc.py": OLD, "tests/__init__.py": "", "tests/test_calc.py": suite("double(2) == 4")}
    settings = (
        f'[project]\nbase_branch = "main"\ntest = {json.dumps(UNITTEST)}\n[agents.sim]\ndriver = "scripted"\n'
    )
    place = new_repo(tmp_path / "repo", {**files, "proctor.toml": settings})
    git(place, "checkout", "-q", "-b", "work")
    return place


def proctor(repo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "proctor", *words], cwd=repo, capture_output=True, text=True, timeout=110
    )


@pytest.mark.slow
def test_a_branch_is_judged_and_its_receipt_runs_again(repo: Path, tmp_path: Path) -> None:
    """Text, JSON, JUnit and Markdown say the same; the receipt comes to the same; nothing is left in the repository."""
    commit(repo, "fix: keep the sign", MENDED)
    receipt, junit = tmp_path / "receipt.json", tmp_path / "junit.xml"
    done = proctor(repo, "check", "--json", "--receipt", str(receipt), "--junit", str(junit))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["kind"]) == ("proven", "fix")
    assert found["recorded"]["trace"]["hash"]
    assert Xml.fromstring(junit.read_text()).get("failures") == "0"
    assert "proven" in proctor(repo, "check", "--markdown").stdout
    again = proctor(repo, "receipt", "verify", str(receipt))
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "the same: the receipt says proven")
    shown = proctor(repo, "receipt", "show", str(receipt))
    assert "failed without the change and passes with it" in shown.stdout
    assert git(repo, "status", "--porcelain") == ""
    receipt.write_text(receipt.read_text().replace('"proven"', '"preserved"', 1))
    assert proctor(repo, "prove", str(receipt)).returncode == 7


@pytest.mark.slow
def test_exit_codes_say_refuted_and_inconclusive(repo: Path) -> None:
    """A hollow change ends with 1, an unproven one with 8, a wrong revision with 2."""
    write(repo, {"calc.py": NEW})
    assert proctor(repo, "check").returncode == 8
    write(repo, {"calc.py": OLD + "\n", "tests/test_calc.py": suite("double(2) == 4", "double(3) == 6")})
    refuted = proctor(repo, "check", "--uncommitted", "--kind", "fix")
    assert refuted.returncode == 1, refuted.stdout
    assert "pass without the change too" in refuted.stdout
    assert proctor(repo, "check", "no-such-branch").returncode == 2
    assert proctor(repo, "check", "HEAD", "--staged").returncode == 2


def test_a_fix_file_is_judged_fix_by_fix(repo: Path) -> None:
    """One true and one false claim: rows, receipts, the decision, and exit code 1."""
    commit(repo, "work", MENDED)
    true = _fix(
        1,
        {
            "verification_command": f"cd {repo} && {UNITTEST}",
            "hallucination_check": f"grep -q 'n \\* 2' {repo}/calc.py",
        },
    )
    false = _fix(
        2,
        {
            "changes_made": ["Added `retry()` to net.py"],
            "verification_command": "true",
            "hallucination_check": "true",
        },
    )
    _write_file(repo, "001_signs_fixes.json", [true, {**false, "severity": "critical", "file": "net.py"}])
    done = proctor(
        repo, "fixes", "verify", "orchestrator/incoming/001_signs_fixes.json", "--base", "main", "--json"
    )
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [row["verdict"] for row in found["fixes"]] == ["proven", "refuted"]
    assert all(Path(row["receipt"]).is_file() for row in found["fixes"])
    assert found["decision"]["action"] == "STOP_AND_ESCALATE"
    made = proctor(repo, "fixes", "followup", "001", "--json")
    carried = json.loads(Path(json.loads(made.stdout)["path"]).read_text())
    assert [(one["id"], one["previous_result"]["verdict"]) for one in carried["fixes"]] == [(2, "refuted")]


@pytest.mark.slow
def test_what_a_check_refutes_becomes_a_fix_file(repo: Path, tmp_path: Path) -> None:
    """The report of a hollow change, of a proven one, and of a fix file; lint is content with what comes out."""
    write(repo, {"calc.py": OLD.replace("* 2", "* 2 + 0"), "tests/test_calc.py": suite("double(2)")})
    report = tmp_path / "report.json"
    report.write_text(proctor(repo, "check", "--json").stdout)
    made = proctor(repo, "fixes", "new", "signs", "--from-check", str(report))
    assert made.returncode == 0, made.stderr
    (one, *_) = json.loads(Path(made.stdout.splitlines()[0]).read_text())["fixes"]
    assert (one["file"], one["line"]) == ("tests/test_calc.py", 6)
    assert "`double(2) == 4` became `double(2)`" in one["issue"]
    assert proctor(repo, "fixes", "lint", "001").returncode == 0
    git(repo, "checkout", "-q", ".")
    commit(repo, "fix: sign", MENDED)
    report.write_text(proctor(repo, "check", "HEAD", "--json").stdout)
    none = proctor(repo, "fixes", "new", "signs", "--from-check", str(report))
    assert (none.returncode, "Nothing in it is refuted" in none.stderr) == (4, True)


def _fix(number: int, result: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    head = {
        "id": number,
        "severity": "major",
        "file": "calc.py",
        "line": 2,
        "issue": "The sign is lost.",
        "fix": "Keep it.",
    }
    given = {"status": "FIXED", "changes_made": ["Line 2: `return n * 2`"], **result} if result else None
    return {**head, "verification": "Run the tests.", **more, **({"result": given} if given else {})}


def _write_file(repo: Path, name: str, fixes: list[dict[str, Any]], box: str = "incoming") -> Path:
    head = {"review_id": "001_signs", "component": "calc", "date": "2027-01-31", "assigned_to": "executor"}
    text = json.dumps({**head, "instructions": "Add a result to each fix.", "fixes": fixes}, indent=2)
    write(repo, {f"orchestrator/{box}/{name}": text})
    return repo / "orchestrator" / box / name


@pytest.fixture
def supervised(repo: Path) -> Iterator[Path]:
    """The repository; its supervisor is stopped afterwards."""
    yield repo
    stop_supervisor()


@pytest.mark.slow
def test_agents_work_on_a_file_and_their_claims_are_judged(supervised: Path) -> None:
    """One simulated agent mends it, one only says so: both results are in the file, one is proven, one refuted."""
    repo = supervised
    command = {
        "verification_command": f"cd {repo} && {UNITTEST}",
        "hallucination_check": f"grep -q 'n \\* 2' {repo}/calc.py",
    }
    answer = {"status": "FIXED", "changes_made": ["Line 2: `return n * 2`"], **command}
    honest = {
        "steps": [
            *[{"write": name, "content": text} for name, text in MENDED.items()],
            {"say": json.dumps(answer)},
        ]
    }
    hollow = {"steps": [{"write": "NOTES.md", "content": "fixed\n"}, {"say": json.dumps(answer)}]}
    silent = {"steps": [{"write": "x.txt", "content": "x\n"}, {"say": "All done!"}]}
    fixes = [
        _fix(n, None, fix=f"Keep it. SCRIPT:{json.dumps(script)}")
        for n, script in enumerate((honest, hollow, silent), 1)
    ]
    sent = _write_file(repo, "001_signs_fixes.json", fixes, "outgoing")
    ran = proctor(repo, "fixes", "run", str(sent), "--agent", "sim", "--wait", "90", "--json")
    assert ran.returncode == 0, ran.stderr
    file = repo / "orchestrator" / "incoming" / sent.name
    assert not sent.exists()
    results = [fix["result"] for fix in json.loads(file.read_text())["fixes"]]
    assert [result["status"] for result in results] == ["FIXED", "FIXED", "FAILED"]
    assert all(result["simulated"] for result in results)
    assert all("last_edit_at" in result and "last_test_run_at" not in result for result in results)
    done = proctor(repo, "fixes", "verify", str(file), "--base", "main", "--json")
    assert [row["verdict"] for row in json.loads(done.stdout)["fixes"]] == [
        "proven",
        "refuted",
        "inconclusive",
    ]
    assert "ran no test at all" in json.loads(done.stdout)["fixes"][0]["notes"][-1]
    assert git(repo, "status", "--porcelain") == "?? orchestrator/"


def _script(path: str, repo: Path, **env: str) -> subprocess.CompletedProcess[str]:
    import os

    words = [str(ROOT / "integrations" / path)]
    wrapper = repo.parent / "proctor"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -m proctor "$@"\n')
    wrapper.chmod(0o755)
    given = {**os.environ, "PATH": PATH, "PROCTOR": str(wrapper), **env}
    return subprocess.run(["bash", *words], cwd=repo, env=given, capture_output=True, text=True, timeout=110)


@pytest.mark.slow
def test_the_github_action_judges_a_pull_request(repo: Path, tmp_path: Path) -> None:
    """Summary and outputs are written; proven passes, refuted fails, and open only warns unless strict."""
    base = git(repo, "rev-parse", "HEAD")
    commit(repo, "fix", MENDED)
    out, summary = tmp_path / "out", tmp_path / "summary"
    env = {
        "INPUT_BASE": base,
        "INPUT_KIND": "fix",
        "GITHUB_OUTPUT": str(out),
        "GITHUB_STEP_SUMMARY": str(summary),
        "RUNNER_TEMP": str(tmp_path),
    }
    done = _script("github/check.sh", repo, **env)
    assert done.returncode == 0, done.stderr
    assert "verdict=proven" in out.read_text()
    assert "| **proven** |" in summary.read_text().replace("✓ ", "")
    commit(repo, "more", {"calc.py": NEW + "\n# nothing\n"})
    open_one = {**env, "INPUT_BASE": "HEAD~1"}
    assert _script("github/check.sh", repo, **open_one).returncode == 0
    assert _script("github/check.sh", repo, **open_one, INPUT_STRICT="true").returncode == 8


@pytest.mark.slow
def test_the_pre_commit_hook_stops_only_what_is_refuted(repo: Path) -> None:
    """A staged hollow change is stopped, an unproven one is warned about, a missing Proctor never blocks."""
    write(repo, {"calc.py": OLD + "\n", "tests/test_calc.py": suite("double(2) == 4", "double(3) == 6")})
    git(repo, "add", "--all")
    assert _script("pre-commit/check.sh", repo).returncode == 1
    git(repo, "reset", "-q", "--hard")
    write(repo, {"calc.py": NEW})
    git(repo, "add", "--all")
    warned = _script("pre-commit/check.sh", repo)
    assert (warned.returncode, "not proven" in warned.stderr) == (0, True)
    assert _script("pre-commit/check.sh", repo, PROCTOR="/no/such/proctor").returncode == 0
