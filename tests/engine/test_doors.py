"""The supervisor's doors: opened after it executes, closed with it, and never a reason to end what it executes."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.config import Paths
from proctor.engine import client
from proctor.engine import supervisor as supervisor_module
from proctor.engine.doors import LateDoors, forget_address, last_port, read_address, write_address
from proctor.engine.tasks import NewTask
from proctor.protocol.errors import UnavailableError
from tests.engine.conftest import House
from tests.engine.test_supervisor import paths, served

__all__ = ["paths"]


class Fake:
    """Doors that only tell what was done to them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.http = ""
        self.busy = False
        self.done: list[str] = []
        self._error = error
        self._closed = asyncio.Event()

    async def run(self, wake: Callable[[], None]) -> None:
        """Be open until closed."""
        self.done.append("opened")
        if self._error is not None:
            raise self._error
        self.http = "http://127.0.0.1:1"
        await self._closed.wait()
        self.http = ""
        self.done.append("closed")

    def close(self) -> None:
        """Begin to close."""
        self._closed.set()


async def test_doors_open_when_asked_for_and_close_with_the_supervisor(house: House, paths: Paths) -> None:
    """`hello` with doors opens them at once; where they are is in every hello; they close before it has left."""
    doors = Fake()
    async with served(house, paths, doors=doors):
        await house.until(
            lambda: bool((client.greet(paths, doors=True) or client.Hello(0, "", "", "", ())).http)
        )
        hello = await asyncio.to_thread(client.greet, paths)
        assert hello is not None
        assert (hello.http, hello.no_http) == ("http://127.0.0.1:1", "")
    assert doors.done == ["opened", "closed"]


async def test_doors_that_cannot_open_end_nothing(
    house: House, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told, tasks are executed all the same, and the command that wants them gets a sentence."""
    monkeypatch.setattr(supervisor_module, "DOORS_SECONDS", 0.0)
    doors = Fake(UnavailableError(what="The port", reason="it is taken", cure="Wait."))
    async with served(house, paths, doors=doors):
        await house.until(lambda: bool((client.greet(paths) or client.Hello(0, "", "", "", ())).no_http))
        hello = await asyncio.to_thread(client.greet, paths)
        assert hello is not None
        assert "it is taken" in hello.no_http
        task = house.tasks.add(NewTask("x", agent="instant"))
        await asyncio.to_thread(client.wake, paths)
        await house.ended(task.task_id)


async def test_doors_that_somebody_uses_keep_it_from_leaving(house: House, paths: Paths) -> None:
    """Idle or not: who watches keeps it; when they have gone it leaves."""
    doors = Fake()
    doors.busy = True
    async with served(house, paths, doors=doors, idle_s=0.2) as made:
        await asyncio.sleep(1.5)
        assert not made._stopping
        doors.busy = False
        await house.until(lambda: made._stopping)


async def test_late_doors_are_made_when_they_are_opened() -> None:
    """Nothing is made before; closed before it began, nothing is opened."""
    made: list[Fake] = []

    def make() -> Fake:
        made.append(Fake())
        return made[-1]

    late = LateDoors(make)
    assert (late.http, late.busy, made) == ("", False, [])
    async with asyncio.TaskGroup() as group:
        group.create_task(late.run(lambda: None))
        while not late.http:  # noqa: ASYNC110 - another thread makes them
            await asyncio.sleep(0.01)
        late.close()
    assert made[0].done == ["opened", "closed"]
    never = LateDoors(make)
    never.close()
    await never.run(lambda: None)
    assert len(made) == 1


def test_address_is_good_as_long_as_its_process(paths: Paths) -> None:
    """Ours is read back; one of a process that is gone, or of another with its pid, is none; the port is remembered."""
    assert read_address(paths) is None
    assert last_port(paths) == 0
    write_address(paths, "http://127.0.0.1:4321", "ws://127.0.0.1:1")
    found = read_address(paths)
    assert found is not None
    assert (found.http, found.ws, found.pid) == ("http://127.0.0.1:4321", "ws://127.0.0.1:1", os.getpid())
    told = json.loads(paths.address_file.read_text())
    paths.address_file.write_text(json.dumps({**told, "began": told["began"] + 1}))
    assert read_address(paths) is None
    forget_address(paths)
    assert read_address(paths) is None
    assert last_port(paths) == 4321


def test_port_that_a_person_chose_is_not_kept_after_them(paths: Paths) -> None:
    """The background goes back to its own: where `proctor serve` was, the user's next program may want to listen."""
    write_address(paths, "http://127.0.0.1:8080", "ws://127.0.0.1:8765", chosen=True)
    forget_address(paths)
    assert last_port(paths) == 0
    write_address(paths, "http://127.0.0.1:4321")
    write_address(paths, "http://127.0.0.1:8080", "ws://127.0.0.1:8765", chosen=True)
    assert last_port(paths) == 4321
    forget_address(paths)
    assert last_port(paths) == 4321


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"http": 5}', '{"port": "x"}', '{"http": "http://a:b"}']
)
def test_damaged_address_file_is_no_address(paths: Paths, text: str) -> None:
    """Whatever stands there, nobody is led anywhere by it."""
    Path(paths.address_file).parent.mkdir(parents=True, exist_ok=True)
    paths.address_file.write_text(text)
    assert read_address(paths) is None
    assert last_port(paths) == 0
