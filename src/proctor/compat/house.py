"""Where façades keep what they do: a real store, trace and gate, in a state the caller names or in a temporary one.

Façades made without a state share one temporary house per process; it is removed when the process ends. Nothing here
reads or writes the user's own state unless it was named.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.app import App
from proctor.config import RawTable, environment, load_settings
from proctor.gate.humans import Human, user_at_terminal

__all__ = ["House", "shared_house"]


class House:
    """One state with everything in it; `close` when done."""

    def __init__(self, state: Path | None = None) -> None:
        self.temporary = state is None
        self.place = Path(tempfile.mkdtemp(prefix="proctor-compat-")) if state is None else Path(state)
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.pid = os.getpid()
        real = environment()
        environ = {"HOME": str(self.place), **({"PATH": real["PATH"]} if "PATH" in real else {})}
        self.app = App(load_settings(self.place, environ))
        self._more: list[App] = []

    def app_with(self, profiles: Mapping[str, Any]) -> App:
        """The same state under profiles of the caller's own."""
        if not profiles:
            return self.app
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
        for app in (*self._more, self.app):
            app.close()
        if self.temporary:
            shutil.rmtree(self.place, ignore_errors=True)


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "user"


class _Shared:
    """The one temporary house of this process, made when it is first needed; a forked child makes its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._house: House | None = None

    def get(self) -> House:
        with self._lock:
            if self._house is None or self._house.pid != os.getpid():
                self._house = House()
                atexit.register(self._house.close)
            return self._house


_shared = _Shared()


def shared_house() -> House:
    """The process's own temporary house."""
    return _shared.get()
