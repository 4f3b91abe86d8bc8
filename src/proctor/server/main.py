"""For `uvicorn proctor.server.main:app`: the application with the settings of the directory it is started in.

It only serves; what is to be executed is executed by the background supervisor, which it starts when needed.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from proctor.app import open_app
from proctor.server.app import create_app

if TYPE_CHECKING:
    from fastapi import FastAPI

    app: FastAPI

__all__ = ["app"]


@cache
def _made() -> FastAPI:
    return create_app(open_app())


def __getattr__(name: str) -> object:
    """Make `app` when it is asked for, so that importing this module reads no settings."""
    if name == "app":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
