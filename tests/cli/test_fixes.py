"""`proctor fixes` and `proctor standards` from the outside: files, sentences, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from tests.proof.seed import RESULT, fix, fix_file, text_of

ONE = (
    "--file", "core/handler.py", "--line", "85-92", "--severity", "major",
    "--issue", "WebSocket disconnect leaves orphaned processes",
    "--fix", "Call process.terminate() in a finally block of handle()",
    "--verification", "Run pytest tests/test_handler.py; it must pass",
)  # fmt: skip


@pytest.fixture
def root(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace to stand in."""
    place = tmp_path / "project"
    (place / "core").mkdir(parents=True)
    (place / "core" / "handler.py").write_text("x = 1\n" * 100)
    (place / "proctor.toml").write_text("")
    monkeypatch.chdir(place)
    return place


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command and give exit code, output and errors."""
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out, said.err


def answered(root: Path, name: str, *fixes: dict[str, Any]) -> Path:
    """A file that came back."""
    path = root / "orchestrator" / "incoming" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(fix_file(*fixes)))
    return path


def test_a_fix_file_is_made_linted_listed_and_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The way out, with the next number each time."""
    code, out, _ = run(capsys, "fixes", "new", "websocket_reliability", *ONE)
    path = root / "orchestrator" / "outgoing" / "001_websocket_reliability_fixes.json"
    assert (code, out) == (0, f"{path}\n")
    assert json.loads(path.read_text())["review_id"] == "001_websocket_reliability"
    assert run(capsys, "fixes", "new", "other", *ONE)[1].endswith("002_other_fixes.json\n")
    assert run(capsys, "fixes", "lint")[0] == 0
    assert "0/1" in run(capsys, "fixes", "list")[1]
    code, out, _ = run(capsys, "fixes", "show", "001")
    assert code == 0
    assert "core/handler.py:85-92  not answered" in out
    listed = json.loads(run(capsys, "fixes", "list", "--json")[1])
    assert [row["name"] for row in listed] == ["001_websocket_reliability_fixes.json", "002_other_fixes.json"]


def test_fixes_come_from_a_list(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A JSON list is taken; a bad one writes nothing."""
    (root / "list.json").write_text(json.dumps([fix(file="core/handler.py", line=3)]))
    assert run(capsys, "fixes", "new", "x", "--fixes", "list.json", "--json")[0] == 0
    (root / "list.json").write_text(json.dumps([fix(severity="high")]))
    code, _, err = run(capsys, "fixes", "new", "y", "--fixes", "list.json")
    assert code == 2
    assert "fixes[0].severity" in err
    assert len(list((root / "orchestrator" / "outgoing").iterdir())) == 1


def test_fixes_come_from_a_review(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the review does not say is asked for; one that names no place writes nothing."""
    (root / "review.md").write_text("- [major] core/handler.py:9: disconnect() leaves the process\n")
    code, out, _ = run(capsys, "fixes", "new", "handler", "--from-review", "review.md")
    assert code == 0
    assert "fix 1: verification: say how to test it" in out
    assert run(capsys, "fixes", "lint", "001")[0] == 1
    (root / "review.md").write_text("- it is all bad\n")
    code, _, err = run(capsys, "fixes", "new", "handler", "--from-review", "review.md")
    assert code == 2
    assert "line 1: item: file: no `file:line`" in err
    (root / "binary").write_bytes(b"\0\1")
    assert run(capsys, "fixes", "new", "handler", "--from-review", "binary")[0] == 2
    assert len(list((root / "orchestrator" / "outgoing").iterdir())) == 1


def test_a_followup_says_when_nothing_was_judged(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a verdict of this very text only the executor's own words count, and that is said."""
    failed = {**RESULT, "status": "FAILED", "finding": "no server"}
    answered(root, "005_stress_test_system_fixes.json", fix(id=2, result=failed))
    code, _, err = run(capsys, "fixes", "followup", "005")
    assert code == 0
    assert "was not judged here" in err


@pytest.mark.parametrize(
    "words",
    [
        ("x",),
        ("x", "--from-check", "a", "--from-review", "b"),
        ("x", "--from-standards", "--fixes", "a.json"),
        ("Not Snake", *ONE),
        ("../x", *ONE),
    ],
)
def test_wrong_orders_write_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Nothing said, too much said, a wrong focus area."""
    assert run(capsys, "fixes", "new", *words)[0] == 2
    assert not list(root.glob("orchestrator/outgoing/*"))


def test_lint_names_line_and_cure_and_mends_what_is_safe(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors are exit code 1; --fix rewrites the file and only what is safe."""
    bad = fix(
        file="core/handler.py",
        line=9,
        severity="Critical",
        result={**RESULT, "hallucination_check": "grep -q x /r/a || true"},
    )
    path = answered(root, "005_stress_test_system_fixes.json", bad)
    code, out, _ = run(capsys, "fixes", "lint", str(path))
    assert code == 1
    assert "fixes[0].severity" in out
    code, out, _ = run(capsys, "fixes", "lint", "005", "--fix")
    assert "mended: fixes[0].severity" in out
    assert code == 0
    assert '"hallucination_check": "grep -q x /r/a"' in path.read_text()
    found = json.loads(run(capsys, "fixes", "lint", "005", "--json")[1])
    assert found["files"][str(path)] == []


def test_bad_files_are_one_sentence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken file is refused by show and followup, and listed with its problem."""
    answered(root, "005_a_fixes.json").write_text('{"tasks": []}')
    for command in ("show", "followup"):
        code, _, err = run(capsys, "fixes", command, "005")
        assert code == 2
        assert "rename the list to fixes" in err
    assert "rename the list" in run(capsys, "fixes", "list")[1]
    assert run(capsys, "fixes", "show", "099")[0] == 4


def test_a_followup_carries_what_is_open(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same review, the next number, the file before named."""
    failed = {**RESULT, "status": "FAILED", "finding": "no server"}
    answered(root, "005_stress_test_system_fixes.json", fix(id=1, result=RESULT), fix(id=2, result=failed))
    code, out, _ = run(capsys, "fixes", "followup", "005")
    made = json.loads(Path(out.strip()).read_text())
    assert (code, Path(out.strip()).name) == (0, "006_stress_test_system_fixes.json")
    assert (made["review_id"], made["previous_file"]) == (
        "005_stress_test_system",
        "005_stress_test_system_fixes.json",
    )
    assert [one["id"] for one in made["fixes"]] == [2]
    answered(root, "007_done_fixes.json", fix(result=RESULT))
    assert run(capsys, "fixes", "followup", "007")[0] == 4


def test_standards_are_checked_in_every_form(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Off, then text, JSON, SARIF and a fix file; from below the root too."""
    code, _, err = run(capsys, "standards", "check")
    assert code == 2
    assert "max_lines = 500" in err
    (root / "proctor.toml").write_text("[standards]\nmax_lines = 50\nheader = true\n")
    code, out, _ = run(capsys, "standards", "check", "core/handler.py")
    assert code == 1
    assert "core/handler.py:51: The file has 100 lines" in out
    assert json.loads(run(capsys, "standards", "check", "--json")[1])["count"] == 2
    assert json.loads(run(capsys, "standards", "check", "--sarif")[1])["version"] == "2.1.0"
    code, out, _ = run(capsys, "standards", "check", "--fix-file")
    assert Path(out.strip()).name == "001_code_standards_fixes.json"
    assert run(capsys, "fixes", "lint", "001")[0] == 0
    assert run(capsys, "fixes", "new", "standards", "--from-standards")[0] == 0
    assert run(capsys, "standards", "check", "/etc")[0] == 2
    (root / "core" / "handler.py").write_text('"""Short."""\n')
    assert run(capsys, "standards", "check")[:2] == (0, "All files keep the standards that are set.\n")
