"""Where façades keep what they do: a real store, trace and gate, in a state the caller names or in a temporary one.

Plans' façades made without a state share one temporary house per process; it is removed when the process ends. The queue's
and the files' façades work on the user's own, as the commands do: a queue nobody else sees would be none.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from proctor.app import App
from proctor.config import RawTable, Settings, environment, load_settings
from proctor.gate.humans import Human, user_at_terminal

__all__ = ["House", "shared_house", "users_house"]

T = TypeVar("T")


class House:
    """One state with everything in it; `close` when done."""

    def __init__(self, state: Path | None = None, *, settings: Settings | None = None) -> None:
        self.temporary = state is None and settings is None
        self.pid = os.getpid()
        if settings is None:
            self.place = Path(tempfile.mkdtemp(prefix="proctor-compat-")) if state is None else Path(state)
            self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
            settings = load_settings(self.place, _bare(self.place))
        else:
            self.place = settings.paths.state_dir
        self.app = App(settings)
        self._more: list[App] = []

    @cached_property
    def line(self) -> Line:
        """Where the calls of façades that do not await are made."""
        return Line()

    def app_with(self, profiles: Mapping[str, Any]) -> App:
        """The same state under profiles of the caller's own; equal ones share one application."""
        if not profiles:
            return self.app
        for known in self._more:
            if known.settings.profiles.values == profiles:
                return known
        settings = replace(self.app.settings, profiles=RawTable(values=dict(profiles)))
        self._more.append(App(settings))
        return self._more[-1]

    def person(self) -> Human:
        """Whoever runs this process, if that is a person who can read the state's token."""
        token = self.app.settings.paths.token_file
        return user_at_terminal(environment(), token_file=token, name=_user())

    def close(self) -> None:
        """Write what is on its way; a temporary state is removed."""
        if os.getpid() != self.pid:
            return
        if "line" in self.__dict__:
            self.line.close()
        for app in (*self._more, self.app):
            app.close()
        if self.temporary:
            shutil.rmtree(self.place, ignore_errors=True)


def _bare(home: Path) -> dict[str, str]:
    """Nothing of the user's environment but where programs are."""
    real = environment()
    return {"HOME": str(home), **({"PATH": real["PATH"]} if "PATH" in real else {})}


class Line:
    """One event loop in one thread, for callers that do not await, also from inside a loop of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proctor-compat", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it; who is interrupted meanwhile ends it."""
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        except BaseException:
            waiting.cancel()
            raise

    def close(self) -> None:
        """End the thread and everything the sandbox holds ready for it."""
        from proctor.sandbox.process import close_idle_keepers

        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        close_idle_keepers()


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"


class _Shared:
    """One house of this process, made when it is first needed; a forked child makes its own."""

    def __init__(self, make: Callable[[], House]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._house: House | None = None

    def get(self) -> House:
        with self._lock:
            if self._house is None or self._house.pid != os.getpid():
                self._house = self._make()
                atexit.register(self._house.close)
            return self._house


_shared = _Shared(House)
_users = _Shared(lambda: House(settings=load_settings()))


def shared_house() -> House:
    """The process's own temporary house."""
    return _shared.get()


def users_house() -> House:
    """The user's own state, as the commands use it; only façades whose callers mean it ask for it."""
    return _users.get()
