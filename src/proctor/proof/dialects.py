"""Other shapes of fix files that are in the wild, each refused with the sentence that mends it.

Invariant: nothing is converted silently; a wrong guess would run the wrong command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from proctor.proof.jsontext import Path

__all__ = ["dialect_problems"]

_FILE: Final = {
    "task_list_id": ("review_id", "rename it to review_id"),
    "tasks": ("fixes", "rename the list to fixes"),
    "issues": ("fixes", "rename the list to fixes"),
}
_FIX: Final = {
    "priority": ("severity", "rename it to severity and use critical, major or minor"),
    "task_id": ("id", "rename it to id"),
    "file_path": ("file", "rename it to file"),
    "path": ("file", "rename it to file"),
    "line_number": ("line", "rename it to line"),
    "line_numbers": ("line", 'rename it to line; a range is written "85-92"'),
    "description": ("issue", "rename it to issue"),
    "problem": ("issue", "rename it to issue"),
    "action": ("fix", "rename it to fix"),
    "solution": ("fix", "in the task itself it is called fix; solution belongs into the result"),
    "test": ("verification", "rename it to verification"),
    "completion": ("result", "rename it to result"),
}
_RESULT: Final = {
    "verification": ("verification_command", "in a result it is called verification_command"),
    "command": ("verification_command", "rename it to verification_command"),
    "proof": ("hallucination_check", "rename it to hallucination_check"),
    "changes": ("changes_made", "rename it to changes_made"),
    "problems": ("problems_encountered", "rename it to problems_encountered"),
}


def dialect_problems(value: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Give the place and the cure of every member that another dialect uses for one that is missing here."""
    yield from _renamed(value, (), _FILE)
    fixes = value.get("fixes")
    for index, fix in enumerate(fixes if isinstance(fixes, list) else ()):
        if not isinstance(fix, dict):
            continue
        yield from _renamed(fix, ("fixes", index), _FIX)
        result = fix.get("result")
        if isinstance(result, dict):
            yield from _renamed(result, ("fixes", index, "result"), _RESULT)


def _renamed(
    members: dict[str, Any], path: Path, table: dict[str, tuple[str, str]]
) -> Iterator[tuple[Path, str]]:
    """An extra member is kept; only where the right one is missing is it taken for another spelling."""
    for name, (right, cure) in table.items():
        if name in members and right not in members:
            yield (*path, name), f"is another dialect: {cure}"
