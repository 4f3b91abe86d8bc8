"""Whether the last test run is older than the last edit: then "all tests pass" speaks of an earlier state.

Known from three sources, and only from them: what a trace recorded of an attempt, in its order; times that a result
names itself; and for work that is not committed, the files that test runners leave. It never decides: Proctor runs the
tests itself; it only says what a claim is worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.kinds import FileKind, file_kind
from proctor.protocol.events import Event

__all__ = ["TestTimes", "claimed_times", "stale_files", "times_in_trace"]

#: What runners write on every run, newest wins.
_LEFT: Final = (
    *(".pytest_cache/v/cache/nodeids", ".pytest_cache/v/cache/lastfailed", ".coverage", "coverage.xml"),
    *("junit.xml", "test-results.xml", "report.xml", "reports/junit.xml", "test-results/junit.xml"),
    *(
        "coverage/lcov.info",
        "coverage/coverage-final.json",
        ".nyc_output/processinfo/index.json",
        "lcov.info",
    ),
)
_EDITS: Final = re.compile(r"write|edit|append|patch|create_file|str_replace|insert", re.IGNORECASE)
_TESTS: Final = re.compile(
    r"\b(?:pytest|unittest|nose2|tox|nox|jest|vitest|mocha|ava|bats|rspec|phpunit|ctest)\b|\bnode --test\b"
    r"|\b(?:npm|pnpm|yarn|bun|cargo|go|make|just|dotnet|mix|gradlew?|mvn)\b[^;&|]*\b(?:test|check|t)\b"
    r"|(?:^|[\s/])(?:run_)?tests?(?:\.sh|\.py)?(?:\s|$)"
)
_SAID: Final = ("last_test_run_at", "tested_at", "verified_at", "test_run_at")
_DONE: Final = ("last_edit_at", "edited_at", "fixed_at")


@dataclass(frozen=True, slots=True)
class TestTimes:
    """When an attempt edited last and when it ran a test last; None where there was none."""

    __test__ = False  # not a class for pytest to collect

    edited: datetime | None = None
    tested: datetime | None = None
    edit: str = ""
    test: str = ""
    order: int = 0  # below zero: the test came first

    @property
    def stale(self) -> bool:
        """The last test run came before the last edit."""
        return self.edited is not None and self.tested is not None and self.order < 0

    @property
    def sentence(self) -> str:
        """What is to be said about a claim; "" when nothing is known against it."""
        if self.edited is not None and self.tested is None and self.edit:
            return f"the executor ran no test at all after its edits; the last one was of {self.edit}"
        if not self.stale:
            return ""
        test = f" (`{self.test}`)" if self.test else ""
        edit = f" of {self.edit}" if self.edit else ""
        return f"the executor's last test run{test} is older than its last edit{edit}: its word is about an earlier state"

    def as_members(self) -> dict[str, str]:
        """As the result of a fix keeps it."""
        found = {"last_edit_at": self.edited, "last_test_run_at": self.tested}
        return {name: _spelt(moment) for name, moment in found.items() if moment is not None}


def _spelt(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def times_in_trace(events: Iterable[Event]) -> TestTimes:
    """What a trace says about one attempt; its order decides, not the clock."""
    edited = tested = None
    edit = test = ""
    order = 0
    for event in events:
        if event.event == "task" and event.details.get("file"):
            edited, edit, order = event.ts, str(event.details["file"])[:200], -1
        elif event.event == "tool_use":
            given = event.details.get("input")
            command = _command(given)
            if command and _TESTS.search(command):
                tested, test, order = event.ts, command[:80], 1
            elif not command and _EDITS.search(event.tool_name or ""):
                edited, edit, order = event.ts, _path(given), -1
    return TestTimes(edited, tested, edit, test, order)


def _command(given: Any) -> str:
    command = given.get("command", given.get("cmd", "")) if isinstance(given, Mapping) else ""
    return " ".join(map(str, command)) if isinstance(command, list) else str(command or "")


def _path(given: Any) -> str:
    names = ("path", "file_path", "notebook_path", "file")
    found = [given[name] for name in names if given.get(name)] if isinstance(given, Mapping) else []
    return str(found[0])[:200] if found else "a file"


def claimed_times(members: Mapping[str, Any] | None, *, edited: datetime | None = None) -> TestTimes:
    """What a result says of itself; `edited` is when its file was changed, where it does not say that."""
    given = members or {}
    tested = _moment(given, _SAID)
    last = _moment(given, _DONE) or edited
    order = 0 if tested is None or last is None else -1 if tested < last else 1
    # Who was watched by us and has no test run in the trace has run none.
    watched = "its file, by the trace" if given.get("task_id") and "last_edit_at" in given else ""
    return TestTimes(last, tested, edit=watched if tested is None else "", order=order)


def _moment(members: Mapping[str, Any], names: Sequence[str]) -> datetime | None:
    for name in names:
        value = members.get(name)
        try:
            found = datetime.fromisoformat(value) if isinstance(value, str) else None
        except ValueError:
            found = None
        if found is not None:
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def stale_files(root: Path, changed: Sequence[str]) -> list[HollowFinding]:
    """For work that is not committed: what runners left here is older than the newest changed file."""
    code = [path for path in changed if file_kind(path) in {FileKind.SOURCE, FileKind.TEST, FileKind.CHECK}]
    edits = {path: moment for path in code if (moment := _changed_at(root / path)) is not None}
    runs = {name: moment for name in _LEFT if name not in changed and (moment := _changed_at(root / name))}
    if not edits or not runs:
        return []
    edit, run = max(edits, key=edits.__getitem__), max(runs, key=runs.__getitem__)
    if runs[run] >= edits[edit]:
        return []
    why = f"the last test run that left a trace here ({run}) is older than the last edit of this file"
    return [HollowFinding(HollowKind.TEST_RUN_STALE, HollowWeight.NOTE, edit, 1, why)]


def _changed_at(path: Path) -> float | None:
    try:
        return path.lstat().st_mtime
    except OSError:
        return None
