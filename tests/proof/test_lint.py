"""Task files and commands are linted: the contract's good examples pass, its bad ones do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.command_lint import fix_command, lint_command, proves_nothing
from proctor.proof.findings import Weight
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.lint import lint_document, lint_name
from proctor.proof.mend import INSTRUCTIONS, fix, mend
from tests.proof.seed import BAD, RESULT, SECOND, fix_file, text_of
from tests.proof.seed import fix as a_fix


def codes(*fixes: dict[str, Any], root: Path | None = None, **members: Any) -> set[str]:
    """The codes of all findings about some fixes."""
    return {
        one.code for one in lint_document(parse_fix_file(text_of(fix_file(*fixes, **members))), root=root)
    }


def test_the_contracts_good_examples_pass() -> None:
    """Both good examples are without any finding."""
    assert codes(a_fix()) == set()
    assert codes(SECOND) == set()
    assert codes() == set()


def test_the_contracts_bad_example_is_found() -> None:
    """Messy code that is to be cleaned up is vague twice, with a cure and a line."""
    found = lint_document(parse_fix_file(text_of(fix_file(a_fix(**BAD)))))
    assert {"fix.vague-issue", "fix.vague-fix"} <= {one.code for one in found}
    assert all(one.cure and one.sentence and one.line > 1 for one in found)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"fix": "Improve things"}, "fix.vague-fix"),
        ({"fix": "Fix the bug"}, "fix.vague-fix"),
        ({"issue": "broken"}, "fix.vague-issue"),
        ({"fix": "Refactor the handler module"}, "fix.refactoring"),
        ({"fix": "Rewrite the whole handler from scratch"}, "fix.architecture"),
        ({"fix": "Migrate storage to microservices"}, "fix.architecture"),
        ({"verification": "Test it"}, "fix.verification"),
        ({"verification": "Make sure it works"}, "fix.verification"),
        ({"issue": "Orphaned processes", "verification": "No orphans remain"}, "fix.reproduction"),
        ({"fix": "Add finally block", "verification": "Start long process twice"}, "fix.expected"),
        ({"issue": "Typo in docstring of handler"}, "fix.severity"),
        (
            {"severity": "minor", "issue": "Handler crashes on disconnect and data loss follows"},
            "fix.severity",
        ),
        ({"file": "path/to/file.py"}, "fix.placeholder"),
        ({"fix": "TODO describe finally block"}, "fix.placeholder"),
        ({"verification": "How to test that the fix works"}, "fix.placeholder"),
    ],
)
def test_each_weakness_of_a_task_has_its_finding(members: dict[str, Any], code: str) -> None:
    """Vague, refactoring without goal, architecture, no verification, no steps, no expectation, severity, placeholder."""
    assert code in codes(a_fix(**members))


@pytest.mark.parametrize(
    "members",
    [
        {"fix": "Refactor handle() into two functions so that terminate() is called on every path"},
        {"fix": "Improve the error message of parse_date() to name the wrong field"},
        {"severity": "minor", "issue": "Comment above crash handler in main.py has a typo"},
    ],
)
def test_precise_sentences_may_use_soft_words(members: dict[str, Any]) -> None:
    """A word is vague only where nothing concrete stands beside it."""
    assert codes(a_fix(**members)) == set()


def test_unrelated_fixes_are_told_apart() -> None:
    """Two matters in one file are a finding, two fixes of one matter are not."""
    other = a_fix(id=2, file="billing/invoice.py", issue="Rounding of VAT loses cents", fix="Use Decimal in total_price()",
                  verification="Run pytest billing and check that total is 10.01")  # fmt: skip
    assert "file.bundle" in codes(a_fix(), other)
    assert "file.bundle" not in codes(a_fix(), a_fix(id=2, file="core/process_pool.py"))


def test_files_and_lines_are_looked_up(tmp_path: Path) -> None:
    """A line after the end is an error, a file that is not there a warning unless it is to be made."""
    (tmp_path / "core").mkdir()
    assert "fix.file" in codes(a_fix(fix="Call process.terminate() in finally block"), root=tmp_path)
    (tmp_path / "core" / "websocket_handler.py").write_text("x\n" * 10)
    assert "fix.line" in codes(a_fix(), root=tmp_path)
    assert codes(a_fix(line=5), root=tmp_path) == set()


def test_results_are_linted_with_their_commands() -> None:
    """A placeholder path in a check is found at its line."""
    document = parse_fix_file(text_of(fix_file(a_fix(result=RESULT))))
    (found,) = lint_document(document)
    assert (found.code, found.place) == ("command.placeholder", "fix 1: result.hallucination_check")
    assert "hallucination_check" in document.text.splitlines()[found.line - 1]


@pytest.mark.parametrize(
    ("name", "review", "found"),
    [
        ("005_stress_test_system_fixes.json", "005_stress_test_system", []),
        ("006_stress_test_system_fixes.json", "005_stress_test_system", ["file.review-id"]),
        ("0005_x_fixes.json", None, ["file.name"]),
        ("005_x_review_request.json", None, ["file.name"]),
    ],
)
def test_names_are_linted(name: str, review: str | None, found: list[str]) -> None:
    """Naming rule and review id belong together in the first file of a cycle."""
    assert [one.code for one in lint_name(name, review)] == found
    assert lint_name("006_x_fixes.json", "005_x", follow_up=True) == []


ITEM_51 = [
    ("pytest -q /r || true", "command.never-fails"),
    ("grep foo /r/b.py || echo missing", "command.never-fails"),
    ("grep foo /r/b.py || :", "command.never-fails"),
    ("test -f /r/a && echo PASS || echo FAIL", "command.never-fails"),
    ("if grep -q x /r/a; then echo PASS; else echo FAIL; fi", "command.never-fails"),
    ("bash -c 'pytest /r || true'", "command.never-fails"),
    ("echo done", "command.never-fails"),
    ("exit 0", "command.never-fails"),
    ("sed -n '10,20p' /r/a.py", "command.only-shows"),
    ("cat /r/a.py", "command.only-shows"),
    ("git -C /r log -1", "command.only-shows"),
    ("timeout 5 tail /r/log", "command.only-shows"),
    ("pytest /r/tests | head -5", "command.hides"),
    ("pytest /r/tests 2>&1 | tail -3", "command.hides"),
    ("grep -c x /r/a | wc -l", "command.hides"),
    ("pytest /r/tests; true", "command.hides"),
    ("pytest /r/tests; echo $?", "command.hides"),
    ("pytest /r/tests &", "command.hides"),
    ("pytest /r/a; grep -q x /r/b", "command.sequence"),
    ("cd /r\npytest", "command.lines"),
    ("grep -q 'x /r/a", "command.syntax"),
    ("if true; then", "command.syntax"),
    ("python3 -c \"import x; if x: print(1)\"", "command.syntax"),
    ("python -c 'for i in range(3): print(i'", "command.syntax"),
    ("pytest tests/test_a.py", "command.directory"),
    ("grep -q x src/a.py", "command.directory"),
    ("make test", "command.directory"),
    ("./run.sh", "command.directory"),
    ("python3 scripts/check.py", "command.directory"),
    ("curl -f https://example.org/x", "command.network"),
    ("cd /r && git pull", "command.network"),
    ("cd /r && pip install -q x", "command.network"),
    ("cd /r && touch marker && test -f marker", "command.writes"),
    ("cd /r && sed -i s/a/b/ a.py", "command.writes"),
    ("cd /r && pytest > out.txt", "command.writes"),
    ("cd /r && git checkout -q main", "command.writes"),
    ("", "command.empty"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "code"), ITEM_51)
def test_item_51_commands_that_tell_nothing_are_found(command: str, code: str) -> None:
    """Cannot fail, hides its status, is broken, depends on the directory: each with its cure."""
    found = {one.code: one for one in lint_command(command)}
    assert code in found
    assert found[code].cure


@pytest.mark.parametrize(
    "command",
    [
        RESULT["verification_command"],
        "cd /r && pytest -q tests/test_a.py",
        "grep -A5 'finally:' /r/handler.py | grep -q 'terminate'",
        "! grep -q bad /r/a.py",
        'test "$(wc -l < /r/a.py)" -lt 500',
        "[ -f /r/a ] && grep -q x /r/a",
        "python3 -c 'import sys; sys.path.insert(0, \"/r\"); import a; assert a.f(2) == 4'",
        "set -euo pipefail; cd /r; pytest -q | tail -3",
        "cd /r && node --test",
        "curl -fs http://localhost:8003/health",
        "diff <(python3 /r/a.py) /r/expected.txt",
        "cd /r && pytest -q tests > /tmp/out.txt 2>&1",
        "grep -q x /r/a || exit 1",
    ],
)
def test_honest_commands_are_without_errors(command: str) -> None:
    """What can fail and says so is left alone."""
    assert [one for one in lint_command(command) if one.weight is Weight.ERROR] == []
    assert proves_nothing(command) is None
    assert fix_command(command) == command


@pytest.mark.parametrize(
    ("command", "better"),
    [
        ("pytest -q /r || true", "pytest -q /r"),
        ("pytest -q /r 2>&1 | tail -5", "pytest -q /r 2>&1"),
        ("grep x /r/a | wc -l", "grep x /r/a"),
        ("pytest /r; echo $?", "pytest /r"),
        ("pytest /r &", "pytest /r"),
        ("cd /r\npytest", "cd /r && pytest"),
        ("cat /r/a", "cat /r/a"),
    ],
)
def test_safe_cures_are_applied(command: str, better: str) -> None:
    """Only what swallows the status goes; what is checked stays."""
    assert fix_command(command) == better
    assert fix_command(better) == better


def test_a_command_is_rooted_on_demand() -> None:
    """With a root, what depends on the directory enters it first."""
    assert fix_command("pytest -q", root="/my repo") == "cd '/my repo' && pytest -q"
    assert "command.directory" not in {one.code for one in lint_command(fix_command("make test", root="/r"))}


_PIECES = [
    "grep",
    "||",
    "true",
    "|",
    "head",
    "'",
    '"',
    "(",
    ")",
    ";",
    "&",
    "<<E",
    "\n",
    "$(",
    "python -c",
    "\x00",
    "\ud800",
]


@given(st.text(max_size=60) | st.lists(st.sampled_from(_PIECES), max_size=10).map(" ".join))
def test_the_lint_of_commands_never_crashes(text: str) -> None:
    """Any text has findings or none; mending is settled after one turn."""
    assert isinstance(lint_command(text), list)
    assert fix_command(fix_command(text)) == fix_command(text)


_said = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() != "")


@given(_said, _said, _said, st.sampled_from(["critical", "major", "minor"]))
def test_the_lint_of_tasks_never_crashes(issue: str, change: str, verification: str, severity: str) -> None:
    """Any words make findings, each with code, sentence and cure."""
    text = text_of(fix_file(a_fix(issue=issue, fix=change, verification=verification, severity=severity)))
    assert all(one.code and one.sentence and one.cure for one in lint_document(parse_fix_file(text)))


def test_mending_changes_only_what_is_safe() -> None:
    """Letter case, instructions and commands are mended; a second turn finds nothing."""
    result = {**RESULT, "status": "fixed", "verification_command": "pytest /r || true"}
    text = text_of(
        fix_file(a_fix(severity="Critical", result=result, note="Critical"), instructions="Do it.")
    )
    mended, done = mend(text)
    assert len(done) == 4
    expected = text.replace('"severity": "Critical"', '"severity": "critical"').replace('"fixed"', '"FIXED"')
    assert mended == expected.replace("Do it.", f"Do it. {INSTRUCTIONS}").replace(" || true", "")
    assert fix(mended) == mended
    assert fix("no json") == "no json"
