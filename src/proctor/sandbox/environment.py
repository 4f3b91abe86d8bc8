"""The environment of a child: by allow-list, never inherited whole, so that no token leaks by accident.

Pure: whoever calls gives the variables of the user; only `proctor.config` reads them from the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from proctor.protocol.errors import UnavailableError

__all__ = ["ALLOWED", "ShellUnavailableError", "allowed_environment", "shell_argv"]

ALLOWED = (
    "PATH",
    "HOME",
    "LANG",
    "TERM",
    "TZ",
    "USER",
    "LOGNAME",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "COLUMNS",
)
_SHELLS = {"bash": ("bash",), "pwsh": ("pwsh", "powershell")}


class ShellUnavailableError(UnavailableError):
    """The shell {shell!r} is not installed. Install it, or choose another with `shell` in proctor.toml."""

    code = "shell_unavailable"


def allowed_environment(
    user: Mapping[str, str], *, allow: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Take the few variables every program needs and those chosen by name; `extra` is set as given."""
    chosen = {name: user[name] for name in (*ALLOWED, *allow) if name in user}
    chosen.setdefault("PATH", os.defpath)
    chosen.setdefault("LANG", "C.UTF-8")
    return chosen | dict(extra or {})


def shell_argv(command: str, shell: str = "bash", *, path: str = os.defpath) -> tuple[str, ...]:
    """Turn one line into the words that run it: `bash -c` or PowerShell, without anybody's start-up files."""
    if shell not in _SHELLS:
        raise ShellUnavailableError(shell=shell)
    program = next((found for name in _SHELLS[shell] if (found := _which(name, path))), None)
    if program is None:
        raise ShellUnavailableError(shell=shell)
    if shell == "pwsh":
        return (program, "-NoLogo", "-NoProfile", "-NonInteractive", "-Command", command)
    return (program, "--noprofile", "--norc", "-c", command)


def _which(name: str, path: str) -> str | None:
    """Look only in absolute directories: a relative entry of PATH would find what an agent wrote."""
    for directory in path.split(os.pathsep):
        place = Path(directory) / name
        if place.is_absolute() and place.is_file() and os.access(place, os.X_OK):
            return str(place)
    return None
