"""`lint --fix`: the cures that change no meaning, applied to the text of a fix file; every other byte stays.

Severities and statuses in other letter case, missing wording in the instructions, commands that swallow their status.
"""

from __future__ import annotations

from typing import Any, Final

from proctor.proof.command_lint import fix_command
from proctor.proof.jsontext import JsonText, JsonTextError, Path, path_name, scan_json
from proctor.proof.schema import STATUSES
from proctor.protocol.decisions import Severity

__all__ = ["INSTRUCTIONS", "fix", "mend"]

INSTRUCTIONS: Final = (
    "Add 'result' node to each fix with status, changes_made, verification_command, and hallucination_check. "
    "Update THIS file, do not create separate results file."
)
_ROUNDS: Final = 10_000


def fix(text: str) -> str:
    """Apply every safe cure; a text that is not JSON comes back as it is."""
    return mend(text)[0]


def mend(text: str) -> tuple[str, tuple[str, ...]]:
    """The mended text and what was mended, one sentence each."""
    done: list[str] = []
    for _ in range(_ROUNDS):
        try:
            source = scan_json(text)
        except JsonTextError:
            return text, tuple(done)
        found = _first(source)
        if found is None:
            break
        path, value = found
        text = source.replaced(path, value)
        done.append(f"{path_name(path)} set to {value[:80]!r}")
    return text, tuple(done)


def _first(source: JsonText) -> tuple[Path, str] | None:
    """The first member that has a safe cure; one at a time, because every edit moves what follows."""
    value = source.value
    if not isinstance(value, dict):
        return None
    instructions = value.get("instructions")
    if isinstance(instructions, str) and "result" not in instructions.lower():
        return ("instructions",), f"{instructions.rstrip()} {INSTRUCTIONS}".strip()
    fixes = value.get("fixes")
    for index, one in enumerate(fixes if isinstance(fixes, list) else ()):
        found = _of_fix(one, ("fixes", index)) if isinstance(one, dict) else None
        if found is not None:
            return found
    return None


def _of_fix(one: dict[str, Any], path: Path) -> tuple[Path, str] | None:
    severity = one.get("severity")
    if (
        isinstance(severity, str)
        and severity != severity.strip().lower()
        and severity.strip().lower() in set(Severity)
    ):
        return (*path, "severity"), severity.strip().lower()
    result = one.get("result")
    if not isinstance(result, dict):
        return None
    status = result.get("status")
    if isinstance(status, str) and status not in STATUSES:
        right = status.strip().upper().replace(" ", "_").replace("-", "_")
        if right in STATUSES:
            return (*path, "result", "status"), right
    for member in ("verification_command", "hallucination_check"):
        command = result.get(member)
        if isinstance(command, str) and (better := fix_command(command)) != command:
            return (*path, "result", member), better
    return None
