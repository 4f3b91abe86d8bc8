"""Which Python runs guessed commands: the project's own environment, else the one that is active where one stands.

Only commands that nobody wrote down are changed; what is set in `proctor.toml` is run as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["with_python"]

_OWN: Final = ".venv/bin/python"


def with_python(commands: Sequence[str], root: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name an interpreter that is there wherever a command begins with one that is not."""
    if (root / _OWN).exists():
        return tuple(commands)
    found = "venv/bin/python" if (root / "venv/bin/python").exists() else _active(environ)
    return tuple(f"{found}{line[len(_OWN) :]}" if line.startswith(f"{_OWN} ") else line for line in commands)


def _active(environ: Mapping[str, str]) -> str:
    path = environ.get("PATH", os.defpath)
    return next((name for name in ("python", "python3") if shutil.which(name, path=path)), _OWN)
