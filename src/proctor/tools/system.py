"""The house itself: whether it answers, and what files a workspace has, scanned into the cache."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import sqlalchemy as sa
from pydantic import Field

from proctor import __version__
from proctor.gate.context import Context
from proctor.protocol.errors import ProctorError
from proctor.protocol.events import Draft
from proctor.protocol.tools import Reads, SideEffect, Tool, Touch
from proctor.store.schema import schema_version
from proctor.store.tables import repo_file_cache
from proctor.tools.models import (
    MARK,
    Moment,
    NothingIn,
    ToolInput,
    ToolOutput,
    disk_errors,
    json_text,
    moment_of,
    now,
    to_its_end,
)
from proctor.tools.registry import declare
from proctor.workspace.files import Root
from proctor.workspace.ignore import SEED_IGNORES
from proctor.workspace.scan import Scanner

__all__ = ["IGNORED", "SYSTEM_TOOLS", "TRACKED", "ScanOut", "VerifyOut"]

IGNORED: Final = frozenset({"node_modules", ".git", "bin", "obj", "dist", ".vs", "venv", ".venv"})
TRACKED: Final = frozenset(
    [
        ".go",
        ".cs",
        ".axaml",
        ".sql",
        ".py",
        ".js",
        ".ts",
        ".tsx",
        ".html",
        ".css",
        ".json",
        ".md",
        ".ps1",
        ".mod",
        ".sum",
    ]
)
HASH_CAP: Final = 5_000_000
BATCH: Final = 500
_cache = repo_file_cache


class VerifyOut(ToolOutput):
    """Whether the house answers."""

    status: str = Field(description="running, or degraded when a part does not answer.")
    message: str
    timestamp: Moment
    version: str
    checks: dict[str, str] = Field(description="Each part and how it is.")


class ScanIn(ToolInput):
    """Whether to look at unchanged files again."""

    fresh: bool = Field(default=False, description="Read every tracked file again, also unchanged ones.")


class ScanOut(ToolOutput):
    """What the scan found."""

    message: str
    status: str = "complete"
    files: int = Field(description="Files that are not ignored.")
    tracked: int = Field(description="Those with a tracked extension; they are in the cache.")
    changed: int = Field(description="Cache rows that are new or were brought up to date.")
    removed: int = Field(description="Cache rows whose file is gone.")
    unreadable: list[str] = Field(default_factory=list)
    truncated: bool = False


async def _verify(context: Context, _call: NothingIn) -> VerifyOut:
    try:
        version = await asyncio.to_thread(schema_version, context.database)
        checks = {"database": "ok", "schema": version or "none"}
    except ProctorError as error:
        checks = {"database": str(error)}
    good = checks["database"] == "ok"
    return VerifyOut(
        status="running" if good else "degraded",
        message="Proctor is running" if good else "Proctor answers, but its database does not",
        timestamp=now(),
        version=__version__,
        checks=checks,
    )


async def _verify_mock(_context: Context, _call: NothingIn) -> VerifyOut:
    return VerifyOut(
        simulated=True,
        status="running",
        message=f"{MARK}: nothing was checked",
        timestamp=now(),
        version=__version__,
        checks={},
    )


# ── scanning ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Seen:
    """What is known of one file."""

    path: str
    size: int
    mtime: float
    digest: str | None
    lines: int | None

    def row(self, workspace: str) -> dict[str, Any]:
        """As the cache keeps it."""
        return {
            "workspace": workspace,
            "file_path": self.path,
            "file_type": PurePosixPath(self.path).suffix.lower(),
            "content_hash": self.digest,
            "line_count": self.lines,
            "last_modified": moment_of(self.mtime),
            "last_inspected": now(),
            "size_bytes": self.size,
            "is_tracked": True,
            "metadata": {"truncated": True} if self.digest is None else {},
            "updated_at": now(),
        }


async def _scan(context: Context, call: ScanIn) -> ScanOut:
    with disk_errors("."):
        found = await to_its_end(lambda: Scanner(ignores=_ignores()).files(context.root, fresh=call.fresh))
    wanted = [path for path in found.paths if not IGNORED & set(path.split("/")[:-1])]
    tracked = [path for path in wanted if PurePosixPath(path).suffix.lower() in TRACKED and _storable(path)]
    known = await asyncio.to_thread(_known, context)
    fresh, unreadable = await to_its_end(lambda: _look(context, tracked, {} if call.fresh else known))
    gone = sorted(set(known) - set(tracked)) if not found.truncated else []
    await _keep(context, fresh, gone)
    return ScanOut(
        message=f"Repository scanned: {len(tracked)} tracked files",
        files=len(wanted),
        tracked=len(tracked),
        changed=len(fresh),
        removed=len(gone),
        unreadable=unreadable[:100],
        truncated=found.truncated,
    )


def _ignores() -> tuple[str, ...]:
    return (*SEED_IGNORES, *(f"{name}/" for name in sorted(IGNORED)))


def _storable(path: str) -> bool:
    """Whether a row can hold the name: it is UTF-8."""
    return json_text(path) == path


def _known(context: Context) -> dict[str, tuple[int, Any]]:
    query = sa.select(_cache.c.file_path, _cache.c.size_bytes, _cache.c.last_modified).where(_mine(context))
    with context.database.read() as connection:
        return {path: (size, at) for path, size, at in connection.execute(query)}


def _mine(context: Context) -> sa.ColumnElement[bool]:
    return _cache.c.workspace == json_text(str(context.root))


def _look(
    context: Context, paths: Sequence[str], known: Mapping[str, tuple[int, Any]]
) -> tuple[list[_Seen], list[str]]:
    """Read what is new or changed; what cannot be read is named and spoils nothing."""
    seen: list[_Seen] = []
    bad: list[str] = []
    with Root(context.root) as root:
        for number, path in enumerate(paths):
            if context.cancel.is_set():
                break
            if number % BATCH == 0:
                context.progress(f"scan: {number} of {len(paths)} files", number / max(1, len(paths)))
            try:
                with disk_errors(path):
                    one = _inspect(root, path, known.get(path))
            except ProctorError:
                bad.append(path)
                continue
            if one is not None:
                seen.append(one)
    return seen, bad


def _inspect(root: Root, path: str, known: tuple[int, Any] | None) -> _Seen | None:
    """Read one file, unless size and time are those of the last look."""
    shallow = root.read(path, 0)
    if known is not None and known == (shallow.size, moment_of(shallow.mtime)):
        return None
    whole = root.read(path, HASH_CAP)
    digest = None if whole.truncated else hashlib.sha256(whole.data).hexdigest()
    lines = None if whole.truncated or whole.binary else len(whole.data.splitlines())
    return _Seen(path, whole.size, whole.mtime, digest, lines)


async def _keep(context: Context, fresh: Sequence[_Seen], gone: Sequence[str]) -> None:
    """Bring the cache up to date, some hundred rows at a time, so that nobody waits long for the log."""
    workspace = json_text(str(context.root))
    for part in _parts(
        [*((one.path, one.row(workspace)) for one in fresh), *((path, None) for path in gone)]
    ):

        def change(
            connection: sa.Connection, part: Sequence[tuple[str, dict[str, Any] | None]] = part
        ) -> tuple[None, list[Draft]]:
            # Replacing is the one way to bring a row up to date that both databases do alike.
            names = [path for path, _row in part]
            connection.execute(sa.delete(_cache).where(_mine(context), _cache.c.file_path.in_(names)))
            rows = [row for _path, row in part if row is not None]
            if rows:
                connection.execute(sa.insert(_cache), rows)
            return None, []

        await context.writer.transact_async(change)


def _parts(
    rows: Sequence[tuple[str, dict[str, Any] | None]],
) -> Iterator[Sequence[tuple[str, dict[str, Any] | None]]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


async def _scan_mock(_context: Context, _call: ScanIn) -> ScanOut:
    return ScanOut(
        simulated=True, message=f"{MARK}: nothing was scanned", files=0, tracked=0, changed=0, removed=0
    )


def _reads(_call: ScanIn) -> Sequence[Touch]:
    return (Reads("."),)


SYSTEM_TOOLS: tuple[Tool, ...] = (
    declare(
        name="verify_system_running",
        summary="Say whether the system is running and its database answers.",
        input=NothingIn,
        output=VerifyOut,
        domain="system",
        side_effect=SideEffect.READ_ONLY,
        handler=_verify,
        mock=_verify_mock,
        seconds=60.0,
    ),
    declare(
        name="scan_repository",
        summary="Scan the repository's tracked files into the cache: type, hash, lines, size and time of each.",
        input=ScanIn,
        output=ScanOut,
        domain="filesystem",
        side_effect=SideEffect.READ_ONLY,
        handler=_scan,
        mock=_scan_mock,
        touches=_reads,
        seconds=600.0,
    ),
)
