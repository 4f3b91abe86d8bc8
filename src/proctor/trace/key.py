"""Which key seals this user's trace: the one given in the environment, else the file beside the state.

Machines that share one PostgreSQL share one key: PROCTOR_TRACE_KEY holds the text of the first machine's trace.key.
"""

from __future__ import annotations

from proctor.config import Settings
from proctor.protocol.errors import ConfigError
from proctor.trace.chain import KEY_BYTES, load_key

__all__ = ["KEY_VARIABLE", "key_of"]

KEY_VARIABLE = "PROCTOR_TRACE_KEY"


def key_of(settings: Settings, *, create: bool = True) -> bytes:
    """The key; made when there is none and `create` says so."""
    given = settings.environ.get(KEY_VARIABLE, "").strip()
    if not given:
        return load_key(settings.paths.key_file, create=create)
    try:
        key = bytes.fromhex(given)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        problem = f"it is not a key of the trace ({2 * KEY_BYTES} hexadecimal digits)"
        allowed = "Set it to the text of trace.key of the machine that has one."
        raise ConfigError(where=f"environment {KEY_VARIABLE}", problem=problem, allowed=allowed)
    return key
