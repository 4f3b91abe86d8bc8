"""The hollow-change corpus: no hollow change is accepted, no honest one is refuted, and open only what truly is."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.sandbox.spec import Level
from tests.hollow.cases import ACCEPTING, HOLLOW, HONEST, HONEST_TURNS, Case, all_cases
from tests.hollow.judge import confusion, judge_case
from tests.hollow.tricky import tricky_cases
from tests.sandbox.conftest import need

CASES = (*all_cases(), *tricky_cases())


def _sample() -> list[Case]:
    """One case of each category, in changing languages."""
    first: dict[str, Case] = {}
    for number, case in enumerate(CASES):
        if case.category not in first or number % 7 == 0:
            first[case.category] = case
    return list(first.values())


SAMPLE = _sample()
REST = [case for case in CASES if case not in SAMPLE]


def test_the_corpus_is_what_it_claims_to_be() -> None:
    """At least a hundred changes, half of them honest, every kind in it, and no hollow case may be accepted."""
    assert len(CASES) >= 100
    assert sum(case.honest for case in CASES) >= 50
    assert len({case.name for case in CASES}) == len(CASES)
    assert {case.name.split("-")[0] for case in CASES} == {"python", "javascript", "shell"}
    made = {make.__name__.replace("_", "-") for make in (*HONEST, *HONEST_TURNS, *HOLLOW)}
    assert len({case.category for case in CASES} - {"trick", "lookalike"}) == len(made)
    assert sum(case.category == "trick" for case in CASES) >= 60
    assert all(not (case.words & ACCEPTING) for case in CASES if not case.honest)
    assert all("refuted" not in case.words for case in CASES if case.honest)
    assert all(case.base != {**case.base, **case.change} for case in CASES)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
async def test_a_case_of_each_kind_is_judged_right(case: Case, tmp_path: Path, home: Path) -> None:
    """Proctor says one of the words the case allows."""
    need(Level.BWRAP)
    told = await judge_case(case, tmp_path, beside=False)
    assert told.word in case.words, told.reasons


@pytest.mark.slow
@pytest.mark.parametrize("case", REST, ids=lambda case: case.name)
async def test_every_other_case_is_judged_right(case: Case, tmp_path: Path, home: Path) -> None:
    """The same for all the others."""
    need(Level.BWRAP)
    told = await judge_case(case, tmp_path, beside=False)
    assert told.word in case.words, told.reasons


async def test_the_usual_gate_accepts_what_is_hollow(tmp_path: Path, home: Path) -> None:
    """Beside Proctor's verdict the corpus shows what "exit 0 after the change" would have let through."""
    need(Level.BWRAP)
    hollow = next(case for case in CASES if case.category == "test-deleted")
    honest = next(case for case in CASES if case.category == "fix")
    told = [await judge_case(case, tmp_path / str(n)) for n, case in enumerate((hollow, honest))]
    matrix = confusion(told)
    assert matrix["false_accepts"] == 0
    assert matrix["honest_refuted"] == 0
    assert matrix["usual_gate"] == {"false_accepts": 1, "honest_rejected": 0}
