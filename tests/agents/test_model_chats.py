"""Chats with API models: limits, failures, questions, crashes, money and secrets; always an answer, nothing twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

from proctor.agents.model_chats import Watch
from proctor.agents.model_rows import ChatBusyError, ChatWaitsError
from proctor.agents.model_turn import TurnOutcome
from proctor.protocol.errors import UnavailableError, UsageError
from proctor.store.database import Database
from proctor.store.tables import leases
from proctor.testing.model_server import ModelServer
from proctor.trace.verify import verify
from tests.agents.chat_world import World, call, script, world
from tests.support.rows import rows_of

RULE = call("add_architecture_rule", feature_type="billing")


@pytest.fixture(scope="module")
def models() -> Iterator[ModelServer]:
    """Models that follow the prompt's script."""
    with ModelServer() as running:
        yield running


@pytest.fixture
def house(tmp_path: Path, models: ModelServer) -> Iterator[World]:
    """A house with API agents."""
    with world(tmp_path, models) as made:
        yield made


async def there(path: Path) -> None:
    """Until a command has made this file."""
    async with asyncio.timeout(60):
        while not path.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.02)


async def asked(models: ModelServer) -> None:
    """Until a model has been asked."""
    async with asyncio.timeout(60):
        while not models.requests:  # noqa: ASYNC110 - another thread is asked
            await asyncio.sleep(0.02)


# ── the loop ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["CHAT", "SOLACE", "FORGE", "GEM", "ARCHITECT"])
async def test_every_protocol_calls_tools_in_parallel_and_mends_its_arguments(
    house: World, agent: str
) -> None:
    """Two calls at once, then wrong arguments that come back as an error, then the answer; tokens and money counted."""
    both = {"text": "look", "calls": [{"name": "read_file", "args": {"path": "a.txt"}},
                                      {"name": "list_directory", "args": {"path": "."}}]}  # fmt: skip
    chat = house.open(agent)
    end = await house.chats.say(
        chat, script(both, call("read_file", nope=1), {"text": "done"}), Watch(listen=house.listen)
    )
    assert (end.outcome, end.text, end.requests) == (TurnOutcome.ANSWERED, "done", 3)
    told = [row for row in house.chats.messages(chat) if row["role"] == "tool"]
    assert [row["details"]["code"] for row in told] == ["", "", "invalid_input"]
    assert "".join(event.text for event in house.events if event.kind == "text") == "lookdone"
    read, written, micro, priced = house.chats.spent(chat)
    assert (read, written, priced) == (4200, 102, True)
    assert (micro == 0) is (agent == "ARCHITECT")
    assert house.open_leases() == 0
    assert verify(house.app.database, house.app.key).ok


@pytest.mark.parametrize("same", ["call_0", ""])
async def test_calls_that_a_server_gives_one_id_are_calls_of_their_own(house: World, same: str) -> None:
    """Servers that speak OpenAI's protocol may name every call alike: each is carried out, none gets another's result."""
    acts = (
        ("execute_command", {"command": "wc -l < a.txt"}),
        ("write_file", {"path": "a.txt", "content": "1\n2\n3\n"}),
        ("execute_command", {"command": "wc -l < a.txt"}),
    )
    steps = [{"call": {"name": name, "args": args, "id": same}} for name, args in acts]
    chat = house.open("CHAT")
    end = await house.chats.say(chat, script(*steps, {"text": "done"}))
    assert (end.outcome, end.text) == (TurnOutcome.ANSWERED, "done")
    told = [row for row in house.chats.messages(chat) if row["role"] == "tool"]
    assert [row["details"]["code"] for row in told] == ["", "", ""]
    assert "3" in from_json(told[-1]["text"])["stdout"]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["CHAT", "SOLACE", "FORGE", "GEM", "ARCHITECT"])
@pytest.mark.parametrize(
    "fault", [{"http": 500}, {"drop": True}, {"bad_json": True}], ids=["500", "drop", "bad_json"]
)
async def test_a_fault_that_passes_is_only_waited_for(
    house: World, agent: str, fault: dict[str, Any]
) -> None:
    """Twice a failure and then an answer, in every protocol: one turn, two pauses, one answer."""
    chat = house.open(agent)
    step = {**fault, "times": 2, "text": "back again after a while"}
    end = await house.chats.say(chat, f"{agent}: {script(step)}", Watch(listen=house.listen))
    assert (end.outcome, end.text) == (TurnOutcome.ANSWERED, "back again after a while")
    assert house.pauses == [1.0, 2.0]
    assert [event.kind for event in house.events].count("retry") == 2
    assert house.open_leases() == 0


@pytest.mark.parametrize(
    ("step", "pauses", "said"),
    [
        ({"http": 500}, [1.0, 2.0], "failed on its side"),
        ({"http": 429, "headers": {"retry-after": "7"}}, [7.0, 7.0], "too many requests"),
        ({"http": 429, "headers": {"retry-after": "900"}}, [], "too many requests"),
        ({"http": 401}, [], "Check OPENAI_API_KEY"),
        ({"http": 404}, [], "Set agents.CHAT.model"),
        ({"hang": True}, [], "did not answer in time"),
        ({"stall": True, "text": "x" * 99}, [], "did not answer in time"),
        ({"text": " "}, [], "empty answer"),
    ],
)
async def test_a_failure_that_stays_is_said_plainly(
    house: World, step: dict[str, Any], pauses: list[float], said: str
) -> None:
    """Bounded tries, then one sentence with the cure; the chat stays and answers the next message."""
    chat, file = house.open(), house.workspace / "proctor.toml"
    patient = file.read_text()
    if said == "did not answer in time":
        file.write_text(patient.replace("seconds = 30", "seconds = 2", 1))
    end = await house.chats.say(chat, script(step))
    file.write_text(patient)
    assert end.outcome is TurnOutcome.FAILED
    assert said in end.text
    assert house.pauses == pauses
    again = await house.chats.say(chat, script({"text": "here I am"}))
    assert again.text == "here I am"
    assert house.open_leases() == 0


async def test_a_server_that_is_not_there_is_named_with_the_cure(tmp_path: Path) -> None:
    """Ollama that does not run says how to start it."""
    with ModelServer() as gone:
        pass
    with world(tmp_path, gone) as house:
        end = await house.chats.say(house.open("ARCHITECT"), "hello")
        assert "ollama serve" in end.text
        assert house.pauses == [1.0, 2.0]


async def test_the_turns_deadline_ends_it_with_an_answer(house: World) -> None:
    """Also a turn whose every request is in time has an end."""
    chat = house.open()
    end = await house.chats.say(chat, script({"hang": True}), Watch(seconds=0.5))
    assert end.outcome is TurnOutcome.TIMED_OUT
    assert "longer than 0.5 s" in end.text
    assert house.chats.stands(house.chats.get(chat)) == "idle"


async def test_the_limit_of_requests_is_a_setting(tmp_path: Path, models: ModelServer) -> None:
    """With two, the second may call nothing."""
    with world(tmp_path, models) as house:
        path = house.workspace / "proctor.toml"
        path.write_text(path.read_text().replace("max_tokens = 500", "max_tokens = 500\nrequests = 2", 1))
        end = await house.chats.say(house.open(), script(*[call("list_directory")] * 4))
        assert (end.outcome, end.requests) == (TurnOutcome.ANSWERED, 2)
        assert models.requests[-1][1]["tool_choice"] == "none"
        assert len(house.calls("list_directory")) == 1


async def test_a_flood_of_calls_and_of_output_is_bounded(house: World, models: ModelServer) -> None:
    """Sixteen calls at once are carried out, the rest is told; a long output says that it is cut."""
    (house.workspace / "big.txt").write_text("0123456789" * 10_000)
    calls = [{"name": "read_file", "args": {"path": "big.txt"}} for _ in range(20)]
    end = await house.chats.say(house.open(), script({"calls": calls}, {"text": "enough"}))
    assert end.text == "enough"
    assert len(house.calls("read_file")) == 16
    told = [one["content"] for one in models.requests[-1][1]["messages"] if one["role"] == "tool"]
    assert sum("at most 16 calls" in one for one in told) == 4
    assert all(len(one) < 25_000 for one in told)
    assert sum("(truncated:" in one for one in told) == 16


async def test_cancelling_a_turn_leaves_the_chat_whole(house: World) -> None:
    """Ctrl-C: the running command ends, the chat is idle, and the next message is answered."""
    chat, begun = house.open(), asyncio.Event()

    async def listen(event: Any) -> None:
        if event.kind == "tool_start":
            begun.set()

    async with asyncio.TaskGroup() as group:
        step = call("execute_command", command="touch begun; sleep 60")
        turn = group.create_task(house.chats.say(chat, script(step), Watch(listen=listen)))
        await begun.wait()
        await there(house.workspace / "begun")
        turn.cancel()
    assert (house.chats.get(chat).state, house.chats.get(chat).outcome) == ("idle", "cancelled")
    assert (await house.chats.say(chat, script({"text": "going on"}))).text == "going on"
    assert house.open_leases() == 0


async def test_one_chat_answers_one_message_at_a_time(house: World, models: ModelServer) -> None:
    """Whoever comes second is told so, and nothing of theirs is kept."""
    models.requests.clear()
    chat = house.open()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(house.chats.say(chat, script({"text": "slow", "delay": 1.5})))
        await asked(models)
        with pytest.raises(ChatBusyError):
            await house.chats.say(chat, "me too")
    assert first.result().text == "slow"
    assert len(house.chats.messages(chat)) == 2
    with pytest.raises(UsageError):
        await house.chats.say(chat, "   ")


async def test_the_turns_of_one_process_are_bounded(
    house: World, models: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more than there is room for is told to come again; nothing of it is kept."""
    models.requests.clear()
    monkeypatch.setattr("proctor.agents.model_chats.MOST_TURNS", 1)
    chats, first, second = house.chats, house.open(), house.open()
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(chats.say(first, script({"text": "slow", "delay": 1.5})))
        await asked(models)
        with pytest.raises(UnavailableError, match="in a moment"):
            await chats.say(second, "me too")
    assert slow.result().text == "slow"
    assert (await chats.say(second, script({"text": "now"}))).text == "now"


# ── questions and crashes ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_parked_chat_refuses_new_words_and_goes_on_without_repeating(house: World) -> None:
    """The safe call of the same answer ran once, before the pause; the asked one once, after the yes."""
    both = {"calls": [{"name": "read_file", "args": {"path": "a.txt"}}, RULE["call"]]}
    chat = house.open()
    end = await house.chats.say(chat, script(both, {"text": "added"}))
    assert end.outcome is TurnOutcome.PARKED
    assert house.chats.get(chat).waiting_for == end.waiting_for
    with pytest.raises(ChatWaitsError, match=end.waiting_for[0]):
        await house.chats.say(chat, "never mind")
    assert (await house.chats.go_on(chat)).outcome is TurnOutcome.PARKED
    house.answer(end.waiting_for[0])
    assert (await house.chats.go_on(chat)).text == "added"
    assert [len(house.calls(name)) for name in ("read_file", "add_architecture_rule")] == [1, 1]
    assert [row["status"] for row in house.questions()] == ["approved"]


async def test_a_turn_is_parked_and_goes_on_on_both_databases(
    tmp_path: Path, models: ModelServer, database: Database
) -> None:
    """SQLite and PostgreSQL keep the same chat, also with characters that one of them cannot keep."""
    url = database.url.render_as_string(hide_password=False)
    with world(tmp_path, models, database="" if database.dialect == "sqlite" else url) as house:
        chat = house.open()
        end = await house.chats.say(chat, script(RULE, {"text": "added\0 «✓»"}))
        house.answer(end.waiting_for[0])
        assert (await house.chats.go_on(chat)).outcome is TurnOutcome.ANSWERED
        assert house.chats.messages(chat)[-1]["text"] == "added� «✓»"
        again = await house.chats.say(chat, script({"text": "and again"}))
        assert again.text == "and again"
        assert verify(house.app.database, house.app.key).ok


async def test_a_no_reaches_the_model_and_nothing_is_done(house: World, models: ModelServer) -> None:
    """Denied is denied; the model is told who said no and why."""
    chat = house.open()
    end = await house.chats.say(chat, script(RULE, {"text": "then not"}))
    house.answer(end.waiting_for[0], yes=False)
    assert (await house.chats.go_on(chat)).text == "then not"
    told = [one["content"] for one in models.requests[-1][1]["messages"] if one["role"] == "tool"]
    assert "David said no: because" in told[0]
    assert house.calls("add_architecture_rule")[0]["started_at"] is None


RESUME = """
import asyncio, sys
from pathlib import Path
from proctor.app import App
from proctor.config import load_settings
from proctor.protocol.errors import ProctorError
app = App(load_settings(Path(sys.argv[1])))
try:
    print(asyncio.run(app.chats.go_on(sys.argv[2])).text)
except ProctorError as error:
    print(error.code)
finally:
    app.close()
"""


@pytest.mark.slow
async def test_another_process_goes_on_and_only_one_of_two(house: World) -> None:
    """The history is all it needs; of two that come at once, one has it and the other is told so."""
    chat = house.open()
    end = await house.chats.say(chat, script(RULE, {"text": "added elsewhere", "delay": 1}))
    house.answer(end.waiting_for[0])
    words = [sys.executable, "-c", RESUME, str(house.workspace), chat]

    def go() -> str:
        return subprocess.run(
            words, env=house.environ, stdout=subprocess.PIPE, text=True, timeout=100, check=True
        ).stdout.strip()

    async with asyncio.TaskGroup() as group:
        both = [group.create_task(asyncio.to_thread(go)) for _ in range(2)]
    said = sorted(one.result() for one in both)
    assert said in (["added elsewhere", "chat_busy"], ["added elsewhere", "added elsewhere"])
    assert len(house.calls("add_architecture_rule")) == 1
    asked = [row for row in house.calls("model_request") if row["state"] == "ended"]
    assert len(asked) == 2


VICTIM = """
import asyncio, os, sys, threading, time
from pathlib import Path
from proctor.agents.model_chats import Watch
from proctor.app import App
from proctor.config import load_settings
app = App(load_settings(Path(sys.argv[1])))
def die():
    while not Path(sys.argv[4]).exists():
        time.sleep(0.02)
    os._exit(9)
async def listen(event):
    if event.kind == "tool_start" and event.details["input"].get("command", "").startswith(sys.argv[3]):
        threading.Thread(target=die, daemon=True).start()
chat = app.chats.open("CHAT", workspace=Path(sys.argv[1]), by="David")
print(chat.chat_id, flush=True)
asyncio.run(app.chats.say(chat.chat_id, sys.argv[2], Watch(listen=listen)))
"""


def killed(house: World, prompt: str, when: str, made: str = "") -> str:
    """A chat whose process died in the middle: as soon as a command that begins so has made a file, or at once."""
    words = [sys.executable, "-c", VICTIM, str(house.workspace), prompt, when, str(house.workspace / made)]
    done = subprocess.run(
        words, env=house.environ, stdout=subprocess.PIPE, text=True, timeout=100, check=False
    )
    assert done.returncode == 9, done
    return done.stdout.strip()


@pytest.mark.slow
async def test_a_chat_whose_process_died_between_calls_goes_on_and_repeats_none(house: World) -> None:
    """Seen as interrupted; the first command stays done, the second is done now."""
    steps = [call("execute_command", command=f"echo {word} >> ledger.txt") for word in ("one", "two")]
    chat = killed(house, script(*steps, {"text": "both"}), "echo two")
    assert house.chats.stands(house.chats.get(chat)) == "interrupted"
    end = await house.chats.go_on(chat)
    assert end.text == "both" or end.outcome is TurnOutcome.PARKED
    if end.outcome is TurnOutcome.PARKED:  # death came after the second had begun: a person decides
        house.answer(end.waiting_for[0], yes=False)
        assert (await house.chats.go_on(chat)).text == "both"
    ledger = (house.workspace / "ledger.txt").read_text().split()
    assert ledger.count("one") == 1
    assert ledger.count("two") <= 1


@pytest.mark.slow
async def test_a_command_that_was_running_when_the_process_died_asks_before_it_runs_again(
    house: World,
) -> None:
    """Whether it took effect is not known, so a person is asked; a no leaves it as it is."""
    step = call("execute_command", command="touch begun; sleep 30; echo late >> ledger.txt")
    chat = killed(house, script(step, {"text": "left alone"}), "touch", "begun")
    end = await house.chats.go_on(chat)
    assert end.outcome is TurnOutcome.PARKED
    assert "interrupted" in house.questions()[0]["action"]
    house.answer(end.waiting_for[0], yes=False)
    assert (await house.chats.go_on(chat)).text == "left alone"
    assert not (house.workspace / "ledger.txt").exists()


async def test_new_words_in_an_interrupted_chat_close_what_was_open(
    house: World, models: ModelServer
) -> None:
    """The model is told that the end of its call is not known."""
    step = call("execute_command", command="touch begun; sleep 30")
    chat = killed(house, script(step), "touch", "begun")
    end = await house.chats.say(chat, script({"text": "a new start"}))
    assert end.text == "a new start"
    told = [one["content"] for one in models.requests[-1][1]["messages"] if one["role"] == "tool"]
    assert "whether it took effect is not known" in told[0]


# ── money and secrets ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_used_up_budget_ends_the_turn_with_the_cure(tmp_path: Path, models: ModelServer) -> None:
    """Reserved before, settled after; when the most that a request may use does not fit, it is not made."""
    with world(tmp_path, models, "[limits]\ntokens = 30000\n") as house:
        chat, step = house.open(), script({"text": "ok", "usage": [9000, 100, 0]})
        ends = [await house.chats.say(chat, step) for _ in range(5)]
        assert ends[0].outcome is TurnOutcome.ANSWERED
        assert ends[-1].outcome is TurnOutcome.FAILED
        assert "budget_exceeded:tokens" in ends[-1].text
        assert "proctor.toml" in ends[-1].text
        assert house.chats.spent(chat)[0] <= 30_000
        assert house.open_leases() == 0


async def test_an_unknown_price_is_never_free(tmp_path: Path, models: ModelServer) -> None:
    """Where money is limited a remote model without a price is refused, a local one is not, a priced one is."""
    with world(tmp_path, models, "[limits]\nusd = 1.0\n") as house:
        local = house.workspace / "proctor.local.toml"
        local.write_text('[agents.UNPRICED.api]\nbase_url = "http://api.example.invalid/v1"\n')
        refused = await house.chats.say(house.open("UNPRICED"), script({"text": "x"}))
        assert refused.outcome is TurnOutcome.FAILED
        assert "unknown_price" in refused.text
        assert (await house.chats.say(house.open("ARCHITECT"), script({"text": "free"}))).text == "free"
        paid = await house.chats.say(house.open("CHAT"), script({"text": "paid"}))
        assert (paid.text, (paid.used.micro_usd or 0) > 0) == ("paid", True)


async def test_a_refused_request_costs_nothing_and_a_broken_one_what_it_may_have_cost(house: World) -> None:
    """429 is free; a stream that was dropped is charged by its estimate, because nobody knows how far it came."""
    await house.chats.say(house.open(), script({"http": 429, "headers": {"retry-after": "900"}}))
    chat = house.open()
    await house.chats.say(chat, script({"drop": True, "text": "x" * 99}))
    charged = [row["code"] for row in house.calls("model_request")]
    assert charged == ["model_rate_limit", "model_network", "model_network", "model_network"]
    used = rows_of(house.app.database, leases.select().order_by(leases.c.created_at))
    assert {row["outcome"] for row in used} == {"settled"}


async def test_arguments_with_a_secret_do_not_survive_a_pause(house: World, models: ModelServer) -> None:
    """They are not kept, so the call is not carried out from what was kept; the model is told to make it again."""
    secret = "sk-proj-" + "a1B2" * 12
    step = call("add_architecture_rule", feature_type="billing", rules_description=f"use {secret}")
    chat = house.open()
    end = await house.chats.say(chat, script(step, {"text": "asked anew"}))
    assert end.outcome is TurnOutcome.PARKED
    house.answer(end.waiting_for[0])
    done = await house.chats.go_on(chat)
    assert done.text == "asked anew"
    told = [one["content"] for one in models.requests[-1][1]["messages"] if one["role"] == "tool"]
    assert "hold a secret" in told[0]
    path = Path(house.app.settings.database_url.removeprefix("sqlite:///"))
    house.app.database.close()
    assert all(secret.encode() not in one.read_bytes() for one in path.parent.glob("proctor.db*"))


@pytest.mark.slow
def test_only_the_sdk_in_use_is_imported(house: World) -> None:
    """An OpenAI chat loads no other provider."""
    program = RESUME.replace("app.chats.go_on(sys.argv[2])", "app.chats.say(sys.argv[2], 'hi')")
    program += "\nprint(sorted({name.partition('.')[0] for name in sys.modules}"
    program += " & {'openai', 'anthropic', 'ollama'}), 'google.genai' in sys.modules)"
    words = [sys.executable, "-c", program, str(house.workspace), house.open()]
    done = subprocess.run(words, env=house.environ, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines()[-1] == "['openai'] False"
