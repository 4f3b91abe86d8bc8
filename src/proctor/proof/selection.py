"""Which part of a suite a change affects, where the runner's own command line can say it.

Only words at the end of a known runner's command are added; everything else runs whole. The whole suite runs once on
the change anyway; the selection only makes slow repeats and the leg before cheaper.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["SELECTORS", "Selector", "select"]

Selector = Callable[[str, Sequence[str]], str | None]
_PYTEST: Final = re.compile(
    r"^(?:\S*/)?(?:(?:uv|poetry|pdm|pipenv) run )?(?:(?:\S*/)?python[\d.]* -m )?(?:\S*/)?pytest(?P<rest>.*)$"
)
_NODE: Final = re.compile(r"^(?:\S*/)?node --test(?P<rest>.*)$")
_SHELL: Final = re.compile(r"[|&;<>$`\n(){}*?]")


def _pytest(command: str, tests: Sequence[str]) -> str | None:
    found = _PYTEST.match(command.strip())
    if found is None or not _only_options(found["rest"]):
        return None
    files = [
        path for path in tests if path.endswith(".py") and not path.endswith(("conftest.py", "__init__.py"))
    ]
    return f"{command.strip()} {shlex.join(files)}" if files else None


def _node(command: str, tests: Sequence[str]) -> str | None:
    found = _NODE.match(command.strip())
    files = [path for path in tests if path.endswith((".js", ".mjs", ".cjs"))]
    return (
        f"{command.strip()} {shlex.join(files)}" if found and files and _only_options(found["rest"]) else None
    )


def _only_options(rest: str) -> bool:
    """A command that already names files, or does more than run tests, is left alone."""
    return not _SHELL.search(rest) and all(word.startswith("-") for word in rest.split())


#: Plugins add to this list.
SELECTORS: list[Selector] = [_pytest, _node]


def select(command: str, tests: Sequence[str]) -> str | None:
    """The command for these test files alone; None when no plugin can tell."""
    return next((chosen for selector in SELECTORS if (chosen := selector(command, tests)) is not None), None)
