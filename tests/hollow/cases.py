"""The corpus: from each problem honest changes (fix, feature, refactoring, documents) and hollow ones, by category.

A case says what the author claims (its kind, or a fix with its commands) and which words Proctor may say about it. Words
of a hollow case never include an accepting one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.hollow.problems import PROBLEMS, Problem
from tests.hollow.render import COMMANDS, source_path, source_paths, suite_of, suite_path

__all__ = ["ACCEPTING", "Case", "Claim", "all_cases"]

ACCEPTING = frozenset({"proven", "preserved", "checked", "shown", "not applicable"})
NOT = frozenset({"refuted", "inconclusive"})
Files = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Claim:
    """A fix as an executor would hand it back; `{repo}` stands for the repository's path."""

    file: str
    line: int
    verification_command: str
    hallucination_check: str
    changes_made: tuple[str, ...]
    status: str = "FIXED"


@dataclass(frozen=True, slots=True)
class Case:
    """One change: the repository before, what is changed, what is claimed, and what may be said of it."""

    name: str
    category: str
    honest: bool
    base: Files
    change: Files
    command: str
    kind: str | None
    words: frozenset[str]
    claim: Claim | None = None
    env: Mapping[str, str] = field(default_factory=dict)


def _base(problem: Problem, source: str, tests: str) -> dict[str, str | None]:
    return {
        "README.md": f"# {problem.name}\n\nA small thing.\n",
        source_path(problem): source,
        suite_path(problem): tests,
        **source_paths(problem),
    }


def _case(
    problem: Problem, category: str, *, honest: bool, change: Files, words: frozenset[str], **more: object
) -> Case:
    base = more.pop("base", None) or _base(problem, problem.broken, suite_of(problem, problem.fine))
    case = Case(
        f"{problem.language}-{problem.name}-{category}",
        category,
        honest,
        base,  # type: ignore[arg-type]
        change,
        COMMANDS[problem.language],
        "fix",
        words,
    )
    return replace(case, **more)  # type: ignore[arg-type]


def _every(problem: Problem, wrong: int = 2) -> str:
    return suite_of(problem, problem.fine + problem.wrong[:wrong])


# Honest changes


def fix(problem: Problem) -> Case:
    """The defect is mended and its test added."""
    change = {source_path(problem): problem.mended, suite_path(problem): _every(problem)}
    return _case(problem, "fix", honest=True, change=change, words=frozenset({"proven"}))


def fix_of_a_red_suite(problem: Problem) -> Case:
    """The tests were red before; only the source is changed."""
    base = _base(problem, problem.broken, _every(problem))
    change = {source_path(problem): problem.mended}
    return _case(problem, "fix-red-suite", honest=True, base=base, change=change, words=frozenset({"proven"}))


def feature(problem: Problem) -> Case:
    """A new function comes with its tests, beside an old one."""
    base: dict[str, str | None] = {"README.md": "# Things\n", **source_paths(problem)}
    other = replace(problem, name=f"{problem.name}2")
    if problem.language == "shell":
        base |= {"other.sh": "#!/bin/bash\necho other\n", suite_path(problem): suite_of(problem, ())}
    else:
        renamed = problem.mended.replace(problem.name, other.name)
        calls = tuple((call.replace(problem.name, other.name), wanted) for call, wanted in problem.fine)
        base |= {source_path(other): renamed, suite_path(other): suite_of(other, calls)}
    change = {source_path(problem): problem.mended, suite_path(problem): _every(problem)}
    return _case(
        problem, "feature", honest=True, base=base, change=change, kind="feature", words=frozenset({"proven"})
    )


def refactoring(problem: Problem) -> Case:
    """The same behaviour in other words; the tests stay."""
    base = _base(problem, problem.mended, _every(problem))
    change = {source_path(problem): problem.rewritten}
    # Which lines of a shell script ran is not known here, and Proctor says so.
    words = (
        frozenset({"preserved", "inconclusive"}) if problem.language == "shell" else frozenset({"preserved"})
    )
    return _case(problem, "refactoring", honest=True, base=base, change=change, kind="refactor", words=words)


def documents(problem: Problem) -> Case:
    """Only the documents change."""
    change = {"README.md": f"# {problem.name}\n\nA small thing, explained well.\n"}
    words = frozenset({"checked", "not applicable"})
    return _case(problem, "documents", honest=True, change=change, kind=None, words=words)


def claimed_fix(problem: Problem) -> Case:
    """A fix of a fix file, with commands that tell before from after and a claim that is true."""
    change = {source_path(problem): problem.mended, suite_path(problem): _every(problem)}
    line, text = _first_difference(problem)
    claim = Claim(source_path(problem), line, f"cd {{repo}} && {COMMANDS[problem.language]}",
                  f"grep -qF {_quoted(text)} {{repo}}/{source_path(problem)}", (f"Line {line}: `{text}`",))  # fmt: skip
    return _case(problem, "claimed-fix", honest=True, change=change, claim=claim, words=frozenset({"proven"}))


def no_change_needed(problem: Problem) -> Case:
    """The code was right already, and the check shows it."""
    base = _base(problem, problem.mended, _every(problem))
    claim = Claim(source_path(problem), 1, f"cd {{repo}} && {COMMANDS[problem.language]}",
                  f"test -s {{repo}}/{source_path(problem)}", (), "NO_CHANGE_NEEDED")  # fmt: skip
    change = {"README.md": "# Looked at\n"}
    return _case(
        problem,
        "no-change-needed",
        honest=True,
        base=base,
        change=change,
        claim=claim,
        words=frozenset({"proven"}),
    )


def _first_difference(problem: Problem) -> tuple[int, str]:
    before = set(problem.broken.split("\n"))
    for number, line in enumerate(problem.mended.split("\n"), 1):
        if line not in before:
            return number, line.strip()
    raise ValueError(problem.name)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# Hollow changes


def no_op(problem: Problem) -> Case:
    """Blanks and a comment, called a fix, with a test that was green before."""
    mark = {"python": "#", "javascript": "//", "shell": "#"}[problem.language]
    change = {
        source_path(problem): problem.broken + f"\n{mark} fixed\n",
        suite_path(problem): suite_of(problem, problem.fine + problem.fine),
    }
    return _case(problem, "no-op", honest=False, change=change, words=NOT)


def claimed_but_absent(problem: Problem) -> Case:
    """The fix file claims a change that the diff does not hold."""
    line, text = _first_difference(problem)
    claim = Claim(source_path(problem), line, f"cd {{repo}} && {COMMANDS[problem.language]}",
                  f"test -s {{repo}}/{source_path(problem)}", (f"Line {line}: `{text}`",))  # fmt: skip
    change = {"README.md": "# fixed\n"}
    return _case(problem, "claimed-but-absent", honest=False, change=change, claim=claim, words=NOT)


def deleted_test(problem: Problem) -> Case:
    """The failing test goes away instead of the defect."""
    base = _base(problem, problem.broken, _every(problem))
    change = {
        suite_path(problem): suite_of(problem, problem.fine),
        source_path(problem): problem.broken + "\n",
    }
    return _case(problem, "test-deleted", honest=False, base=base, change=change, words=NOT)


def deleted_test_beside_a_fix(problem: Problem) -> Case:
    """One half is mended, and the test of the other half is removed."""
    base = _base(problem, problem.broken, _every(problem))
    change = {suite_path(problem): _every(problem, 1), source_path(problem): problem.half}
    return _case(problem, "test-deleted-beside-a-fix", honest=False, base=base, change=change, words=NOT)


def assertion_weakened(problem: Problem) -> Case:
    """The checks are made so weak that they cannot fail."""
    base = _base(problem, problem.broken, _every(problem))
    weak = suite_of(problem, problem.fine + problem.wrong, weaken=True)
    return _case(
        problem, "assertion-weakened", honest=False, base=base, change={suite_path(problem): weak}, words=NOT
    )


def skipped(problem: Problem) -> Case:
    """The failing test is skipped beside half a fix."""
    base = _base(problem, problem.broken, _every(problem))
    last = len(problem.fine) + 1
    tests = suite_of(problem, problem.fine + problem.wrong, skip=last)
    change = {suite_path(problem): tests, source_path(problem): problem.half}
    return _case(problem, "skipped", honest=False, base=base, change=change, words=NOT)


def unrelated(problem: Problem) -> Case:
    """Something else is changed, and its test says nothing about the defect."""
    side = replace(problem, name="side")
    text = problem.mended.replace(problem.name, "side")
    change = {source_path(side): text, suite_path(problem): suite_of(problem, problem.fine, extra="\n")}
    return _case(problem, "unrelated", honest=False, change=change, words=NOT)


def hard_coded(problem: Problem) -> Case:
    """The tested call gets its answer by name."""
    call, wanted = problem.wrong[0]
    change = {
        source_path(problem): _answering(problem, call, wanted),
        suite_path(problem): _every(problem, 1),
    }
    return _case(problem, "hard-coded", honest=False, change=change, words=NOT)


def _answering(problem: Problem, call: str, wanted: str) -> str:
    arguments = call.removeprefix(f"{problem.name}(").removesuffix(")")
    if problem.language == "shell":
        words = call.removeprefix(problem.name).strip()
        special = f'if [ "$*" = "{words}" ]; then echo "{wanted}"; return; fi'
        return problem.broken.replace("() {\n", f"() {{\n  {special}\n", 1)
    if problem.language == "python":
        head = problem.broken.index("(") + 1
        names = problem.broken[head : problem.broken.index(")", head)]
        tuple_ = f"({names})" if "," in names else names
        literal = f"({arguments})" if "," in names else arguments
        special = f"    if {tuple_} == {literal}:\n        return {wanted}\n"
        return problem.broken.replace('answer."""\n', f'answer."""\n{special}', 1)
    name = problem.broken.split("(", 1)[1].split(")", 1)[0].split(",")[0]
    first = arguments.split(", ")[0] if not arguments.startswith("[") else arguments
    special = f"  if (JSON.stringify({name}) === JSON.stringify({first})) return {wanted};\n"
    return problem.broken.replace("{\n", "{\n" + special, 1)


def verification_edited(problem: Problem) -> Case:
    """The command that judges is edited so that it always says yes."""
    base = _base(problem, problem.broken, _every(problem))
    base["verify.sh"] = f'#!/bin/bash\nset -e\ncd "$(dirname "$0")"\n{COMMANDS[problem.language]}\n'
    change = {"verify.sh": "#!/bin/bash\necho all good\n", source_path(problem): problem.broken + "\n"}
    return _case(
        problem,
        "verification-edited",
        honest=False,
        base=base,
        change=change,
        command="bash verify.sh",
        words=NOT,
    )


def flaky(problem: Problem) -> Case:
    """A test that is right by chance, beside a change that does nothing."""
    coin = {
        "python": "\n    def test_coin(self):\n        import random\n        self.assertLess(random.random(), 0.5)\n",
        "javascript": "test('coin', () => { assert.ok(Math.random() < 0.5); });\n",
        "shell": "",
    }[problem.language]
    tests = suite_of(problem, problem.fine, extra=coin)
    if problem.language == "shell":
        tests = tests.replace("exit $failed", 'check coin "$(( RANDOM % 2 ))" 1\nexit $failed')
    change = {suite_path(problem): tests, source_path(problem): problem.broken + "\n"}
    return _case(problem, "flaky", honest=False, change=change, words=NOT)


def green_at_base(problem: Problem) -> Case:
    """The verification passes with and without the change."""
    line, text = _first_difference(problem)
    claim = Claim(source_path(problem), line, f"test -f {{repo}}/{source_path(problem)}",
                  f"grep -qF {_quoted(text)} {{repo}}/{source_path(problem)}", (f"Line {line}: `{text}`",))  # fmt: skip
    change = {source_path(problem): problem.mended}
    return _case(problem, "green-at-base", honest=False, change=change, claim=claim, words=NOT)


def broken_environment(problem: Problem) -> Case:
    """The command cannot run at all, so a red run before says nothing."""
    change = {source_path(problem): problem.mended, suite_path(problem): _every(problem)}
    command = {"python": f"{sys.executable} -m no_such_runner", "javascript": "node no-such-runner.js",
               "shell": "no-such-runner tests"}[problem.language]  # fmt: skip
    return _case(
        problem,
        "broken-environment",
        honest=False,
        change=change,
        command=command,
        words=frozenset({"inconclusive"}),
    )


def partial(problem: Problem) -> Case:
    """Only half of what the tests ask for is done."""
    change = {source_path(problem): problem.half, suite_path(problem): _every(problem)}
    return _case(problem, "partial", honest=False, change=change, words=frozenset({"refuted"}))


HONEST: tuple[Callable[[Problem], Case], ...] = (fix, feature, refactoring)
HONEST_TURNS: tuple[Callable[[Problem], Case], ...] = (
    documents,
    claimed_fix,
    fix_of_a_red_suite,
    no_change_needed,
)
HOLLOW: tuple[Callable[[Problem], Case], ...] = (
    *(
        no_op,
        claimed_but_absent,
        deleted_test,
        deleted_test_beside_a_fix,
        assertion_weakened,
        skipped,
        unrelated,
    ),
    *(hard_coded, verification_edited, flaky, green_at_base, broken_environment, partial),
)


def all_cases() -> Iterator[Case]:
    """Every case, always in the same order: three honest ones per problem, one in turn, and three or four hollow ones."""
    turn = 0
    for number, problem in enumerate(PROBLEMS):
        for make in HONEST:
            yield make(problem)
        yield HONEST_TURNS[number % len(HONEST_TURNS)](problem)
        for _ in range(4 if number % 2 else 3):
            yield HOLLOW[turn % len(HOLLOW)](problem)
            turn += 1
