"""All tools of the house in one registry."""

from __future__ import annotations

from proctor.tools.architecture import ARCHITECTURE_TOOLS
from proctor.tools.backup import BACKUP_TOOLS
from proctor.tools.command import command_tools
from proctor.tools.confined import Shell
from proctor.tools.files import FILE_TOOLS
from proctor.tools.registry import Registry
from proctor.tools.requests import REQUEST_TOOLS
from proctor.tools.schema import SCHEMA_TOOLS
from proctor.tools.system import SYSTEM_TOOLS

__all__ = ["standard_registry"]


def standard_registry(shell: Shell = "bash") -> Registry:
    """Every built-in tool; `shell` is the one the settings choose for commands."""
    families = (FILE_TOOLS, BACKUP_TOOLS, ARCHITECTURE_TOOLS, SCHEMA_TOOLS, REQUEST_TOOLS, SYSTEM_TOOLS)
    return Registry((*command_tools(shell), *(tool for family in families for tool in family)))
