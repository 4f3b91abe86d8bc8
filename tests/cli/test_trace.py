"""`proctor trace`: list, show, follow, export, signals, verify."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from proctor.protocol.events import EventKind
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from proctor.trace.chain import load_key
from proctor.trace.log import append_in
from tests.trace.support import REDACTOR, canonical, draft

KEY_FILE = "state/proctor/trace.key"


@pytest.fixture
def log(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """The database that the command will find, with two traces in it."""
    monkeypatch.chdir(tmp_path)
    database = open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))
    drafts = [draft("trace_abc", details={"n": n}) for n in range(5)]
    drafts += [canonical("tool_call_start", "trace_abd"), canonical("tool_call_complete", "trace_abd")]
    with database.write() as connection:
        append_in(connection, drafts, key=load_key(home / KEY_FILE), redactor=REDACTOR)
    yield database
    database.close()


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    main(["trace", *words, "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_newest_traces_are_listed(log: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, with counts, capped with a word about it."""
    assert main(["trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["TRACE", "trace_abd", "trace_abc"]
    assert main(["trace", "--limit", "1"]) == 0
    assert "truncated" in capsys.readouterr().out
    assert [one["trace_id"] for one in _json(capsys)["traces"]] == ["trace_abd", "trace_abc"]  # type: ignore[attr-defined]


def test_a_trace_is_shown_by_the_beginning_of_its_name(
    log: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """A unique prefix is enough; one that fits two is refused with both names."""
    assert main(["trace", "trace_abc"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5
    shown = _json(capsys, "trace_abc", "--limit", "2")
    assert (shown["total_events"], shown["truncated"], len(shown["events"])) == (5, True, 2)  # type: ignore[arg-type]
    assert main(["trace", "trace_ab"]) == 2
    assert "trace_abd, trace_abc" in capsys.readouterr().err
    assert main(["trace", "nothing"]) == 4
    assert main(["trace", "--frobnicate"]) == 2


def test_the_list_says_what_each_trace_is_about(
    log: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool's name, or what a task is to do; names alone tell nobody which trace is which."""
    words = {"description": "mend\nthe \x1b[31mparser"}
    drafts = [
        draft("trace_task", "task_added", kind=EventKind.SYSTEM, details=words),
        canonical("tool_call_start", "trace_tool", tool_name="read_file"),
    ]
    with log.write() as connection:
        append_in(connection, drafts, key=load_key(home / KEY_FILE), redactor=REDACTOR)
    rows: Any = _json(capsys)["traces"]
    assert [one["what"] for one in rows] == ["read_file", words["description"], "tool_call_start", "message"]
    assert main(["trace"]) == 0
    said = capsys.readouterr().out
    assert "mend the  [31mparser" in said
    assert len(said.splitlines()) == 5


def test_moments_are_those_of_the_readers_clock(
    log: Database, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text shows local time; JSON stays UTC and says so."""
    rows: Any = _json(capsys)["traces"]
    told = datetime.fromisoformat(rows[0]["started"])
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert main(["trace"]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    wanted = told.astimezone(timezone(timedelta(hours=9)))
    assert f"{wanted:%Y-%m-%d %H:%M:%S}" in capsys.readouterr().out


def test_a_line_of_an_event_shows_what_people_read(
    log: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs as they were given, without the names of rows; nothing of others' words is obeyed by the terminal."""
    details = {
        "call_id": "call_1",
        "inputs": {"path": "a b", "none": None},
        "text": "\x1b[2Jx",
        "simulated": False,
    }
    with log.write() as connection:
        append_in(connection, [draft("t", details=details)], key=load_key(home / KEY_FILE), redactor=REDACTOR)
    assert main(["trace", "t"]) == 0
    said = capsys.readouterr().out
    assert 'text="\\u001b[2Jx"  path="a b"' in said
    assert "call_1" not in said
    assert "simulated" not in said


def test_export_prints_every_event_as_a_line(log: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """All of one trace, or of the whole log."""
    assert main(["trace", "trace_abc", "--export", "jsonl"]) == 0
    assert [json.loads(line)["trace_seq"] for line in capsys.readouterr().out.splitlines()] == [1, 2, 3, 4, 5]
    assert main(["trace", "--export", "jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_signals_are_shown(log: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table and as JSON."""
    assert _json(capsys, "trace_abd", "--signals")["success_rate"] == 1.0
    assert main(["trace", "trace_abd", "--signals"]) == 0
    assert "latency p95" in capsys.readouterr().out


def test_verify_passes_and_then_names_the_first_bad_event(
    log: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 0 when all is as written, 7 when not, with the event's place."""
    assert main(["trace", "verify"]) == 0
    assert "Nothing was altered: 7 events in 2 traces" in capsys.readouterr().out
    with log.write() as connection:
        connection.exec_driver_sql("UPDATE events SET details = '{}' WHERE seq = 3")
    assert main(["trace", "verify"]) == 7
    assert "at event 3 of trace trace_abc (seq 3)" in capsys.readouterr().out
    report = _json(capsys, "verify", "trace_abc")
    assert (report["ok"], report["first_bad"]["seq"]) == (False, 3)  # type: ignore[index]
    assert main(["trace", "verify", "trace_abd"]) == 0


def test_verify_without_the_key_does_not_say_that_all_is_well(
    log: Database, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lost key is not silently replaced by a new one."""
    (home / KEY_FILE).unlink()
    assert main(["trace", "verify"]) == 4
    assert not (home / KEY_FILE).exists()
    assert "Put it back from a backup" in capsys.readouterr().err


def test_an_empty_log_is_shown_and_verified(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a fresh machine nothing is wrong, and nothing is left behind but the database."""
    monkeypatch.chdir(tmp_path)
    assert main(["trace"]) == 0
    assert "no trace yet" in capsys.readouterr().out
    assert main(["trace", "verify"]) == 0
    assert not (home / KEY_FILE).exists()


def test_follow_prints_what_another_process_writes(log: Database, home: Path) -> None:
    """The newest events first, then live."""
    words = [sys.executable, "-m", "proctor", "trace", "trace_abc", "--follow", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert [json.loads(child.stdout.readline())["seq"] for _ in range(5)] == [1, 2, 3, 4, 5]
            with log.write() as connection:
                key = load_key(home / KEY_FILE)
                append_in(connection, [draft("trace_abd"), draft("trace_abc")], key=key, redactor=REDACTOR)
            assert json.loads(child.stdout.readline())["seq"] == 9
        finally:
            child.kill()
