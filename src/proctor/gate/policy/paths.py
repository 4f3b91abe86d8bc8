"""Which files may be read or written: inside the roots, not secrets, not git's own files, not Proctor's state.

Invariant: paths are compared by whole components, never by prefix of text. This is the policy only: the opening itself
is done by `workspace.files`, which the kernel keeps beneath the root.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from proctor.gate.policy.decision import Decision, Effect, Finding
from proctor.gate.policy.names import is_git_internal, is_own_settings, is_secret, is_steering
from proctor.gate.policy.posture import Posture, posture_of

__all__ = ["judge_path", "place_finding"]

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_SCRATCH: Final = ("/tmp", "/var/tmp")  # noqa: S108 - private in the sandbox
_STREAMS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1", "/dev/fd/2"})
_SOURCES: Final = frozenset({"/dev/zero", "/dev/urandom", "/dev/random", "/dev/stdin", "/dev/fd/0"})
_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib64", "/sbin", "/opt", "/etc/os-release", "/etc/debian_version", "/etc/hosts",
                  "/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/loadavg", "/etc/alternatives")  # fmt: skip
_NETWORK: Final = ("/dev/tcp", "/dev/udp")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_@%+=:,-]{1,64}")


def judge_path(
    path: str | Path,
    *,
    write: bool,
    roots: Sequence[str | Path],
    profile: str | Posture = "standard",
    attended: bool = True,
    protected: Iterable[str | Path] = (),
) -> Decision:
    """Decide one read or write of one path; a relative path is meant from the first root."""
    posture = posture_of(profile)
    text = str(path)
    found = _path_finding(
        text, write, [str(root) for root in roots], [str(place) for place in protected], posture
    )
    effect, rule, reason, irreversible, _kind = found
    code = {Effect.ALLOW: "path_allowed", Effect.ASK: "path_needs_approval", Effect.DENY: "path_denied"}[
        effect
    ]
    if effect is Effect.ASK and not (posture.asks and attended):
        effect, code, reason = Effect.DENY, "unattended_denied", f"{reason}; nobody is there to ask"
    return Decision(effect, rule, reason, code, irreversible)


def _path_finding(
    text: str, write: bool, roots: list[str], protected: list[str], posture: Posture
) -> Finding:
    if not text or _CONTROL.search(text):
        return Finding(Effect.DENY, "path.text", "the path is empty or holds control or invisible characters")
    if not roots:
        return Finding(Effect.DENY, "path.roots", "no root is allowed")
    if text.startswith("~"):
        return Finding(Effect.DENY, "path.home", "`~` is not expanded; give the path itself")
    full = posixpath.normpath(posixpath.join(roots[0], text))
    if any(_within(full, posixpath.normpath(place)) for place in protected):
        return Finding(Effect.DENY, "path.state", "the path belongs to Proctor's own state")
    inside = _inside(full, roots)
    if inside is None:
        if full.startswith("/dev/") and full not in _STREAMS:
            return Finding(Effect.DENY, "path.device", "the path is a device")
        verb = "written" if write else "read"
        return Finding(posture.outside, "path.outside", f"a path outside the allowed roots would be {verb}")
    return _named(inside, write=write) or Finding(
        Effect.ALLOW, "path.inside", "the path lies inside an allowed root"
    )


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _inside(full: str, roots: Iterable[str]) -> str | None:
    """Give the path relative to the root it lies in; None outside all."""
    for root in roots:
        base = posixpath.normpath(root)
        if _within(full, base):
            return posixpath.relpath(full, base)
    return None


def _named(path: str, *, write: bool) -> Finding | None:
    """Judge a path inside by the names in it."""
    if write and is_git_internal(path):
        return Finding(
            Effect.DENY, "path.git", "git's own files run code: hooks and settings are not written by hand"
        )
    if is_secret(path):
        return Finding(Effect.ASK, "path.secret", "the name says that the file holds secrets")
    if is_git_internal(path) and posixpath.basename(path) in {"config", "credentials"}:
        return Finding(Effect.ASK, "path.secret", "git's settings may hold credentials")
    if write and is_own_settings(path):
        return Finding(Effect.ASK, "path.settings", "the file decides what Proctor itself allows")
    if write and is_steering(path):
        return Finding(Effect.ASK, "path.steering", "the file decides what later shells and tools run")
    return None


def place_finding(
    text: str, places: Iterable[str], *, write: bool, roots: Sequence[str] = ()
) -> Finding | None:
    """Judge one file argument of a command, run in any of these directories (relative to the first root)."""
    if not text or (_SIMPLE.fullmatch(text) and places == frozenset({"."}) and not is_secret(text)):
        return None
    if text.startswith("~"):
        return _outside(text, write=write)
    worst: Finding | None = None
    for place in places:
        found = _one_place(text, place, write, roots)
        if found is not None and (worst is None or found.effect.rank > worst.effect.rank):
            worst = found
    return worst


def _one_place(text: str, place: str, write: bool, roots: Sequence[str]) -> Finding | None:
    if not text.startswith("/") and (place == "\0" or place.startswith("~")):
        return _outside(text, write=write)
    full = posixpath.normpath(posixpath.join(place, text))
    if full.startswith("//"):
        full = full[1:]
    if not full.startswith("/"):
        if full == ".." or full.startswith("../"):
            return _outside(text, write=write)
        return _named(full, write=write)
    inside = _inside(full, roots)
    return _named(inside, write=write) if inside is not None else _absolute(full, write=write)


def _absolute(full: str, *, write: bool) -> Finding | None:
    if any(_within(full, place) for place in _NETWORK):
        return Finding(Effect.DENY, "shell.network-redirect", "the path opens a network connection")
    if full in _STREAMS or (not write and full in _SOURCES):
        return None
    if write and _within(full, "/dev"):
        return Finding(Effect.DENY, "path.device", "a device would be written", irreversible=True)
    if any(_within(full, place) and not (write and full == place) for place in _SCRATCH):
        return _named(full[1:], write=write)
    if not write and any(_within(full, place) for place in _SYSTEM):
        return _named(full[1:], write=False)
    return _outside(full, write=write)


def _outside(text: str, *, write: bool) -> Finding:
    verb = "written" if write else "read"
    return Finding(Effect.ASK, "path.outside", f"a path outside the workspace would be {verb}: {text[:120]}")
