"""Events that an agent writes into its own message, one JSON object per line, as the seeds' prompts ask
for.

Only the agent's own words may be given here, never tool output or files: JSON that it merely read invents
nothing. What comes out is a claim and is marked as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from proctor.agents.driver import AgentEvent
from proctor.protocol.events import EventStatus

__all__ = ["claims"]

NAMES: Mapping[str, EventStatus] = {
    "blocker": EventStatus.ERROR,
    "finding": EventStatus.SUCCESS,
    "milestone": EventStatus.SUCCESS,
    "permission_blocker": EventStatus.PENDING,
    "progress": EventStatus.RUNNING,
    "request_review": EventStatus.PENDING,
}
LINE_CAP = 16 * 1024
MOST = 50


def claims(text: str) -> list[AgentEvent]:
    """Find the events in a message; other lines are only words."""
    found = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("{") and len(stripped) <= LINE_CAP and (event := _claim(stripped)) is not None:
            found.append(event)
    return found[:MOST]


def _claim(line: str) -> AgentEvent | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("type") not in NAMES:
        return None
    payload = data.get("payload") or {key: value for key, value in data.items() if key != "type"}
    if not isinstance(payload, dict):
        payload = {"text": payload}
    details: dict[str, Any] = {
        key: value for key, value in payload.items() if key not in {"text", "progress"}
    }
    progress = payload.get("progress")
    if isinstance(progress, int | float) and not isinstance(progress, bool):
        details["progress"] = max(0.0, min(100.0, float(progress)))
    details["claimed"] = True
    return AgentEvent(data["type"], str(payload.get("text", "")), NAMES[data["type"]], details=details)
