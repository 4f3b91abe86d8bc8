"""A project's root directory, read gently: small regular files only; what cannot be read says nothing."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Ecosystem", "Root", "table"]

FEW = 20
MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Ecosystem:
    """What one kind of project needs."""

    name: str
    setup: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    lint: tuple[str, ...] = ()


class Root:
    """A project's root directory, read gently."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, *names: str) -> bool:
        """Tell whether one of these files is there."""
        return any((self.path / name).is_file() for name in names)

    def any(self, pattern: str) -> bool:
        """Tell whether a file matches; of a huge directory only the start is looked at."""
        return any(path.is_file() for path, _ in zip(self.path.glob(pattern), range(1000), strict=False))

    def texts(self, pattern: str) -> list[str]:
        """The texts of a few files that match."""
        found = [path for path, _ in zip(self.path.glob(pattern), range(FEW), strict=False)]
        return [self.text(str(path.relative_to(self.path))) for path in sorted(found)]

    def text(self, name: str) -> str:
        """A small file's text, or nothing."""
        try:
            if not (self.path / name).is_file():
                return ""
            with (self.path / name).open("rb") as file:
                return file.read(MAX_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return ""

    def toml(self, name: str) -> dict[str, Any]:
        """A TOML file's content, or nothing."""
        try:
            return tomllib.loads(self.text(name))
        except (ValueError, RecursionError):
            return {}

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object, or nothing."""
        try:
            found = json.loads(self.text(name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def table(values: dict[str, Any], *path: str) -> dict[str, Any]:
    """A table below others; whatever else stands there counts as an empty one."""
    for step in path:
        below = values.get(step)
        values = below if isinstance(below, dict) else {}
    return values
