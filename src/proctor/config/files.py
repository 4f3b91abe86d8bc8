"""Reading the settings files: bounded, regular files only, every failure one sentence with file and line."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.config.lines import KeyPath, key_lines
from proctor.protocol.errors import ConfigError

__all__ = ["MAX_BYTES", "Document", "read_document", "read_regular"]

MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Document:
    """One TOML file: its short name for sources, its place for errors, its values and their lines."""

    name: str
    place: str
    values: dict[str, Any]
    lines: dict[KeyPath, int]

    def source(self, path: KeyPath) -> str:
        """Where a path was written, short."""
        return f"{self.name}:{self._line(path)}"

    def where(self, path: KeyPath) -> str:
        """Where a path was written, findable from the current directory."""
        return f"{self.place}:{self._line(path)}"

    def _line(self, path: KeyPath) -> int:
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(path: Path, place: str) -> Document | None:
    """Read one TOML file; None if there is none."""
    content = read_regular(path, place)
    if content is None:
        return None
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _wrong(f"{place}:{line}", "the file is not UTF-8 text", "Save it as UTF-8.") from None
    return _parse(text, path.name, place)


def _parse(text: str, name: str, place: str) -> Document:
    try:
        return Document(name, place, tomllib.loads(text), key_lines(text.replace("\r\n", "\n")))
    except RecursionError:
        raise _wrong(place, "the values are nested too deeply", "Flatten them.") from None
    except ValueError as error:
        found = re.search(
            r"(.*?) \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error), re.DOTALL
        )
        if found is None:
            raise _wrong(place, f"not valid TOML: {_tamed(str(error))}", "Mend the file.") from None
        line = found[2] or str(text.count("\n") + 1)
        column = f" in column {found[3]}" if found[3] else " at the end of the file"
        raise _wrong(
            f"{place}:{line}", f"not valid TOML: {_tamed(found[1])}{column}", "Mend that line."
        ) from None


def _tamed(message: str) -> str:
    """Cut what a hostile file can put into the parser's message."""
    return "".join(letter if letter.isprintable() else "?" for letter in message[:200])


def read_regular(path: Path, place: str) -> bytes | None:
    """Read a regular file of sane size; None if there is none."""
    try:
        # O_NONBLOCK: opening a FIFO without a writer would hang.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise _wrong(place, "the link leads nowhere", "Remove it or make its target.") from None
        return None
    except OSError as error:
        raise _unreadable(place, error) from None
    try:
        return _read(handle, place)
    except OSError as error:
        raise _unreadable(place, error) from None
    finally:
        os.close(handle)


def _read(handle: int, place: str) -> bytes:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise _wrong(place, "not a regular file", "Remove it or put a text file in its place.")
    parts = []
    while part := os.read(handle, MAX_BYTES + 1):
        parts.append(part)
        if sum(map(len, parts)) > MAX_BYTES:
            cure = "Settings are a few lines; shorten it."
            raise _wrong(place, f"the file is larger than {MAX_BYTES:,} bytes", cure)
    return b"".join(parts)


def _unreadable(place: str, error: OSError) -> ConfigError:
    reason = os.strerror(error.errno or errno.EIO).lower()
    return _wrong(place, f"the file cannot be read ({reason})", "Mend its permissions or remove it.")


def _wrong(where: str, problem: str, allowed: str) -> ConfigError:
    return ConfigError(where=where, problem=problem, allowed=allowed)
