"""A PostgreSQL server that goes away: one sentence meanwhile, work again afterwards, nothing acknowledged lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import StoreUnavailableError
from proctor.store.database import Database
from proctor.store.schema import open_database, upgrade
from proctor.store.tables import task_queue
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop; no other test uses it."""
    server = PostgresServer(PostgresServer.new_home())
    try:
        server.start()
        yield server
    finally:
        server.remove()


class Writer(threading.Thread):
    """Writes one task after the other and notes which were acknowledged; tries again after each error."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.enough = threading.Event()
        self.acknowledged: list[tuple[float, str]] = []
        self.errors: list[StoreUnavailableError] = []

    def run(self) -> None:
        """Write until told to stop."""
        while not self.enough.wait(0.02):
            name = uuid.uuid4().hex
            try:
                with self.database.write() as connection:
                    connection.execute(sa.insert(task_queue).values(task_id=name, description="d"))
            except StoreUnavailableError as error:
                self.errors.append(error)
                self.enough.wait(0.3)
            else:
                self.acknowledged.append((time.monotonic(), name))


def _wait_for(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_server_gone_for_ten_seconds_loses_nothing_acknowledged(
    own_server: PostgresServer, mode: str
) -> None:
    """Writers get one sentence while it is away and go on by themselves with the same Database afterwards."""
    own_server.execute("CREATE DATABASE work")
    database = Database(own_server.url("work"))
    upgrade(database)
    writers = [Writer(database) for _ in range(4)]
    for one in writers:
        one.start()
    try:
        _wait_for(lambda: all(len(one.acknowledged) > 20 for one in writers))
        own_server.stop(mode)
        time.sleep(10)
        own_server.start()
        back = time.monotonic()
        _wait_for(lambda: all(one.acknowledged[-1][0] > back for one in writers))
    finally:
        for one in writers:
            one.enough.set()
        for one in writers:
            one.join()
    assert all(one.acknowledged[-1][0] > back for one in writers)
    assert all(one.errors for one in writers)
    sentences = {str(error) for one in writers for error in one.errors}
    assert all(
        "\n" not in text and "Check PROCTOR_DATABASE_URL and that the server runs" in text
        for text in sentences
    )
    with database.read() as connection:
        kept = set(connection.execute(sa.select(task_queue.c.task_id)).scalars())
    database.close()
    assert {name for one in writers for _, name in one.acknowledged} <= kept


def test_server_that_never_answers_is_one_sentence_without_the_password() -> None:
    """A wrong address ends at once, says the cure, and does not show the password."""
    with pytest.raises(StoreUnavailableError) as caught:
        open_database("postgresql://me:topsecret@/name?host=/nonexistent")
    assert "Check PROCTOR_DATABASE_URL" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "topsecret" not in str(caught.value)


def test_missing_database_is_one_sentence(postgres_server: PostgresServer) -> None:
    """A name that the server does not know says to create it."""
    with pytest.raises(StoreUnavailableError, match="Create the database"):
        open_database(postgres_server.url("no_such_database"))


def test_statement_ended_by_the_server_leaves_the_pool_usable(postgres_database: Database) -> None:
    """A connection that the server cuts in the middle is an unavailable store once, and gone from the pool."""
    with (
        pytest.raises(StoreUnavailableError, match="terminating connection"),
        postgres_database.write() as connection,
    ):
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    with postgres_database.write() as connection:
        connection.execute(sa.insert(task_queue).values(description="again"))
