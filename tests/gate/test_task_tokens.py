"""A task's token is nobody's but its attempt's, whatever is shown in its place; and it is never a person's."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.gate.humans import NotHumanError, human_with_token, user_at_terminal
from proctor.gate.task_tokens import VARIABLE, TaskTokenError, find_holder, hash_of, held_call, new_token
from proctor.protocol.events import ActorKind
from proctor.store.database import Database
from proctor.store.tables import attempts
from proctor.trace.redact import Redactor
from tests.support.rows import NOON, add_task, insert


def _attempt(database: Database, token: str, **more: object) -> None:
    add_task(database, attempt=1, trace_id="trace-1", workspace="/repo", status="in_progress")
    row = {"task_id": "task-1", "attempt": 1, "agent_name": "forge", "owner": "x", "worktree": "/wt"}
    insert(database, attempts, **{**row, "token_hash": hash_of(token), **more})


def test_the_token_of_a_running_attempt_is_its_agent(sqlite_database: Database) -> None:
    """Its calls act in the worktree, by the rules of the user's own workspace, in the task's trace and budget."""
    token = new_token("task-1", 1)
    _attempt(sqlite_database, token)
    with sqlite_database.read() as connection:
        holder = find_holder(connection, token)
    assert holder is not None
    call = held_call("read_file", {"path": "a"}, holder, "standard")
    assert (call.actor.kind, call.actor.name) == (ActorKind.AGENT, "forge")
    assert (call.workspace, call.worktree_of, call.rules_from) == (Path("/wt"), Path("/repo"), Path("/repo"))
    assert (call.task_id, call.attempt, call.trace_id, call.run_id) == ("task-1", 1, "trace-1", "trace-1")


def test_an_ended_or_overtaken_attempt_and_one_without_a_token_have_none(sqlite_database: Database) -> None:
    """Void by facts: the end in the row, a newer attempt of the task, no hash at all."""
    token = new_token("task-1", 1)
    _attempt(sqlite_database, token, ended_at=NOON)
    with sqlite_database.write() as connection:
        assert find_holder(connection, token) is None
        connection.execute(attempts.update().values(ended_at=None))
        assert find_holder(connection, token) is not None
        connection.execute(attempts.update().values(token_hash=None))
        assert find_holder(connection, token) is None


def test_an_attempt_without_a_place_calls_nothing(sqlite_database: Database) -> None:
    """Before its worktree is written down there is nowhere to act."""
    token = new_token("task-1", 1)
    _attempt(sqlite_database, token, worktree=None)
    with sqlite_database.read() as connection:
        holder = find_holder(connection, token)
    assert holder is not None
    with pytest.raises(TaskTokenError, match="no place"):
        held_call("read_file", {}, holder, "standard")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.one_of(
        st.text(max_size=120), st.from_regex(r"ptask\.task-1\.[0-9]{1,9}\.[A-Za-z0-9_-]{43}", fullmatch=True)
    )
)
def test_nothing_else_opens_it(sqlite_database: Database, text: str) -> None:
    """Guesses, other attempts and rubbish find nobody and break nothing."""
    with sqlite_database.write() as connection:
        connection.execute(attempts.delete())
        known = connection.exec_driver_sql("SELECT count(*) FROM task_queue").scalar()
    token = new_token("task-1", 1)
    if not known:
        _attempt(sqlite_database, token)
    with sqlite_database.read() as connection:
        assert find_holder(connection, text) is None
        assert find_holder(connection, token[:-1]) is None


def test_a_task_token_is_no_person(tmp_path: Path) -> None:
    """It answers nothing by itself, and a command that finds it in its environment is not a person's."""
    token_file = tmp_path / "token"
    token = new_token("task-1", 1)
    with pytest.raises(NotHumanError, match="wrong"):
        human_with_token(token, token_file=token_file, name="x")
    with pytest.raises(NotHumanError, match="started by an agent"):
        user_at_terminal({VARIABLE: token}, token_file=token_file, name="x")


def test_a_printed_token_is_redacted() -> None:
    """An agent that prints its environment does not print its token into the trace."""
    token = new_token("task-1", 1)
    secret = token.rpartition(".")[2]
    redactor = Redactor(key=b"k" * 32)
    for text in (f"{VARIABLE}={token}", f'"{VARIABLE}": "{token}"', f"Authorization: Bearer {token}"):
        assert secret not in redactor.text(text)
