"""macOS: a profile for sandbox-exec. UNTESTED: written from Apple's documentation, never run by us.

Until somebody has run the attack battery on a Mac, results at this level say "untested" in `missing`.
"""

from __future__ import annotations

import os

from proctor.sandbox.spec import Network, Spec

__all__ = ["SANDBOX_EXEC", "UNTESTED", "seatbelt_argv", "seatbelt_profile"]

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
UNTESTED = "the macOS profile is untested"


def seatbelt_profile(spec: Spec, temporary: str, guarded: tuple[str, ...]) -> str:
    """Deny all, then open reading, the writable roots and the network; in Seatbelt the last rule wins."""
    lines = ["(version 1)", "(deny default)", "(allow process-fork process-exec sysctl-read mach-lookup)"]
    lines += [
        "(allow signal (target same-sandbox))",
        "(allow file-read*)",
        '(allow file-write* (subpath "/dev"))',
    ]
    writable = [*spec.writable, temporary]
    lines += [f"(allow file-write* (subpath {_quote(path)}))" for path in writable]
    lines += [f"(deny file-write* (subpath {_quote(path)}))" for path in (*guarded, *spec.protected)]
    lines += [f"(deny file-read* file-write* (subpath {_quote(path)}))" for path in spec.hidden]
    lines += ["(allow network*)"] if spec.network is Network.FULL else []
    return "\n".join(lines) + "\n"


def seatbelt_argv(spec: Spec, temporary: str, guarded: tuple[str, ...]) -> list[str]:
    """Build the whole command line."""
    return [SANDBOX_EXEC, "-p", seatbelt_profile(spec, temporary, guarded), *spec.argv]


def _quote(path: str) -> str:
    """A string of the profile's language; a path with a quote must not end it."""
    escaped = os.path.realpath(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
