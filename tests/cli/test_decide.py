"""`proctor inbox`, `approve`, `deny`, `cost`: what waits is shown whole, answered once, by a person."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest

from proctor.agents.model_turn import TurnEvent
from proctor.app import open_app
from proctor.cli.asking import answer_here
from proctor.cli.chat_screen import Screen
from proctor.cli.main import main
from proctor.config import environment
from proctor.gate.grants import list_grants
from proctor.gate.humans import MARKS
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import open_database
from tests.gate.world import KEY, World
from tests.support.typist import Typist, typist

FETCH = {"command": "curl -O https://example.org/a"}


@pytest.fixture
def house(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A gate on the user's own database, and the terminal in its workspace."""
    database: Database = open_database(sqlite_url(home / "state" / "proctor" / "proctor.db"))
    monkeypatch.setenv("PROCTOR_TRACE_KEY", KEY.hex())
    world = World(database, home, environ=environment())
    monkeypatch.chdir(world.workspace)
    yield world
    world.close()
    database.close()


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_question_is_shown_answered_and_the_call_goes_on(
    house: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the inbox to the run: the end of an id is enough, and the answer says who gave it."""
    asked = asyncio.run(house.run("command", inputs=FETCH))
    assert main(["inbox"]) == 0
    shown = capsys.readouterr().out
    assert asked.approval_id is not None
    assert asked.approval_id in shown
    assert "high risk  23 h 59 min left" in shown
    assert "runs in .: curl -O https://example.org/a" in shown
    assert "[--grant task|30m|always]" in shown
    assert main(["approve", asked.approval_id[-8:], "--reason", "fine"]) == 0
    assert capsys.readouterr().out == f"{asked.approval_id}: approved.\n"
    assert asyncio.run(house.run("command", inputs=FETCH)).ok
    (row,) = house.questions
    assert (row["status"], row["answer_reason"]) == ("approved", "fine")
    assert main(["inbox"]) == 0
    assert capsys.readouterr().out == "Nothing waits for you.\n"


def test_denial_needs_a_reason_and_reaches_the_agent(
    house: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """No without a reason is wrong usage; with one, the agent reads it."""
    asked = asyncio.run(house.run("send"))
    assert main(["deny", str(asked.approval_id)]) == 2
    assert main(["deny", str(asked.approval_id), "--reason", "not now"]) == 0
    again = asyncio.run(house.run("send"))
    assert again.error is not None
    assert "not now" in again.error.message
    capsys.readouterr()
    assert main(["approve", str(asked.approval_id)]) == 2
    assert "it is rejected" in capsys.readouterr().err


def test_equal_questions_are_one_line_and_one_answer(
    house: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tasks with the same question make one entry that names both."""
    for task in ("task_1", "task_2"):
        asyncio.run(house.run("send", task_id=task))
    (entry,) = _json(capsys, "inbox")
    assert len(entry["equal"]) == 1
    assert main(["inbox"]) == 0
    assert "(2 equal questions)" in capsys.readouterr().out
    (done,) = _json(capsys, "approve", entry["approval_id"], entry["equal"][0])
    assert done["equal"] == entry["equal"]


def test_grant_is_given_listed_and_revoked(house: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A class of acts for 30 minutes, seen as a line, taken back."""
    asked = asyncio.run(house.run("command", inputs=FETCH))
    (done,) = _json(capsys, "approve", str(asked.approval_id), "--grant", "30m")
    (line,) = _json(capsys, "inbox", "--grants")
    assert done["grants"] == [line["grant_id"]]
    assert line["line"].startswith("allow command:network.fetch:curl -O until ")
    assert main(["inbox", "--grants"]) == 0
    assert line["grant_id"] in capsys.readouterr().out
    assert main(["inbox", "--revoke", line["grant_id"]]) == 0
    assert "Revoked: allow command:network.fetch" in capsys.readouterr().out
    assert _json(capsys, "inbox", "--grants") == []
    assert main(["inbox", "--revoke", line["grant_id"]]) == 4


@pytest.mark.parametrize("mark", ["PROCTOR_RUN", "PROCTOR_ATTEMPT_MARK"])
def test_agent_cannot_answer(
    house: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """What Proctor started is refused, with exit code 5, and the question stays open."""
    asked = asyncio.run(house.run("send"))
    monkeypatch.setenv(mark, "x")
    for words in (["approve"], ["deny", "--reason", "x"]):
        assert main([*words, str(asked.approval_id)]) == 5
    assert main(["profiles", "use", "technical"]) == 5
    assert "only a person may answer" in capsys.readouterr().err
    assert [row["status"] for row in house.questions] == ["pending"]


def test_token_others_can_read_proves_nothing(house: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A token file that is open to others is refused rather than trusted."""
    asked = asyncio.run(house.run("send"))
    assert main(["deny", str(asked.approval_id), "--reason", "first use makes the token"]) == 0
    house.settings().paths.token_file.chmod(0o644)
    asked = asyncio.run(house.run("send", task_id="other"))
    assert main(["approve", str(asked.approval_id)]) == 5
    assert "only you can read" in capsys.readouterr().err


def test_unknown_and_ambiguous_ids_are_refused(house: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is answered by guessing."""
    for content in ("a", "b"):
        asyncio.run(house.run("send", inputs={"content": content}))
    assert main(["approve", "appr_none"]) == 4
    assert main(["approve", ""]) == 2
    assert "give more of the id" in capsys.readouterr().err
    assert {row["status"] for row in house.questions} == {"pending"}


def test_one_wrong_id_answers_none(house: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Several answers are one transaction."""
    asked = asyncio.run(house.run("send"))
    assert main(["approve", str(asked.approval_id), "appr_none"]) == 4
    assert "appr_none" in capsys.readouterr().err
    assert [row["status"] for row in house.questions] == ["pending"]


def test_cost_shows_what_was_used(house: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Calls, tokens and money by session, and one session in full; an unknown one is exit code 4."""
    assert main(["cost"]) == 0
    assert capsys.readouterr().out == "Nothing was used yet.\n"
    for tool in ("look", "ask_model", "free_model"):
        assert asyncio.run(house.run(tool)).ok
    (row,) = _json(capsys, "cost")
    assert (row["id"], row["calls"], row["tokens"], row["usd"]) == ("trace_t", 3, 200, 0.0005)
    assert row["unpriced_calls"] == 1
    assert main(["cost"]) == 0
    assert "$0.00 +?" in capsys.readouterr().out
    report = _json(capsys, "cost", "--session", "trace_t")
    assert report["by_domain"]["agent"]["used"] == 2
    assert report["by_tool"]["look"] == {"used": 1, "held": 0, "limit": None, "percentage": None}
    assert main(["cost", "--session", "trace_t"]) == 0
    assert "domain agent" in capsys.readouterr().out
    assert len(_json(capsys, "cost", "--by", "day")) == 1
    assert main(["cost", "--session", "nothing"]) == 4


@pytest.mark.parametrize(
    ("typed", "status", "lines"),
    [
        (["y\n"], "approved", 0),
        (["a\n"], "approved", 1),
        (["t\n"], "approved", 1),
        (["n\n", "not on Friday\n"], "rejected", 0),
        (["\n"], "pending", 0),
        (["x\n", "l\n"], "pending", 0),
    ],
)
def test_question_is_answered_inline_where_a_person_sits(
    house: World, typed: list[str], status: str, lines: int
) -> None:
    """Shown and answered on the very terminal that is attached; Enter leaves it open, typed too early is no answer."""
    asked = asyncio.run(house.run("command", inputs=FETCH))
    app = open_app()
    with typist(typed, prompt="]: ", before="y\n") as person:
        answered = answer_here(app, asked.approval_id or "")
    assert "runs in .: curl -O https://example.org/a" in person.text
    assert "[a]lways" in person.text
    assert answered is (status != "pending")
    (row,) = house.questions
    assert row["status"] == status
    if status == "rejected":
        assert row["answer_reason"] == "not on Friday"
    with app.database.read() as connection:
        assert len(list_grants(connection, datetime.now(UTC))) == lines
    app.close()


def test_nobody_is_asked_inline_without_a_terminal_or_in_an_agents(
    house: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No terminal, or one that Proctor itself opened for an agent: the question stays open."""
    asked = asyncio.run(house.run("command", inputs=FETCH))
    app = open_app()
    assert not answer_here(app, asked.approval_id or "")
    app.close()
    monkeypatch.setenv(MARKS[0], "1")
    app = open_app()
    with typist(["y\n"], prompt="]: "):
        assert not answer_here(app, asked.approval_id or "")
    app.close()
    assert [row["status"] for row in house.questions] == ["pending"]


def _held(person: Typist) -> Callable[..., None]:
    """`click.echo` that, having shown a prompt, comes back only when the person has typed."""
    show = click.echo

    def echo(message: str = "", **options: Any) -> None:
        show(message, **options)
        if options.get("nl") is False:
            assert person.typed.wait(10)

    return echo


@pytest.mark.parametrize(("typed", "status"), [("y\n", "approved"), ("n\n", "rejected"), ("\n", "pending")])
def test_a_chats_question_takes_the_quickest_answer_and_none_typed_before_it(
    house: World, typed: str, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key pressed the moment the prompt shows counts; one pressed before it does not."""
    asked = asyncio.run(house.run("command", inputs=FETCH))
    app = open_app()
    with typist([typed], prompt="[l]ater: ", before="y\n") as person:
        monkeypatch.setattr("click.echo", _held(person))
        answered = asyncio.run(Screen(app, streams=True).ask_for([asked.approval_id or ""]))
    app.close()
    assert answered is (status != "pending")
    assert [row["status"] for row in house.questions] == [status]


@pytest.mark.parametrize(
    ("told", "shown"),
    [('{"error":"Refused: no.","code":"x"}', "t: Refused: no."), ("[1]", "t: [1]"), ("{bad", "t: {bad")],
)
def test_a_failed_call_is_told_as_a_sentence(
    house: World, told: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The person at the chat reads what went wrong, not the JSON that the model gets."""
    app = open_app()
    event = TurnEvent("tool_end", told, "t", details={"ok": False})
    asyncio.run(Screen(app, streams=True).listen(event))
    app.close()
    assert capsys.readouterr().err.strip() == shown
