"""Judging changes by their legs: each guarantee of the ladder, seen on a real repository."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from proctor.config import load_settings
from proctor.proof.judgement import Judgement, Word, exit_code_of
from proctor.proof.kinds import Kind
from proctor.proof.workbench import Wish, Workbench
from proctor.sandbox import probe
from proctor.sandbox.spec import Level, LevelUnavailableError
from tests.proof.repos import PATH, commit, git, new_repo, permits_for_proofs, write
from tests.sandbox.conftest import need

Files = Mapping[str, str | None]
UNITTEST = f"{sys.executable} -m unittest discover -v -s tests -t ."
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
OLD = "def double(n):\n    return n + n if n > 0 else 0\n"
NEW = "def double(n):\n    return n + n\n"


def suite_of(*rows: str) -> str:
    """A test file with one assertion per row; itself no test."""
    lines = ["import unittest", "from calc import double", "", "class T(unittest.TestCase):"]
    for number, row in enumerate(rows):
        lines += [f"    def test_{number}(self):", f"        assert {row}"]
    return "\n".join(lines) + "\n"


BASE: Files = {"calc.py": OLD, "tests/__init__.py": "", "tests/test_calc.py": suite_of("double(2) == 4")}
MENDED: Files = {"calc.py": NEW, "tests/test_calc.py": suite_of("double(2) == 4", "double(-2) == -4")}


def bench(repo: Path, home: Path, *, level: Level | None = None) -> Workbench:
    """A workbench as the command line makes it, with permits for tests."""
    settings = load_settings(repo, {"HOME": str(home), "PATH": PATH})
    return Workbench(settings, repo, permits_for_proofs, seconds=60, slots=2, level=level)


def settings_file(command: str = UNITTEST, more: str = "") -> Files:
    """The project's settings."""
    return {"proctor.toml": f"[project]\ntest = {json.dumps(command)}\n{more}"}


async def judged(
    tmp_path: Path, change: Files, kind: Kind | None = Kind.FIX, *, base: Files | None = None,
    command: str = UNITTEST, more: str = "", level: Level | None = None,
) -> Judgement:  # fmt: skip
    """Make a repository with a change and judge it."""
    repo = new_repo(tmp_path / "repo", {**(base or BASE), **settings_file(command, more)})
    commit(repo, "change", change)
    return await bench(repo, tmp_path / "home", level=level).check(Wish("HEAD", base="HEAD~1", kind=kind))


async def test_a_fix_is_proven_by_failing_without_it_and_passing_with_it(tmp_path: Path) -> None:
    """Two legs are enough: taking the source back gives the very tree of the first, which runs once."""
    found = await judged(tmp_path, MENDED)
    assert (found.word, found.weak) == (Word.PROVEN, False)
    assert [leg.name for leg in found.legs] == ["after", "before"]
    assert found.evidence == ("tests.test_calc.T.test_1",)


async def test_pytest_results_are_read_by_name(tmp_path: Path) -> None:
    """The runner's own report names every test, also with quiet output."""
    found = await judged(tmp_path, MENDED, command=PYTEST)
    assert found.word is Word.PROVEN
    assert found.legs[0].reading.format == "junit"
    assert len(found.legs[0].reading.passed) == 2


@pytest.mark.parametrize("level", [Level.BWRAP, Level.LANDLOCK])
async def test_both_confining_levels_come_to_the_same(tmp_path: Path, level: Level) -> None:
    """Where nothing can be mounted the text is re-rooted, and the judgement says so."""
    need(level)
    found = await judged(tmp_path, MENDED, level=level)
    assert found.word is Word.PROVEN
    assert all(leg.rerooted is (level is Level.LANDLOCK) for leg in found.legs)


async def test_a_broken_test_of_the_change_refutes_it(tmp_path: Path) -> None:
    """Its own test fails with the change."""
    found = await judged(
        tmp_path,
        {"tests/test_calc.py": suite_of("double(2) == 4", "double(-2) == -4"), "calc.py": OLD + "\n"},
    )
    assert found.word is Word.REFUTED
    assert "its own tests fail" in found.reasons[0]


async def test_nothing_may_become_newly_red(tmp_path: Path) -> None:
    """A fix that breaks another test is refuted, although its own test passes."""
    change: Files = {
        "calc.py": "def double(n):\n    return -2 * abs(n)\n",
        "tests/test_more.py": suite_of("double(-2) == -4"),
    }
    found = await judged(tmp_path, change)
    assert found.word is Word.REFUTED
    assert "newly red" in found.reasons[0]


async def test_old_red_tests_do_not_stand_in_the_way(tmp_path: Path) -> None:
    """What was red before for another reason stays a note."""
    base: Files = {
        **BASE,
        "tests/test_other.py": "import unittest\nclass O(unittest.TestCase):\n    def test_o(self):\n        assert 0\n",
    }
    found = await judged(tmp_path, MENDED, base=base)
    assert found.word is Word.PROVEN
    assert any("still red as before" in note for note in found.notes)


async def test_a_known_flaky_test_is_left_out_of_the_guard(tmp_path: Path) -> None:
    """The list in the settings is respected, and only by name."""
    coin = "import unittest\nclass O(unittest.TestCase):\n    def test_coin(self):\n        assert 0\n"
    change: Files = {**MENDED, "tests/test_coin.py": coin}
    found = await judged(tmp_path, change, more='[proof]\nflaky = ["*test_coin"]\n')
    assert found.word is Word.PROVEN
    assert any("known-flaky" in note for note in found.notes)


async def test_a_fix_without_a_test_stays_open(tmp_path: Path) -> None:
    """Green on both sides tells nothing, and the reason says what to add."""
    found = await judged(tmp_path, {"calc.py": NEW})
    assert found.word is Word.INCONCLUSIVE
    assert "no test tells before from after" in found.reasons[0]


async def test_a_command_that_tests_something_else_is_found_out(tmp_path: Path) -> None:
    """A planted break goes unnoticed, so a green run is worth nothing."""
    found = await judged(tmp_path, MENDED, command="true")
    assert found.word is Word.INCONCLUSIVE
    assert "does not notice a break" in found.reasons[0]


async def test_a_weak_failure_proves_a_feature_but_no_fix(tmp_path: Path) -> None:
    """Before, the tested name did not exist; for a fix that is not enough."""
    change: Files = {"calc.py": OLD + "\n\ndef triple(n):\n    return 3 * n\n",
              "tests/test_triple.py": "import unittest\nfrom calc import triple\n\n\nclass T(unittest.TestCase):\n"
              "    def test_t(self):\n        assert triple(2) == 6\n"}  # fmt: skip
    feature = await judged(tmp_path, change, Kind.FEATURE)
    fix = await judged(tmp_path / "again", change, Kind.FIX)
    assert (feature.word, feature.weak) == (Word.PROVEN, True)
    assert fix.word is Word.INCONCLUSIVE


async def test_a_change_does_not_bring_its_own_judge(tmp_path: Path) -> None:
    """A script that the command runs is taken from the base."""
    base: Files = {
        **BASE,
        "verify.sh": f"set -e\n{UNITTEST}\n",
        "tests/test_calc.py": suite_of("double(-2) == -4"),
    }
    hollow: Files = {"verify.sh": "exit 0\n", "calc.py": OLD + "\n"}
    found = await judged(tmp_path, hollow, base=base, command="bash verify.sh")
    assert found.word in {Word.REFUTED, Word.INCONCLUSIVE}
    honest = await judged(
        tmp_path / "b",
        {"verify.sh": f"set -eu\n{UNITTEST}\n", "calc.py": NEW},
        base=base,
        command="bash verify.sh",
    )
    assert honest.word is Word.PROVEN


async def test_it_still_passes_with_the_source_reverted(tmp_path: Path) -> None:
    """The difference comes from a settings file, not from the source: refuted by the third leg."""
    base: Files = {**BASE, "mode.json": '{"strict": true}', "tests/test_calc.py": suite_of("double(2) == 4")}
    check = (
        "import json, unittest\n\n\nclass T(unittest.TestCase):\n    def test_m(self):\n"
        "        assert not json.load(open('mode.json'))['strict']\n"
    )
    change: Files = {
        "mode.json": '{"strict": false}',
        "calc.py": OLD + "\n# fixed\n",
        "tests/test_mode.py": check,
    }
    found = await judged(tmp_path, change, base=base)
    assert found.word is Word.REFUTED
    assert "still passes with the source reverted" in found.reasons[0]
    assert "reverted" in [leg.name for leg in found.legs]


async def test_chance_is_met_by_repetition(tmp_path: Path) -> None:
    """A coin in the test is thrown again until it disagrees with itself."""
    coin = (
        "import random, unittest\n\n\nclass T(unittest.TestCase):\n    def test_coin(self):\n"
        "        assert random.random() < 0.5\n"
    )
    words = set()
    for number in range(3):
        change: Files = {"calc.py": OLD + "\n", "tests/test_coin.py": coin}
        words.add((await judged(tmp_path / str(number), change)).word)
    assert words <= {Word.INCONCLUSIVE, Word.REFUTED}


async def test_a_refactoring_is_preserved_only_when_its_lines_are_executed(tmp_path: Path) -> None:
    """The same tests pass on both sides; a changed line that nobody executes leaves it open."""
    base: Files = {**BASE, "tests/test_calc.py": suite_of("double(2) == 4", "double(-1) == 0")}
    body = "def double(n):\n    if n > 0:\n        return 2 * n\n    return 0\n"
    done = await judged(tmp_path, {"calc.py": body}, Kind.REFACTOR, base=base)
    assert done.word is Word.PRESERVED
    change: Files = {
        "calc.py": "def double(n):\n    if n > 0:\n        return 2 * n\n    zero = 0\n    return zero\n"
    }
    missed = await judged(tmp_path / "m", change, Kind.REFACTOR)
    assert missed.word is Word.INCONCLUSIVE
    assert "calc.py:4" in missed.reasons[0]


async def test_documents_are_checked_by_their_links(tmp_path: Path) -> None:
    """A link that leads nowhere refutes, links that lead somewhere are checked, plain words are not applicable."""
    good = await judged(tmp_path / "a", {"README.md": "[code](calc.py) [web](https://example.org)\n"}, None)
    bad = await judged(tmp_path / "b", {"README.md": "[code](gone.py)\n"}, None)
    plain = await judged(tmp_path / "c", {"README.md": "words\n"}, None)
    assert (good.word, bad.word, plain.word) == (Word.CHECKED, Word.REFUTED, Word.NOT_APPLICABLE)


async def test_pictures_show_a_change_of_the_interface(tmp_path: Path) -> None:
    """Different pictures before and after are shown; without a command it is not applicable."""
    base: Files = {**BASE, "style.css": "a { color: red }\n"}
    change: Files = {"style.css": "a { color: blue }\n"}
    more = '[proof]\npictures = "mkdir -p $PROCTOR_PICTURES && cp style.css $PROCTOR_PICTURES/page.png"\n'
    shown = await judged(tmp_path / "a", change, None, base=base, more=more)
    without = await judged(tmp_path / "b", change, None, base=base)
    assert (shown.word, without.word) == (Word.SHOWN, Word.NOT_APPLICABLE)
    assert len(set(shown.pictures.values())) == 2


async def test_code_is_no_document_whatever_it_is_called(tmp_path: Path) -> None:
    """`--kind docs` and `--kind ui` do not let a change of code pass; its documentation is another thing."""
    words = {"calc.py": OLD.replace(":\n", ':\n    """Twice\n\n    as much.\n    """\n', 1)}
    code = {"calc.py": NEW}
    found = [await judged(tmp_path / str(n), files, kind) for n, (files, kind) in enumerate(
        [(words, Kind.DOCS), (code, Kind.DOCS), (code, Kind.UI)]
    )]  # fmt: skip
    assert [one.word for one in found] == [Word.NOT_APPLICABLE, Word.INCONCLUSIVE, Word.INCONCLUSIVE]
    assert "calc.py is code" in found[1].reasons[0]


async def test_without_a_command_it_says_how_to_set_one(tmp_path: Path) -> None:
    """Nothing is invented: inconclusive, with the cure."""
    repo = new_repo(tmp_path / "repo", {"calc.go.txt": "x\n", "main.c": "int main() { return 0; }\n"})
    commit(repo, "change", {"main.c": "int main() { return 1; }\n"})
    found = await bench(repo, tmp_path / "home").check(Wish("HEAD", base="HEAD~1", kind=Kind.FIX))
    assert found.word is Word.INCONCLUSIVE
    assert "proctor.toml" in found.reasons[0]


async def test_parts_of_a_repository_have_their_own_commands(tmp_path: Path) -> None:
    """A change below a path is judged by that path's command alone."""
    base: Files = {"a/run.sh": "grep -q good a/x\n", "a/x": "bad\n", "b/run.sh": "exit 1\n"}
    more = '[proof.paths]\n"a" = "bash a/run.sh"\n"b" = "bash b/run.sh"\n'
    found = await judged(tmp_path, {"a/x": "good\n"}, base=base, command="exit 1", more=more)
    assert found.commands == ("bash a/run.sh",)
    assert found.word is Word.PROVEN


async def test_uncommitted_and_staged_work_are_judged_as_they_are(tmp_path: Path) -> None:
    """Work in the checkout counts without touching it; without a word it is what is meant."""
    repo = new_repo(tmp_path / "repo", {**BASE, **settings_file()})
    write(repo, MENDED)
    git(repo, "add", "calc.py")
    before = git(repo, "status", "--porcelain")
    work = bench(repo, tmp_path / "home")
    everything, staged = await work.check(Wish()), await work.check(Wish(staged=True))
    assert everything.word is Word.PROVEN
    assert staged.word is Word.INCONCLUSIVE
    assert git(repo, "status", "--porcelain") == before


async def test_a_base_result_is_remembered_and_not_run_again(tmp_path: Path) -> None:
    """The same tree, command and environment give the kept result; another command does not."""
    repo = new_repo(tmp_path / "repo", {**BASE, **settings_file()})
    commit(repo, "change", {"calc.py": NEW})
    first = await bench(repo, tmp_path / "home").check(Wish("HEAD", base="HEAD~1", kind=Kind.FIX))
    again = await bench(repo, tmp_path / "home").check(Wish("HEAD", base="HEAD~1", kind=Kind.FIX))
    assert [(leg.name, leg.cached) for leg in first.legs] == [("after", False), ("before", False)]
    assert [(leg.name, leg.cached) for leg in again.legs] == [("after", False), ("before", True)]
    assert (first.word, first.reasons) == (again.word, again.reasons)


def test_exit_codes_tell_the_worst() -> None:
    """Refuted before needs you before inconclusive before fine."""
    assert exit_code_of([Word.PROVEN, Word.REFUTED], needs_you=True) == 1
    assert exit_code_of([Word.INCONCLUSIVE], needs_you=True) == 3
    assert exit_code_of([Word.PROVEN, Word.INCONCLUSIVE]) == 8
    assert exit_code_of([Word.PROVEN, Word.SHOWN, Word.NOT_APPLICABLE]) == 0


async def test_without_a_sandbox_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proof commands may have been written by agents: below level 2 the judgement is open and says the cure."""

    def nothing(required: Level, exact: Level | None = None) -> Level:
        raise LevelUnavailableError(
            wanted=2, found=1, why="bwrap is not installed", cure="Install bubblewrap."
        )

    monkeypatch.setattr(probe, "best_level", nothing)
    mark = tmp_path / "ran"
    found = await judged(tmp_path, MENDED, command=f"touch {mark}")
    assert found.word is Word.INCONCLUSIVE
    assert "Install bubblewrap" in found.reasons[0]
    assert not found.legs
    assert not mark.exists()
