"""The contract's own examples, and small fix files made from them."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["BAD", "GOOD", "RESULT", "fix", "fix_file", "text_of"]

GOOD: dict[str, Any] = {
    "id": 1,
    "severity": "critical",
    "file": "core/websocket_handler.py",
    "line": 185,
    "issue": "WebSocket disconnect leaves orphaned processes",
    "fix": "Add finally block to websocket_handler.py line 185 that calls process.terminate() and process.wait()",
    "verification": "Start long process, disconnect WebSocket, verify no orphan processes with 'ps aux | grep [process]'",
}
SECOND: dict[str, Any] = {
    "id": 2,
    "severity": "critical",
    "file": "tests/stress/unified_stress_test_executor_v3.py",
    "line": 85,
    "issue": "Executor uses HTTP POST /stream which is not implemented",
    "fix": "Replace HTTP logic with WebSocket client to ws://localhost:8003/ws/mcp",
    "verification": "Run test and verify it connects successfully",
}
BAD: dict[str, Any] = {"issue": "Code is messy", "fix": "Clean it up"}
RESULT: dict[str, Any] = {
    "status": "FIXED",
    "changes_made": [
        "Line 185: Added try-finally block",
        "Line 192: Added process.terminate() call",
        "Line 193: Added await process.wait()",
    ],
    "problems_encountered": ["Had to handle case where process was already None"],
    "solution": "Wrapped existing code in try block, added finally with null check",
    "verification_command": 'python3 -c "import asyncio; asyncio.run(test_orphan_cleanup())"',
    "hallucination_check": "grep -A5 'finally:' /path/to/websocket_handler.py | grep 'terminate'",
}


def fix(**members: Any) -> dict[str, Any]:
    """The contract's good example with some members changed; None leaves one out."""
    return {name: value for name, value in {**GOOD, **members}.items() if value is not None}


def fix_file(*fixes: dict[str, Any], **members: Any) -> dict[str, Any]:
    """A whole file around some fixes."""
    head = {
        "review_id": "005_stress_test_system",
        "component": "stress_test_system",
        "date": "2025-06-26",
        "assigned_to": "executor",
        "instructions": "Add 'result' node to each fix. Update THIS file.",
        "fixes": list(fixes) or [GOOD, SECOND],
    }
    return {name: value for name, value in {**head, **members}.items() if value is not None}


def text_of(value: object) -> str:
    """JSON as people write it."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
