"""Seed 000's `coordinator` under its own name; everything is `proctor.compat.agent_coordinator` and `.swarm`.

Usage: `python coordinator.py [--interval SECONDS] [--debug] [--websocket]`.
"""

from __future__ import annotations

from proctor.compat.agent_coordinator import AgentCoordinator
from proctor.compat.swarm import (
    get_db_connection,
    get_openai_tools,
    handle_chat_message,
    handle_websocket,
    main,
    query_architecture_rules,
    start_websocket_server,
)

__all__ = [
    "AgentCoordinator",
    "get_db_connection",
    "get_openai_tools",
    "handle_chat_message",
    "handle_websocket",
    "main",
    "query_architecture_rules",
    "start_websocket_server",
]

if __name__ == "__main__":
    main()
