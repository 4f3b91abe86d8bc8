"""A server that dies and comes back: nothing acknowledged is lost, writers say so, cursors go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from proctor.protocol.errors import UnavailableError
from proctor.store.database import Database
from proctor.store.schema import upgrade
from proctor.trace.cursor import Cursor
from proctor.trace.reader import stream
from proctor.trace.verify import verify
from proctor.trace.writer import TraceWriter
from tests.support.postgres import PostgresServer
from tests.trace.support import KEY, REDACTOR, draft


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test alone may stop."""
    server = PostgresServer(PostgresServer.new_home())
    server.start()
    yield server
    server.remove()


@pytest.mark.slow
@pytest.mark.postgres
def test_a_server_gone_for_a_while_loses_nothing_acknowledged(own_server: PostgresServer) -> None:
    """Appends fail with one clear sentence while it is away and work again after; the live cursor sees all."""
    with own_server.fresh() as url:
        database = Database(url)
        upgrade(database)
        seen: list[int] = []
        with TraceWriter(database, key=KEY, redactor=REDACTOR) as writer, Cursor(database) as cursor:

            def follow() -> None:
                for event in cursor:
                    seen.append(event.seq)
                    if event.details.get("last"):
                        return

            reader = threading.Thread(target=follow)
            reader.start()
            acknowledged = [event.seq for _ in range(5) for event in writer.append([draft()])]
            own_server.stop("immediate")
            with pytest.raises(UnavailableError, match="cannot be used"):
                writer.append([draft()])
            time.sleep(1)
            own_server.start()
            acknowledged += [event.seq for _ in range(3) for event in writer.append([draft()])]
            acknowledged += [event.seq for event in writer.append([draft(details={"last": True})])]
            reader.join(30)
        assert seen == acknowledged == [event.seq for event in stream(database)]
        assert verify(database, KEY).ok
        database.close()
