"""The supervisor behind its socket: whatever is said to it, it goes on; it leaves when idle and says so."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from loguru import logger

from proctor import __version__
from proctor.config import Paths
from proctor.engine import client, supervisor
from proctor.engine.supervisor import Supervisor, log_to, only_one
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import SupervisorUnavailableError
from proctor.protocol.states import TaskState
from proctor.store.tables import events
from tests.engine.conftest import House
from tests.support.rows import rows_of


@pytest.fixture
def paths(home: Path) -> Paths:
    """The user's places."""
    return Paths.from_environ(dict(os.environ))


@asynccontextmanager
async def served(house: House, paths: Paths, **more: Any) -> AsyncIterator[Supervisor]:
    """A supervisor that listens while the block lasts."""
    made = Supervisor(house.executor, house.writer, **more)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(made.serve(paths.socket))
        await house.until(lambda: client.greet(paths) is not None)
        try:
            yield made
        finally:
            made.stop()
            await asyncio.wait_for(serving, 30)


def _say(paths: Paths, raw: bytes) -> bytes:
    """Send bytes as they are; what came back."""
    from proctor.engine import address

    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        address.connect(line, paths.socket)
        line.sendall(raw)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65_536), b""))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"not json\n",
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b"1" * 60_000 + b"\n",
        b"x" * 200_000,
        b'{"op": "gc", "before_ms": "soon"}\n',
    ],
    ids=["nothing", "empty", "words", "bytes", "deep", "number", "long", "wrong type"],
)
async def test_nonsense_on_the_socket_ends_only_that_connection(
    house: House, paths: Paths, raw: bytes
) -> None:
    """Hang up, go on: the next one is answered and the queue works."""
    async with served(house, paths):
        assert await asyncio.to_thread(_say, paths, raw) == b""
        hello = await asyncio.to_thread(client.greet, paths)
        assert hello is not None
        task = house.tasks.add(NewTask("x", agent="instant"))
        await asyncio.to_thread(client.wake, paths)
        await house.ended(task.task_id)


async def test_hello_wake_stop_and_the_unknown(house: House, paths: Paths) -> None:
    """It says who it is, takes a wake-up, refuses what it does not know, and leaves when asked."""
    async with served(house, paths) as made:
        hello = await asyncio.to_thread(client.greet, paths)
        assert hello is not None
        assert (hello.pid, hello.version, hello.leaving) == (os.getpid(), __version__, False)
        answer = json.loads(await asyncio.to_thread(_say, paths, b'{"op": "dance"}\n'))
        assert "dance" in answer["error"]
        assert json.loads(await asyncio.to_thread(_say, paths, b"[1]\n"))["error"]
        assert await asyncio.to_thread(client.wake, paths)
        made.stop()
        assert not await asyncio.to_thread(client.wake, paths)
    assert await asyncio.to_thread(client.greet, paths) is None
    assert not paths.socket.exists()
    told = rows_of(house.database, sa.select(events.c.event).where(events.c.trace_id == supervisor.TRACE))
    assert [row["event"] for row in told] == ["supervisor_started", "supervisor_stopped"]


async def test_a_stale_socket_file_is_replaced(house: House, paths: Paths) -> None:
    """What kill -9 left behind does not stop the next one; until then nobody answers."""
    paths.socket.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(paths.socket))
    assert client.greet(paths) is None
    async with served(house, paths):
        assert await asyncio.to_thread(client.greet, paths) is not None
        assert paths.socket.stat().st_mode & 0o777 == 0o600


async def test_it_leaves_when_idle_but_not_while_there_is_work(house: House, paths: Paths) -> None:
    """A parked or ended task does not hold it; a waiting one does."""
    task = house.tasks.add(NewTask("x", agent="nobody-here"))
    async with served(house, paths, idle_s=0.3) as made:
        await asyncio.sleep(1.0)
        assert await asyncio.to_thread(client.greet, paths) is not None
        house.tasks.cancel(task.task_id, by="t")
        await house.until(lambda: client.greet(paths) is None)
        assert made._stopping


async def test_a_lost_executor_is_followed_by_a_new_one(house: House, paths: Paths) -> None:
    """The supervisor stays; the task is taken over under a new lease."""
    async with served(house, paths) as made:
        first = made._executor
        assert first is not None
        first._lost()
        await house.until(lambda: made._executor is not first and first.lost)
        task = house.tasks.add(NewTask("x", agent="instant"))
        made.wake()
        (ended,) = await house.ended(task.task_id)
    assert ended.status is TaskState.COMPLETED


async def test_an_engine_database_that_vanishes_is_made_anew(house: House, paths: Paths) -> None:
    """SQLite's engine.db is deleted under a living supervisor: it begins anew, and no task is lost."""
    if house.database.dialect != "sqlite":
        return  # there is no file; dropping DBOS's tables is not an accident
    ids = house.tasks.add_many([NewTask(str(n), agent="instant") for n in range(5)])
    async with served(house, paths) as made:
        await house.ended(*ids)
        first = made._executor
        for name in house.root.glob("engine.db*"):
            name.unlink()
        await house.until(lambda: made._executor is not first)
        more = house.tasks.add_many([NewTask(str(n), agent="instant") for n in range(5)])
        made.wake()
        done = await house.ended(*more)
    assert {task.status for task in done} == {TaskState.COMPLETED}


def test_one_lock_one_supervisor(tmp_path: Path) -> None:
    """The second is told no, also when the first ends with an error of just that kind."""
    lock = tmp_path / "state" / "supervisor.lock"
    with only_one(lock) as first, only_one(lock) as second:
        assert (first, second) == (True, False)
    with pytest.raises(BlockingIOError), only_one(lock):
        raise BlockingIOError
    with only_one(lock) as again:
        assert again


def test_the_log_rotates(tmp_path: Path) -> None:
    """Five files of ten megabytes, and no secret-revealing variables in tracebacks."""
    path = tmp_path / "orchestrator.log"
    try:
        log_to(path, "INFO")
        (handler,) = logger._core.handlers.values()  # type: ignore[attr-defined]
        sink = handler._sink
        logger.info("one line")
        assert "one line" in path.read_text()
        assert sink._rotation_function is not None
        assert sink._retention_function is not None
    finally:
        logger.remove()
        logger.add(sys.stderr)


def test_a_supervisor_that_does_not_say_who_it_is_is_reported(paths: Paths) -> None:
    """Somebody else's socket: a sentence with the log's place, no traceback."""
    program = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True)\n"
        'while True: c,_=s.accept(); c.recv(99); c.sendall(b\'{"error": "?"}\\n\'); c.close()'
    )
    paths.socket.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", program, str(paths.socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            with pytest.raises(SupervisorUnavailableError, match="who it is"):
                client.greet(paths)
        finally:
            other.kill()
