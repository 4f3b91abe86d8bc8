"""All tools of the house in one registry."""

from __future__ import annotations

from proctor.tools.command import command_tools
from proctor.tools.confined import Shell
from proctor.tools.files import FILE_TOOLS
from proctor.tools.registry import Registry

__all__ = ["standard_registry"]


def standard_registry(shell: Shell = "bash") -> Registry:
    """Every built-in tool; `shell` is the one the settings choose for commands."""
    return Registry((*FILE_TOOLS, *command_tools(shell)))
