"""Fix files judged: each by its own commands and its own part of the change, side by side, and kept in receipts."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proctor.config import load_settings
from proctor.proof.again import run_again
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.judgement import Word
from proctor.proof.kinds import Kind
from proctor.proof.legs import Legs
from proctor.proof.receipt import ReceiptError, canonical, digest_of, load_receipt
from proctor.proof.record import Recorder, write_receipt
from proctor.proof.verify import FixJudgement
from proctor.proof.workbench import Wish, Workbench
from proctor.protocol.errors import IntegrityError
from proctor.protocol.permits import Permit
from proctor.store.database import Database
from proctor.trace.reader import stream
from proctor.trace.redact import Redactor
from proctor.trace.writer import TraceWriter
from tests.proof.many import bench_of, expected, many_fixes
from tests.proof.repos import PATH, commit, git, new_repo, permits_for_proofs, write

KEY = b"k" * 32
SOURCE = "A = {a}\n# one\n# two\n# three\n# four\n# five\n# six\n# seven\nB = {b}\n"


def fix(number: int, line: int, command: str, check: str = "true", **more: Any) -> dict[str, Any]:
    """One fix with its result."""
    result: dict[str, Any] = {
        "status": "FIXED",
        "verification_command": command,
        "hallucination_check": check,
    }
    result |= more.pop("result", {})
    if result["status"] in {"FIXED", "PARTIALLY_FIXED"}:
        result.setdefault("changes_made", [f"Line {line}: changed"])
    else:
        result.setdefault("finding", "It was so.")
    head = {
        "id": number,
        "severity": "major",
        "file": "calc.py",
        "line": line,
        "issue": "It is wrong.",
        "fix": "Mend it.",
    }
    return {**head, "verification": "Run it.", **more, "result": result}


def document(*fixes: dict[str, Any]) -> Any:
    """A fix file with these fixes."""
    head = {
        "review_id": "001_x",
        "component": "x",
        "date": "2027-01-31",
        "assigned_to": "executor",
        "instructions": "Do.",
    }
    return parse_fix_file(json.dumps({**head, "fixes": list(fixes)}), "001_x_fixes.json")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two values that were wrong and are right now."""
    place = new_repo(tmp_path / "repo", {"calc.py": SOURCE.format(a=1, b=1)})
    commit(place, "both", {"calc.py": SOURCE.format(a=2, b=2)})
    return place


def bench(repo: Path, home: Path) -> Workbench:
    """A workbench with permits for tests."""
    settings = load_settings(repo, {"HOME": str(home), "PATH": PATH})
    return Workbench(settings, repo, permits_for_proofs, seconds=60, slots=2)


def says(repo: Path, name: str, value: int) -> str:
    """A command that asks for one value, from any directory."""
    return f'{sys.executable} -c "import sys; sys.path.insert(0, {str(repo)!r}); import calc; assert calc.{name} == {value}"'


async def verified(
    repo: Path, tmp_path: Path, *fixes: dict[str, Any], base: str | None = "HEAD~1"
) -> list[FixJudgement]:
    """Judge a file of these fixes."""
    return await bench(repo, tmp_path / "home").verify(document(*fixes), base=base)


async def test_each_fix_is_judged_by_its_own_hunk(repo: Path, tmp_path: Path) -> None:
    """Two fixes in one file: each check fails again when only its own lines are taken back."""
    one = fix(1, 1, says(repo, "A", 2), f"grep -q 'A = 2' {repo}/calc.py")
    two = fix(2, 9, says(repo, "B", 2), f"grep -q 'B = 2' {repo}/calc.py")
    wrong = fix(3, 9, says(repo, "A", 2), f"grep -q 'B = 2' {repo}/calc.py")
    found = await verified(repo, tmp_path, one, two)
    assert [each.judgement.word for each in found] == [Word.PROVEN, Word.PROVEN]
    crossed = await verified(repo, tmp_path, one, wrong)
    assert crossed[1].judgement.word is Word.REFUTED
    assert crossed[1].ruling.rule == "green-reverted"


async def test_a_fix_may_name_its_own_commit(tmp_path: Path) -> None:
    """The commit's own change is taken back; one that does not exist cannot be isolated."""
    place = new_repo(tmp_path / "repo", {"calc.py": SOURCE.format(a=1, b=1)})
    first = commit(place, "A", {"calc.py": SOURCE.format(a=2, b=1)})
    commit(place, "B", {"calc.py": SOURCE.format(a=2, b=2)})
    good = fix(1, 9, says(place, "A", 2), result={"commit": first})
    gone = fix(2, 9, says(place, "B", 2), result={"commit": "f" * 40})
    found = await verified(place, tmp_path, good, gone, base="HEAD~2")
    assert found[0].judgement.word is Word.PROVEN
    assert found[1].judgement.word is Word.INCONCLUSIVE
    assert any("does not exist" in note for note in found[1].notes)


async def test_lines_that_two_fixes_share_cannot_be_isolated(repo: Path, tmp_path: Path) -> None:
    """A doubt stays a doubt."""
    found = await verified(repo, tmp_path, fix(1, 1, says(repo, "A", 2)), fix(2, 1, says(repo, "A", 2)))
    assert {each.judgement.word for each in found} == {Word.INCONCLUSIVE}


@pytest.mark.parametrize(
    ("result", "command", "word"),
    [
        ({"status": "NO_CHANGE_NEEDED"}, "test -f {repo}/calc.py", Word.PROVEN),
        ({"status": "ALREADY_IMPLEMENTED"}, "grep -q 'A = 2' {repo}/calc.py", Word.REFUTED),
        ({"status": "PARTIALLY_FIXED"}, "grep -q 'A = 2' {repo}/calc.py", Word.INCONCLUSIVE),
        ({"status": "FAILED"}, "grep -q 'A = 2' {repo}/calc.py", Word.INCONCLUSIVE),
        ({"status": "FIXED"}, "test -d /nowhere || true", Word.INCONCLUSIVE),
        ({"status": "FIXED"}, "no-such-program", Word.INCONCLUSIVE),
        ({"status": "FIXED"}, "grep -q 'A = 3' {repo}/calc.py", Word.REFUTED),
        ({"status": "FIXED", "hallucination_check": "grep -q 'A = 7' {repo}/calc.py"},
         "grep -q 'A = 2' {repo}/calc.py", Word.REFUTED),
        ({"status": "FIXED", "changes_made": ["Added `terminate()` to other.py"]},
         "grep -q 'A = 2' {repo}/calc.py", Word.REFUTED),
    ],
)  # fmt: skip
async def test_the_table_decides(
    repo: Path, tmp_path: Path, result: dict[str, Any], command: str, word: Word
) -> None:
    """Every status comes to the verdict the table documents."""
    filled = {
        name: value.replace("{repo}", str(repo)) if isinstance(value, str) else value
        for name, value in result.items()
    }
    found = await verified(repo, tmp_path, fix(1, 1, command.replace("{repo}", str(repo)), result=filled))
    assert found[0].judgement.word is word, found[0].ruling


async def test_without_git_both_commands_run_and_it_stays_open(tmp_path: Path) -> None:
    """No base to compare with: the exit codes are there, and nothing in the directory is touched."""
    place = tmp_path / "plain"
    write(place, {"calc.py": SOURCE.format(a=2, b=2)})
    command = f"grep -q 'A = 2' {place}/calc.py"
    found = await verified(place, tmp_path, fix(1, 1, command, "exit 3"), base=None)
    assert found[0].ruling.rule == "no-base"
    assert [leg.ran[0].exit_code for leg in found[0].judgement.legs] == [0, 3]
    assert [path.name for path in place.iterdir()] == ["calc.py"]


async def test_uncommitted_fixes_are_judged_against_head(tmp_path: Path) -> None:
    """The fix file itself and the exchange directories are no work."""
    place = new_repo(tmp_path / "repo", {"calc.py": SOURCE.format(a=1, b=1)})
    write(place, {"calc.py": SOURCE.format(a=2, b=1), "orchestrator/incoming/001_x_fixes.json": "{}"})
    work = bench(place, tmp_path / "home")
    found = await work.verify(document(fix(1, 1, says(place, "A", 2))), base=None, ignore=["orchestrator"])
    assert found[0].judgement.word is Word.PROVEN
    assert "orchestrator" not in " ".join(found[0].judgement.subject.label)


@pytest.mark.slow
async def test_many_fixes_run_side_by_side_without_cross_talk(tmp_path: Path) -> None:
    """Forty fixes, half of them right; each command leaves a mark that no other may see."""
    names = [f"f{n}.txt" for n in range(40)]
    place = new_repo(tmp_path / "repo", dict.fromkeys(names, "old\n"))
    commit(place, "new", {name: "new\n" if n % 2 else "other\n" for n, name in enumerate(names)})
    mark = f"test ! -e {place}/mark && touch {place}/mark"
    fixes = [
        fix(n, 1, f"{mark} && grep -q new {place}/{name}", f"test -s {place}/{name}", file=name)
        for n, name in enumerate(names)
    ]
    found = await verified(place, tmp_path, *fixes)
    words = [each.judgement.word for each in found]
    assert words == [Word.PROVEN if n % 2 else Word.REFUTED for n in range(40)]


async def test_a_newly_red_suite_is_only_its_own_fixes_doing(tmp_path: Path) -> None:
    """The guard finds which fix broke the suite; the other stays proven."""
    files = {
        "calc.py": "A = 1\n",
        "other.py": "B = 1\n",
        "proctor.toml": "[project]\ntest = \"grep -q 'B = 1' other.py\"\n",
    }
    place = new_repo(tmp_path / "repo", files)
    commit(place, "both", {"calc.py": "A = 2\n", "other.py": "B = 2\n"})
    good = fix(1, 1, f"grep -q 'A = 2' {place}/calc.py")
    bad = fix(2, 1, f"grep -q 'B = 2' {place}/other.py", file="other.py")
    found = await verified(place, tmp_path, good, bad)
    assert [each.judgement.word for each in found] == [Word.PROVEN, Word.REFUTED]
    assert found[1].ruling.rule == "newly-red"


async def test_a_receipt_comes_to_the_same_elsewhere_and_differs_only_in_times(
    repo: Path, tmp_path: Path, sqlite_database: Database
) -> None:
    """Two runs give one digest; a clone of the repository runs it again; an altered one is refused."""
    writer = TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY))
    made = []
    for number in range(2):
        work = bench(repo, tmp_path / f"home{number}")
        recorder = Recorder(writer, tmp_path / f"receipts{number}", work.trees, str)
        found = (await work.verify(document(fix(1, 1, says(repo, "A", 2))), base="HEAD~1"))[0]
        made.append(recorder.record(found.judgement, trace_id="t", more=found.facts()))
    writer.close()
    (first, place), (second, _) = made
    assert first["digest"] == second["digest"]
    assert canonical({k: v for k, v in first.items() if k != "recorded"}) == canonical(
        {k: v for k, v in second.items() if k != "recorded"}
    )
    events = [event for event in stream(sqlite_database, "t") if event.event == "proof_judged"]
    assert events[0].details["digest"] == first["digest"]
    assert first["recorded"]["trace"]["hash"] == events[0].hash
    git(tmp_path, "clone", "-q", str(repo), str(tmp_path / "clone"))
    repo.rename(tmp_path / "gone")
    assert str(repo) not in place.read_text()
    work = bench(tmp_path / "clone", tmp_path / "elsewhere")
    again = await run_again(load_receipt(place), work.trees, Legs(work.runner))
    assert again.word is Word.PROVEN, again.reasons
    forged = {**first, "verdict": "refuted"}
    write_receipt(forged, tmp_path / "forged.json")
    with pytest.raises(IntegrityError):
        load_receipt(tmp_path / "forged.json")
    lying = {
        **first,
        "legs": [{**leg, "runs": [{**run, "exit_code": 0} for run in leg["runs"]]} for leg in first["legs"]],
    }
    lying["digest"] = digest_of(lying)
    refuted = await run_again(lying, work.trees, Legs(work.runner))
    assert refuted.word is Word.REFUTED


async def test_work_that_was_not_committed_travels_with_its_receipt(
    tmp_path: Path, sqlite_database: Database
) -> None:
    """The patch makes the same trees in a repository that has only the base."""
    files = {
        "calc.py": "A = 1\n",
        "test_all.sh": "grep -q 'A = 1' calc.py\n",
        "proctor.toml": '[project]\ntest = "bash test_all.sh"\n',
    }
    place = new_repo(tmp_path / "repo", files)
    other = new_repo(tmp_path / "unrelated", {"x": "y\n"})
    write(
        place,
        {"calc.py": "A = 2\n", "test_all.sh": "grep -q 'A = [12]' calc.py && grep -q 'A = 2' calc.py\n"},
    )
    work = bench(place, tmp_path / "home")
    found = await work.check(Wish(kind=Kind.FIX))
    with TraceWriter(sqlite_database, key=KEY, redactor=Redactor(key=KEY)) as writer:
        receipt, _ = Recorder(writer, tmp_path / "receipts", work.trees, str).record(found)
    write(place, dict(files))
    fresh = bench(place, tmp_path / "home2")
    again = await run_again(receipt, fresh.trees, Legs(fresh.runner))
    assert again.word is Word.PROVEN, again.reasons
    foreign = bench(other, tmp_path / "home3")
    assert (await run_again(receipt, foreign.trees, Legs(foreign.runner))).word is Word.INCONCLUSIVE


def test_what_is_no_receipt_is_named(tmp_path: Path) -> None:
    """Binary, other JSON and missing members each get one sentence."""
    for content in (b"\xff\x00", b"[]", b'{"schema": "urn:proctor:receipt:1"}'):
        place = tmp_path / "x.json"
        place.write_bytes(content)
        with pytest.raises(ReceiptError):
            load_receipt(place)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_hundred_fixes_are_judged_side_by_side_and_each_by_itself(tmp_path: Path) -> None:
    """Every verdict, receipt fact and trace belongs to its own fix; at most as many commands at once as checkouts."""
    repo, file = many_fixes(tmp_path, 200)
    now = most = 0

    @contextlib.asynccontextmanager
    async def counted(command: str, *, workspace: Path, seconds: float) -> AsyncIterator[Permit]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        async with permits_for_proofs(command, workspace=workspace, seconds=seconds) as permit:
            yield permit
        now -= 1

    found = await bench_of(repo, tmp_path / "home", 2, counted).verify(file, base="HEAD~1")
    assert {one.fix.id: one.judgement.word.value for one in found} == expected(200)
    assert most == 2
    assert len({one.trace_id for one in found}) == 200
    for one in found:
        own = f"/m/{one.fix.id}.txt"
        checks = [ran.command for leg in one.judgement.legs for ran in leg.ran if "/m/" in ran.command]
        assert all(own in command for command in checks)
        assert one.facts()["fix"]["file"] == own[1:]


async def test_a_comment_is_no_fix_of_code(repo: Path, tmp_path: Path) -> None:
    """A search for what was written finds it, and the code does what it did; only a fix that asks for text is served."""
    commit(repo, "words", {"calc.py": SOURCE.format(a=2, b=2).replace("# one", "# all items are counted")})
    told = f"grep -q 'all items' {repo}/calc.py"
    hollow = fix(1, 2, told, told, issue="A gives the wrong sum.", fix="Count all items.")
    honest = fix(
        1, 2, told, told, issue="A has no comment.", fix="Say in a comment that all items are counted."
    )
    words = [(await verified(repo, tmp_path, one))[0].judgement for one in (hollow, honest)]
    assert [one.word for one in words] == [Word.INCONCLUSIVE, Word.PROVEN]
    assert "only comments" in words[0].reasons[0]


async def test_item_52_commands_of_others_are_tried_from_two_directories_and_write_nothing_here(
    repo: Path, tmp_path: Path
) -> None:
    """One that needs the directory is told so; what it writes or removes is gone with its own checkout."""
    wreck = "grep -q 'A = 2' calc.py && rm -rf calc.py .git && : > made.txt"
    found = await verified(repo, tmp_path, fix(1, 1, wreck), fix(2, 9, says(repo, "B", 2)))
    assert [one.judgement.word for one in found] == [Word.PROVEN, Word.PROVEN]
    assert any("depends on the directory" in note for note in found[0].notes)
    assert not any("depends on the directory" in note for note in found[1].notes)
    assert (repo / "calc.py").read_text() == SOURCE.format(a=2, b=2)
    assert not (repo / "made.txt").exists()
