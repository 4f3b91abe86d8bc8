"""From the exit code and the output of a command to a `TestRun`: the format is recognised, never asked for.

Invariant: a run passes only with exit code 0, in time, with no failed test, and with at least one test that ran if it is a
test runner at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from proctor.proof.results import documents, lines, pytests
from proctor.proof.results.model import Context, Failure, Outcome, Parsed, Reason, TestRun
from proctor.proof.results.reasons import classify, overall, summary_of

__all__ = ["MAX_OUTPUT", "read_results"]

MAX_OUTPUT: Final = 4 * 1024 * 1024

_Parser = tuple[Callable[[str], bool], Callable[[str, int], Parsed]]
_PARSERS: Final[tuple[_Parser, ...]] = (
    (documents.is_junit, documents.read_junit),
    (documents.is_jest_json, documents.read_jest_json),
    (documents.is_go_json, documents.read_go_json),
    (lines.is_tap, lines.read_tap),
    (lines.is_node_spec, lines.read_node_spec),
    (pytests.is_pytest, pytests.read_pytest),
    (pytests.is_unittest, pytests.read_unittest),
    (lines.is_cargo, lines.read_cargo),
    (lines.is_go_text, lines.read_go_text),
)
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CODES: Final = {
    126: (Reason.INFRASTRUCTURE, "the program could not be executed (exit code 126)"),
    127: (Reason.INFRASTRUCTURE, "the program was not found (exit code 127)"),
    124: (Reason.TIMEOUT, "timeout(1) ended it (exit code 124)"),
    137: (Reason.INFRASTRUCTURE, "it was killed (exit code 137)"),
    143: (Reason.INFRASTRUCTURE, "it was ended from outside (exit code 143)"),
}


def read_results(
    exit_code: int,
    stdout: str,
    stderr: str = "",
    *,
    report: str | None = None,
    timed_out: bool = False,
    context: Context | None = None,
) -> TestRun:
    """Read one run; `report` is a file of results the runner wrote (JUnit XML or JSON), which then counts alone."""
    context = context or Context()
    text = _plain(stdout, stderr)
    found = list(_parsed(report, exit_code) if report else _parsed(text, exit_code)) or (
        [] if report is None else list(_parsed(text, exit_code))
    )
    merged = _merged(found)
    if timed_out:
        return _run(merged, exit_code, Reason.TIMEOUT, "it did not end in time", context)
    if exit_code in _CODES and not (merged and merged.texts):
        code = _CODES[exit_code]
        if exit_code == 127 and context.added_symbols and classify(text, context)[0] is Reason.MISSING_SYMBOL:
            code = classify(text, context)
        return _run(merged, exit_code, *code, context)
    if merged is None:
        return _by_code(exit_code, text, context)
    return _judged(merged, exit_code, context)


def _plain(stdout: str, stderr: str) -> str:
    both = f"{stdout}\n{stderr}" if stderr else stdout
    if len(both) > MAX_OUTPUT:
        half = MAX_OUTPUT // 2
        both = f"{both[:half]}\n… truncated …\n{both[-half:]}"
    return _ANSI.sub("", both).replace("\r\n", "\n")


def _parsed(text: str, exit_code: int) -> Iterator[Parsed]:
    for recognises, read in _PARSERS:
        if recognises(text):
            yield read(text, exit_code)


def _merged(found: list[Parsed]) -> Parsed | None:
    """Several runners in one output are one run; a problem of one counts only if no other named a test."""
    useful = [one for one in found if one.tests or one.collecting or one.counts] or found[:1]
    if not useful:
        return None
    whole = Parsed("+".join(dict.fromkeys(one.form for one in useful)))
    for one in useful:
        whole.tests.update(one.tests)
        whole.texts.update(one.texts)
        whole.collecting.update(one.collecting)
        for outcome, number in one.counts.items():
            whole.counts[outcome] = whole.counts.get(outcome, 0) + number
        whole.problem = whole.problem or one.problem
    return whole


def _judged(found: Parsed, exit_code: int, context: Context) -> TestRun:
    failures = _failures(found, context)
    if failures:
        reason = overall([one.reason for one in failures])
        evidence = next(one.evidence for one in failures if one.reason is reason or reason is Reason.UNKNOWN)
        return _made(found, exit_code, reason, evidence, failures)
    if found.problem:
        return _made(found, exit_code, *found.problem, ())
    if not found.counts.get(Outcome.PASSED) and not found.counts.get(Outcome.FAILED):
        return _made(found, exit_code, Reason.INFRASTRUCTURE, "no test ran: all were skipped", ())
    if exit_code != 0:
        return _made(
            found, exit_code, Reason.UNKNOWN, f"all named tests passed, but the exit code is {exit_code}", ()
        )
    return _made(found, exit_code, Reason.NONE, "", ())


def _failures(found: Parsed, context: Context) -> tuple[Failure, ...]:
    failures = []
    for name, text in found.collecting.items():
        reason, evidence = classify(text, context, setup=True)
        failures.append(Failure(name, Outcome.ERROR, reason, evidence))
    for name, outcome in found.tests.items():
        if outcome not in {Outcome.FAILED, Outcome.ERROR}:
            continue
        setup = outcome is Outcome.ERROR and found.form in {"pytest", "junit"}
        reason, evidence = classify(found.texts.get(name, ""), context, setup=setup)
        failures.append(Failure(name, outcome, reason, evidence or f"{name} {outcome.value}"))
    return tuple(failures)


def _run(found: Parsed | None, exit_code: int, reason: Reason, evidence: str, context: Context) -> TestRun:
    whole = found or Parsed("exit code")
    return _made(whole, exit_code, reason, evidence, _failures(whole, context))


def _made(
    found: Parsed, exit_code: int, reason: Reason, evidence: str, failures: tuple[Failure, ...]
) -> TestRun:
    passed = reason is Reason.NONE and exit_code == 0
    return TestRun(
        found.form, exit_code, passed, reason, evidence, dict(found.tests), dict(found.counts), failures
    )


def _by_code(exit_code: int, text: str, context: Context) -> TestRun:
    """Nothing is known but the exit code and the last words: a plain check says no with a small number."""
    if exit_code == 0:
        return TestRun("exit code", 0, passed=True, reason=Reason.NONE, evidence="")
    said = text.strip()[-4000:]
    telling = _TELLING.search(said)
    if telling:
        reason, evidence = classify(said[_block(said, telling.start()) :], context)
    elif exit_code >= 128 or exit_code < 0:
        reason, evidence = (
            Reason.UNKNOWN,
            f"it was ended by signal {exit_code - 128 if exit_code > 0 else -exit_code}",
        )
    else:
        reason, evidence = Reason.ASSERTION, summary_of(said) or f"the check said no (exit code {exit_code})"
    return TestRun("exit code", exit_code, passed=False, reason=reason, evidence=evidence)


_TELLING: Final = re.compile(
    r"Traceback \(most recent call last\)|\b\w*Error\b|not found|No such file|Cannot find module|cannot (?:open|access)|"
    r"command not found|Permission denied|No module named"
)


def _block(text: str, start: int) -> int:
    """Where the last traceback begins, or the telling word."""
    last = text.rfind("Traceback (most recent call last)")
    return last if last >= 0 else start
