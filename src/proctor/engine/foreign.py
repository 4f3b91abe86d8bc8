"""Reading rows of the queue that other programs put in: SQLite keeps anything anywhere, JSON may have any shape.

What is not of its column's kind is left out and named; nobody meets it, and no row hides or stops the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

__all__ = ["Reading", "defect_of"]

_LISTS = ("depends_on_task_ids", "file_paths")
_NUMBERS = ("priority", "attempt", "retry_count", "max_retries")
_MOMENTS = ("created_at", "assigned_at", "started_at", "completed_at", "deadline", "not_before")
# It becomes the name of a directory and of a branch.
_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?<!\.)(?<!\.lock)")


class Reading:
    """One row as it is; `wrong` says what could not be read."""

    def __init__(self, row: Mapping[str, Any] | sa.RowMapping) -> None:
        self._row = row
        self.wrong: list[str] = []

    def text(self, name: str) -> str:
        """A text, also when it came as bytes."""
        value = self._row[name]
        return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; nothing is an empty one."""
        value = self._row[name] or ()
        if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
            value = self._not(name, "a JSON list of texts", ())
        return tuple(value)

    def facts(self, name: str) -> Mapping[str, Any] | None:
        """A JSON object; nothing is None."""
        value = self._row[name]
        if value is None or value == "":
            return None
        return value if isinstance(value, Mapping) else self._not(name, "a JSON object", None)

    def number(self, name: str) -> int:
        """A whole number; what is none counts as nothing."""
        value = self._row[name]
        whole = isinstance(value, int) and not isinstance(value, bool)
        return int(value) if whole else self._not(name, "a whole number", 0)

    def moment(self, name: str) -> datetime | None:
        """A moment; nothing is None."""
        value = self._row[name]
        if value is None or value == "":
            return None
        return value if isinstance(value, datetime) else self._not(name, "a time (ISO 8601)", None)

    def _not(self, name: str, kind: str, instead: Any) -> Any:
        self.wrong.append(f"{name} is not {kind}")
        return instead


def defect_of(row: Mapping[str, Any] | sa.RowMapping) -> str | None:
    """Why a row cannot be run as it is; None when it can."""
    reading = Reading(row)
    for name in _LISTS:
        reading.texts(name)
    for name in _NUMBERS:
        reading.number(name)
    for name in _MOMENTS:
        reading.moment(name)
    reading.facts("context")
    if not _ID.fullmatch(str(row["task_id"])):
        reading.wrong.append("task_id holds more than 64 letters, digits, dots, _ and -")
    if not reading.text("description").strip():
        reading.wrong.append("description is empty")
    return "; ".join(reading.wrong) or None
