"""JSON out: moments as ISO 8601, what JSON cannot hold as text or null, and half a character as its escape. No I/O."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

__all__ = ["encode"]


def encode(content: Any) -> bytes:
    """Any answer as JSON; texts that others sent may hold what UTF-8 cannot."""
    try:
        return to_json(content, inf_nan_mode="null", serialize_unknown=True)
    except PydanticSerializationError:
        plain = to_jsonable_python(content, inf_nan_mode="null", serialize_unknown=True)
        return json.dumps(plain, separators=(",", ":")).encode("ascii")
