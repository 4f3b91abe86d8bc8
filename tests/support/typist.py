"""A real terminal with somebody at it, in this process: types a line at each prompt that comes, as a quick person does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["Typist", "typist"]


class Typist(threading.Thread):
    """Reads what is printed; whenever a prompt has come, types the next line at once."""

    def __init__(self, master: int, prompt: str, lines: list[str]) -> None:
        super().__init__(daemon=True)
        self._master = master
        self._prompt = prompt
        self._lines = iter(lines)
        self._seen = b""
        self.typed = threading.Event()

    def run(self) -> None:
        """Until the terminal is closed."""
        answered = 0
        while part := self._read():
            self._seen += part
            while self._seen.count(self._prompt.encode()) > answered:
                answered += 1
                os.write(self._master, next(self._lines, "").encode())
                self.typed.set()

    def _read(self) -> bytes:
        try:
            return os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return b""

    @property
    def text(self) -> str:
        """What was printed, and echoed of what was typed."""
        return self._seen.decode(errors="replace")


@contextmanager
def typist(lines: list[str], *, prompt: str, before: str = "") -> Iterator[Typist]:
    """Standard input, output and errors on a terminal of their own; `before` was typed ahead of any prompt."""
    master, slave = os.openpty()
    person = Typist(master, prompt, lines)
    os.write(master, before.encode())
    with (
        open(slave, encoding="utf-8", closefd=False) as source,
        open(slave, "w", encoding="utf-8", buffering=1, closefd=False) as sink,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("stdin", "stdout", "stderr"):
            patch.setattr(f"sys.{name}", source if name == "stdin" else sink)
        person.start()
        yield person
    os.close(slave)
    person.join(10)
    os.close(master)
