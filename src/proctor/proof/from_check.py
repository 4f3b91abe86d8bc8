"""From a judgement to a fix file: one fix for each thing that a receipt calls hollow, red, not executed or open.

Reads a receipt, the JSON of `proctor check` (the same and more), or of `proctor fixes verify` (which names receipts).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from proctor.proof.advice import next_step
from proctor.proof.drafts import Drafted, SourceError
from proctor.proof.kinds import is_test_file
from proctor.proof.receipt import SCHEMA, at_home
from proctor.protocol.errors import ProctorError
from proctor.workspace.files import Root

__all__ = ["fixes_of_check"]

Load = Callable[[str], Mapping[str, Any]]
_SEVERITY: Final = {"refutes": "major", "suspicious": "minor"}
_CURES: Final = {
    "test deleted": "Bring the test back as it was before the change, and let the code pass it",
    "test skipped": "Take the skip away, and let the code pass the test",
    "test weakened": "Put the assertion back that was there before, and let the code pass it",
    "cases removed": "Bring the removed cases back, and let the code pass them",
    "trivial assertion": "Assert the value that is expected instead of something that always holds",
    "swallowed assertion": "Let the failed assertion reach the test runner",
    "hard-coded": "Compute the value from the input instead of returning the one that the test names",
    "knows it is tested": "Remove the branch that asks whether a test is running",
    "check edited": "Take the edit of the check back",
    "verification edited": "Take the edit of the verification back",
    "tolerance raised": "Put the limit back that was there before, or show why it must be wider",
    "staged test": "Let the test call the code as it is and look at what it does",
    "inert change": "Change what the code does, and let the tests look at that",
    "snapshot replaced": "Put the recorded expectation back, or change the code that makes the new one right",
}
_HOLLOW: Final = ("hollow: ", "look at this: ")


def fixes_of_check(value: Any, name: str, *, root: Path, load: Load) -> Drafted:
    """Make fixes of whatever is open; `load` reads the receipts a report names."""
    drafted = Drafted()
    for receipt in _receipts(value, name, load):
        for fix in _open(receipt, root):
            if all(fix != {k: v for k, v in old.items() if k != "id"} for old in drafted.fixes):
                drafted.add(**fix)
    return drafted


def _receipts(value: Any, name: str, load: Load) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping) and value.get("schema") == SCHEMA:
        wanted = ("verdict", "reasons", "change", "legs", "findings", "commands")
        missing = [member for member in wanted if member not in value]
        if missing:
            raise SourceError(name=name, problems=[f"{member}: is missing" for member in missing])
        yield value
        return
    rows = value.get("fixes") if isinstance(value, Mapping) else None
    if not isinstance(rows, list) or not rows:
        words = "it is neither a receipt nor the JSON of `proctor check` or `proctor fixes verify`"
        raise SourceError(name=name, problems=[words])
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping) or not isinstance(row.get("receipt"), str):
            raise SourceError(name=name, problems=[f"fixes[{index}].receipt: must name the receipt's file"])
        if row.get("verdict") != "proven":
            yield load(row["receipt"])


def _open(receipt: Mapping[str, Any], root: Path) -> Iterator[dict[str, Any]]:
    again = _again(receipt, root)
    command = at_home(next(iter(receipt["commands"]), "the check"), str(root))
    if (fix := receipt.get("fix")) and receipt["verdict"] in {"refuted", "inconclusive"}:
        yield {
            "severity": fix["severity"], "file": fix["file"], "line": fix["line"],
            "issue": f"Fix {fix['id']} is {receipt['verdict']}: {'; '.join(receipt['reasons'])}",
            "fix": f"In {fix['file']}: mend what fix {fix['id']} was about, so that its check fails without the change"
            " and passes with it",
            "verification": f"Run `{command}`; it must pass with the change and fail without it",
        }  # fmt: skip
        return
    yield from _hollow(receipt, root, again)
    yield from _red(receipt, root, again)
    yield from _reasons(receipt, root, again)
    yield from _unrun(receipt, again)


def _again(receipt: Mapping[str, Any], root: Path) -> dict[str, str]:
    """What proves the mending: the very commands of the receipt, from any directory."""
    line = (
        " && ".join(
            [f"cd {shlex.quote(str(root))}", *(at_home(line, str(root)) for line in receipt["commands"])]
        )
        if receipt["commands"]
        else ""
    )
    return {"verification_command": line} if line else {}


def _hollow(receipt: Mapping[str, Any], root: Path, again: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for one in receipt["findings"]:
        if one["weight"] in _SEVERITY:
            cure = _CURES.get(one["kind"], "Take the edit back")
            yield {
                "severity": _SEVERITY[one["weight"]], "file": one["file"], "line": max(1, int(one["line"])),
                "issue": f"Hollow change, {one['kind']}: {one['why']}",
                "fix": f"{cure} ({one['file']}:{one['line']}).",
                "verification": f"Run `proctor check`; it must not report `{one['kind']}` for {one['file']} any more.",
                **again, **_there_again(one, root),
            }  # fmt: skip


def _there_again(finding: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Where the old assertion is known by its text, that it is there again can be looked up."""
    old = re.match(r"`([^`]+)` became ", finding["why"])
    if old is None:
        return {}
    return {
        "hallucination_check": f"grep -qF -- {shlex.quote(old[1])} {shlex.quote(str(root / finding['file']))}"
    }


def _red(receipt: Mapping[str, Any], root: Path, again: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Tests that the change leaves red and that were not red before it."""
    legs = {leg["name"]: leg for leg in receipt["legs"]}
    after, base = legs.get("after"), legs.get("base")
    if receipt["verdict"] != "refuted" or after is None:
        return
    old = set(base["tests"]["failed"]) if base else set()
    tests = [path for path in _changed(receipt) if is_test_file(path)]
    for test in sorted(set(after["tests"]["failed"]) - old):
        file, line = _place_of(test, root, tests) or (_subject(receipt), _changed_line(receipt, root))
        yield {
            "severity": "major", "file": file, "line": line,
            "issue": f"The test {test} fails with the change: {after['tests']['detail'] or 'see the receipt'}",
            "fix": f"Change {_subject(receipt)} so that {test} passes; leave the test as it is.",
            "verification": f"Run the test {test}; it must pass, and `proctor check` must not call it newly red.",
            **again,
        }  # fmt: skip


def _reasons(receipt: Mapping[str, Any], root: Path, again: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """What kept the judgement open, where no test and no finding says it better."""
    said = [reason for reason in receipt["reasons"] if not reason.startswith(_HOLLOW)]
    red = receipt["verdict"] == "refuted" and any(_leaves_red(leg) for leg in receipt["legs"])
    if receipt["verdict"] not in {"refuted", "inconclusive"} or red or not said:
        return
    severity = "major" if receipt["verdict"] == "refuted" else "minor"
    yield {
        "severity": severity, "file": _subject(receipt), "line": _changed_line(receipt, root),
        "issue": f"The change is {receipt['verdict']}: {said[0]}",
        "fix": f"For {_subject(receipt)}: {next_step({**receipt, 'reasons': said})}",
        "verification": "Run `proctor check`; it must end with exit code 0.",
        **again,
    }  # fmt: skip


def _leaves_red(leg: Mapping[str, Any]) -> bool:
    return bool(leg["name"] == "after" and leg["tests"]["failed"])


def _unrun(receipt: Mapping[str, Any], again: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for path, lines in ((receipt.get("coverage") or {}).get("missed") or {}).items():
        first, last = min(lines), max(lines)
        yield {
            "severity": "minor", "file": path, "line": first if first == last else f"{first}-{last}",
            "issue": f"No test runs the changed lines {first} to {last} of {path}",
            "fix": f"Add a test that executes {path}:{first} and fails when the change is taken back.",
            "verification": f"Run `proctor check --coverage`; it must not list {path} under `not proven` any more.",
            **again,
        }  # fmt: skip


def _subject(receipt: Mapping[str, Any]) -> str:
    """The changed file that matters most: source before tests before anything else."""
    paths = _changed(receipt)
    source = [path for path in paths if not is_test_file(path)]
    return next(iter(source or paths), "proctor.toml")


def _changed(receipt: Mapping[str, Any]) -> list[str]:
    measured = receipt.get("coverage") or {}
    named = [*measured.get("executed", ()), *measured.get("missed", ()), *measured.get("unknown", ())]
    recipes = [leg.get("recipe") or {} for leg in receipt["legs"] if leg["name"] == "after"]
    patch = re.findall(r"^\+\+\+ b/(.+)$", receipt["change"].get("patch") or "", re.MULTILINE)
    return [
        *dict.fromkeys([*named, *(path for recipe in recipes for path in recipe.get("paths") or ()), *patch])
    ]


def _changed_line(receipt: Mapping[str, Any], root: Path) -> int | None:
    """The first changed line of the subject, from the patch if it travels with the receipt, else the file's first."""
    path = re.escape(_subject(receipt))
    found = re.search(
        rf"^\+\+\+ b/{path}\n@@ -\S+ \+(\d+)", receipt["change"].get("patch") or "", re.MULTILINE
    )
    if found:
        return max(1, int(found[1]))
    return 1 if (root / _subject(receipt)).is_file() else None


def _place_of(test: str, root: Path, tests: Sequence[str]) -> tuple[str, int] | None:
    """Where a test stands, by the name its runner gives it, else in one of the changed test files."""
    words = re.split(r"::| > ", re.sub(r"^\[\d+\] |\[[^\]]*\]$", "", test))
    with Root(root) as place:
        for file in _candidates(words, tests):
            try:
                lines = place.read(file).text.split("\n")
            except ProctorError:
                continue
            named = [n for n, line in enumerate(lines, 1) if words[-1] in line]
            if named:
                return file, named[0]
    return None


def _candidates(words: Sequence[str], tests: Sequence[str]) -> Iterator[str]:
    parts = words[0].split(".")
    for end in range(len(parts), 0, -1):
        yield "/".join(parts[:end]) + ".py"
    yield words[0]
    yield from tests
