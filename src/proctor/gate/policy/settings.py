"""The `[policy]` tables of the settings files, each with the weight of who wrote it.

Invariant: `proctor.toml` belongs to the repository and may only tighten; `proctor.local.toml` is the user's own, unless
the repository itself brings it along.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.config.files import read_document
from proctor.config.load import LOCAL_FILE, SHARED_FILE
from proctor.gate.policy.rules import Origin, RuleSet, builtin_rules, rules_from_settings

__all__ = ["rules_of_workspace"]

_MAX_INDEX: Final = 64 << 20
_MAX_POINTER: Final = 8192


def rules_of_workspace(workspace: Path | None) -> RuleSet:
    """Give the rules that hold in a workspace: built in, the project's, the user's."""
    rules = builtin_rules()
    if workspace is None:
        return rules
    own = Origin.PROJECT if _is_versioned(workspace) else Origin.USER
    return rules.with_rules(
        rule
        for name, origin in ((SHARED_FILE, Origin.PROJECT), (LOCAL_FILE, own))
        for rule in rules_from_settings(_policy(workspace / name), origin, where=name)
    )


def _policy(path: Path) -> Mapping[str, Any]:
    document = read_document(path, path.name)
    table = document.values.get("policy", {}) if document is not None else {}
    return table if isinstance(table, Mapping) else {"": table}


def _is_versioned(workspace: Path) -> bool:
    """Whether git tracks the local file: then it came with the repository, and its word is the repository's."""
    git = workspace / ".git"
    try:
        if git.is_file():
            with git.open("rb") as file:
                pointer = file.read(_MAX_POINTER + 1)
            if len(pointer) > _MAX_POINTER:
                return True
            git = workspace / pointer.decode().removeprefix("gitdir:").strip()
        index = git / "index"
        if not index.exists():
            return False
        with index.open("rb") as file:
            content = file.read(_MAX_INDEX + 1)
    except (OSError, UnicodeDecodeError):
        return True
    # The name ends so in every version of the index, also where the start of a name is left out.
    return len(content) > _MAX_INDEX or b"local.toml\0" in content
