"""What a call would do, from the call itself: for a person who is asked, and as the ground the answer is bound to.

The digest covers what the person saw: when a file that would be replaced changes before the answer, the answer is void.
Reads files, so call it outside the event loop's thread.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from proctor.gate.policy import Decision
from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.tools import Reaches, Reads, Runs, SideEffect, Tool, Touch, Writes
from proctor.workspace.files import FileContent, Root

__all__ = ["Consequences", "consequences_of", "risk_of"]

MAX_LINES: Final = 200
MAX_WIDTH: Final = 500
MAX_DIFF: Final = 120
MAX_COMPARED: Final = 20_000  # lines; comparing takes minutes for many that look alike


@dataclass(frozen=True, slots=True)
class Consequences:
    """In plain words, with the differences of files, and a digest of the ground."""

    lines: tuple[str, ...]
    digest: str


def risk_of(tool: Tool, *, irreversible: bool) -> str:
    """How much is at stake: low, medium or high."""
    if irreversible or not tool.reversible:
        return "high"
    return {SideEffect.READ_ONLY: "low", SideEffect.PROPOSE: "medium", SideEffect.EXECUTE: "high"}[
        tool.side_effect
    ]


def consequences_of(
    tool: Tool,
    inputs: BaseModel,
    touches: Sequence[Touch],
    *,
    workspace: Path | None,
    decisions: Sequence[Decision] = (),
    irreversible: bool = False,
    snapshot_id: str | None = None,
) -> Consequences:
    """Work out what would happen now."""
    ground = hashlib.sha256()
    lines: list[str] = []
    for touch in touches:
        lines += _touch(touch, workspace, ground)
    lines += [line for decision in decisions for line in _resolved(decision)]
    if tool.explains is not None:
        lines += tool.explains(inputs)
    lines.append(_way_back(tool, irreversible, snapshot_id))
    return Consequences(_bounded(lines), ground.hexdigest())


def _touch(touch: Touch, workspace: Path | None, ground: hashlib._Hash) -> list[str]:
    match touch:
        case Reads(path):
            return [f"reads {path}"]
        case Runs(command, cwd):
            return [f"runs in {cwd}: {command}"]
        case Reaches(host):
            return [f"reaches {host}"]
        case Writes(path, content):
            return _written(path, content, workspace, ground)


def _written(path: str, content: bytes | None, workspace: Path | None, ground: hashlib._Hash) -> list[str]:
    now = _current(path, workspace)
    state = "absent" if now is None else f"{now.size}:{hashlib.sha256(now.data).hexdigest()}"
    ground.update(f"{path}\0{state}\0".encode("utf-8", "surrogateescape"))
    verb = "creates" if now is None else "changes"
    if content is None:
        return [f"{verb} {path}"]
    size = f"{len(content)} bytes" if now is None else f"{now.size} to {len(content)} bytes"
    return [f"{verb} {path} ({size})", *_difference(now, content)]


def _current(path: str, workspace: Path | None) -> FileContent | None:
    if workspace is None:
        return None
    try:
        with Root(workspace) as root:
            return root.read(path)
    except (NotFoundError, RefusedError):
        return None  # not there, or nothing that could be replaced: the writer itself will say so


def _difference(now: FileContent | None, content: bytes) -> list[str]:
    if b"\0" in content[:8192] or (now is not None and (now.binary or now.truncated)):
        return ["(binary or large: no difference shown)"]
    before = now.text.splitlines() if now is not None else []
    after = content[:1_000_000].decode("utf-8", "replace").splitlines()
    if max(len(before), len(after)) > MAX_COMPARED:
        return [f"(more than {MAX_COMPARED} lines: no difference shown)"]
    found = list(difflib.unified_diff(before, after, "now", "then", lineterm="", n=2))
    more = [f"… {len(found) - MAX_DIFF} more lines"] if len(found) > MAX_DIFF else []
    return found[:MAX_DIFF] + more


def _resolved(decision: Decision) -> Iterable[str]:
    """What the policy made of a command, part by part."""
    for part in decision.parts:
        words = " ".join("…" if word is None else word for word in part.argv)
        yield f"{part.effect.value}: {words} [{part.rule}] {part.reason}"
    if not decision.parts or decision.rule not in {part.rule for part in decision.parts}:
        yield f"{decision.effect.value}: {decision.reason} [{decision.rule}]"


def _way_back(tool: Tool, irreversible: bool, snapshot_id: str | None) -> str:
    if irreversible or not tool.reversible:
        return "cannot be taken back"
    if tool.read_only:
        return "changes nothing"
    saved = f"snapshot {snapshot_id}" if snapshot_id else "a snapshot taken right before"
    return f"can be taken back with `proctor undo` ({saved})"


def _bounded(lines: Sequence[str]) -> tuple[str, ...]:
    kept = [line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 1] + "…" for line in lines[:MAX_LINES]]
    return (*kept, *([f"… truncated: {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []))
