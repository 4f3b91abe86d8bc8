"""Backups of the workspace: take one, list them, go back to one.

A restore takes a safety snapshot first, is all or nothing, and goes only into the workspace the backup is of (or an empty
directory in it). `backup_path` is a directory `<base>/<workspace>_<YYYYMMDD_HHMMSS>`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError, ProctorError, UsageError
from proctor.protocol.tools import Reads, SideEffect, Tool, Touch, Writes
from proctor.tools.models import (
    MARK,
    Moment,
    PathText,
    ToolInput,
    ToolOutput,
    disk_errors,
    json_text,
    now,
    to_its_end,
)
from proctor.tools.registry import declare
from proctor.workspace.backups import Backup, Backups
from proctor.workspace.restore import Restored, restore
from proctor.workspace.tree import Progress

__all__ = ["BACKUP_TOOLS", "BackupRow", "CreateOut", "ListOut", "RestoreOut"]

MOST_PATHS: Final = 1000
MOST_ROWS: Final = 200
_HOUR: Final = 3600.0
MESSAGE: Final = "Backup restored successfully"


class StoppedError(ProctorError):
    """It was stopped on the way. Call it again to do it whole."""

    code = "cancelled"


class CreateIn(ToolInput):
    """Of which workspace, and why."""

    workspace_path: PathText | None = Field(
        default=None, description="Path to workspace directory to backup; the workspace itself by default."
    )
    reason: str = Field(default="", max_length=1000, description="Why; shown in the list.")


class CreateOut(ToolOutput):
    """Where the backup lies."""

    success: bool = True
    message: str
    backup_path: str
    path: str
    timestamp: str = Field(description="YYYY-MM-DD_HHMMSS, as restore_from_backup takes it.")
    reason: str
    backup_id: str
    entries: int
    size_bytes: int
    complete: bool = Field(description="Whether everything could be read.")
    problems: list[str] = Field(default_factory=list, description="What could not be read, and why.")


class RestoreIn(ToolInput):
    """Which backup, and where to."""

    backup_path: PathText | None = Field(
        default=None, description="Path to backup directory; its name or id will do."
    )
    backup_timestamp: str | None = Field(default=None, min_length=1, max_length=64)
    workspace_path: PathText | None = Field(
        default=None, description="Path to workspace to restore to; the backup's own by default."
    )
    as_undo: bool = Field(default=False, description="Note it as taking back what came after the backup.")
    history: Literal["refuse", "keep", "restore"] | None = Field(
        default=None,
        description="When git's history moved since: refuse (an undo's default), keep git as it is and bring back only "
        "the files, or restore git too (a restore's default).",
    )


class RestoreOut(ToolOutput):
    """What was put back, and how to take that back."""

    success: bool = True
    message: str
    timestamp: str
    backup_path: str
    backup_name: str = ""
    workspace_path: str
    safety_backup: str = Field(default="", description="The state before; restoring it takes this back.")
    changed: list[str] = Field(default_factory=list)
    changed_count: int = 0
    left: list[str] = Field(default_factory=list, description="Unreadable when saved, so left as they are.")
    notes: list[str] = Field(default_factory=list)
    resumed: bool = Field(default=False, description="Whether it finished an interrupted restore.")
    history_moved: str = Field(default="", description="How git's history had moved since the backup.")
    head_before: str = Field(
        default="", description="The commit that was checked out right before, if it moved."
    )
    truncated: bool = False


class ListIn(ToolInput):
    """Of which workspace."""

    workspace_path: PathText | None = Field(default=None, description="The workspace itself by default.")
    limit: int = Field(default=50, ge=1, le=MOST_ROWS)


class BackupRow(BaseModel):
    """One backup in a list."""

    model_config = ConfigDict(frozen=True)

    backup_path: str
    name: str
    timestamp: str
    backup_id: str
    kind: str
    reason: str
    created_at: Moment
    entries: int
    size_bytes: int
    pinned: bool
    complete: bool


class ListOut(ToolOutput):
    """Backups, the newest first."""

    backups: list[BackupRow]
    count: int
    truncated: bool = False


def _backups(context: Context) -> Backups:
    return Backups(context.settings.paths.backups_dir, keep=context.settings.retention.count)


def _place(context: Context, given: str | None) -> Path:
    return context.root if given is None else context.root / given


def _telling(context: Context) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        context.progress(f"{progress.stage}: {progress.entries} entries, {progress.bytes} bytes", None)
        _go_on(context)

    return tell


def _go_on(context: Context) -> None:
    """End at the next step when the caller wants that; what was begun is taken back."""
    if context.cancel.is_set():
        raise StoppedError


async def _create(context: Context, call: CreateIn) -> CreateOut:
    return await to_its_end(lambda: _create_now(context, call))


def _create_now(context: Context, call: CreateIn) -> CreateOut:
    with disk_errors(call.workspace_path or "."):
        place = _place(context, call.workspace_path)
        made = _backups(context).create(place, reason=call.reason, progress=_telling(context))
    return CreateOut(
        message="Backup created" if made.complete else "Backup created; some files could not be read",
        backup_path=json_text(str(made.path)),
        path=json_text(str(made.path)),
        timestamp=made.timestamp,
        reason=call.reason,
        backup_id=made.id,
        entries=made.entries,
        size_bytes=made.size,
        complete=made.complete,
        problems=[f"{json_text(path)}: {why}" for path, why in made.problems[:MOST_PATHS]],
    )


async def _create_mock(_context: Context, call: CreateIn) -> CreateOut:
    at = now()
    path = f"{MARK}_{at:%Y%m%d_%H%M%S}"
    return CreateOut(
        simulated=True,
        message=f"{MARK}: no backup was made",
        backup_path=path,
        path=path,
        timestamp=f"{at:%Y-%m-%d_%H%M%S}",
        reason=call.reason,
        backup_id=MARK,
        entries=0,
        size_bytes=0,
        complete=False,
    )


async def _restore(context: Context, call: RestoreIn) -> RestoreOut:
    return await to_its_end(lambda: _restore_now(context, call))


def _restore_now(context: Context, call: RestoreIn) -> RestoreOut:
    backups = _backups(context)
    with disk_errors(call.backup_path or "."):
        backup, target = _chosen(context, backups, call)
        done = restore(
            backups,
            backup,
            permit=context.permit,
            target=target,
            allowed_roots=(context.root,),
            undoes=backup.id if call.as_undo else "",
            history=call.history or ("refuse" if call.as_undo else "restore"),
            progress=_telling(context),
            step=lambda: _go_on(context),
        )
    return _restored(done)


def _chosen(context: Context, backups: Backups, call: RestoreIn) -> tuple[Backup, Path]:
    """Find the backup. Where no target is named it must be one of this workspace: the gate judged just that."""
    name = call.backup_path or call.backup_timestamp
    if name is None:
        raise UsageError(message="Missing backup_path: name the backup by its path, or by backup_timestamp.")
    if "\0" in name + (call.workspace_path or ""):
        raise NotFoundError(kind="backup", name=name, cure="`proctor backup list` shows what there is.")
    target = _place(context, call.workspace_path)
    if call.workspace_path is None or call.backup_path is None:
        return backups.find(name, target), target
    return backups.find(name), target


def _restored(done: Restored) -> RestoreOut:
    changed = [json_text(path) for path in done.changed]
    left = [json_text(path) for path in done.left]
    cut = max(len(changed), len(left), len(done.notes)) > MOST_PATHS
    return RestoreOut(
        message=MESSAGE,
        timestamp=done.backup.timestamp,
        backup_path=json_text(str(done.backup.path)),
        backup_name=done.backup.name,
        workspace_path=json_text(str(done.target)),
        safety_backup=done.safety.name,
        changed=changed[:MOST_PATHS],
        changed_count=len(changed),
        left=left[:MOST_PATHS],
        notes=[json_text(note) for note in done.notes[:MOST_PATHS]],
        resumed=done.resumed,
        history_moved=done.moved.sentence() if done.moved else "",
        head_before=done.moved.now.head if done.moved and done.moved.now else "",
        truncated=cut,
    )


async def _restore_mock(_context: Context, call: RestoreIn) -> RestoreOut:
    name = call.backup_path or call.backup_timestamp or MARK
    return RestoreOut(
        simulated=True,
        message=f"{MARK}: nothing was restored",
        timestamp=call.backup_timestamp or "",
        backup_path=name,
        workspace_path=call.workspace_path or ".",
    )


async def _list(context: Context, call: ListIn) -> ListOut:
    with disk_errors(call.workspace_path or "."):
        place = _place(context, call.workspace_path)
        found = await asyncio.to_thread(_backups(context).listing, place)
    rows = [_row(one) for one in found[: call.limit]]
    return ListOut(backups=rows, count=len(rows), truncated=len(found) > len(rows))


def _row(one: Backup) -> BackupRow:
    return BackupRow(
        backup_path=json_text(str(one.path)),
        name=one.name,
        timestamp=one.timestamp,
        backup_id=one.id,
        kind=one.kind,
        reason=one.reason,
        created_at=one.created_at,
        entries=one.entries,
        size_bytes=one.size,
        pinned=one.pinned,
        complete=one.complete,
    )


async def _list_mock(_context: Context, _call: ListIn) -> ListOut:
    return ListOut(simulated=True, backups=[], count=0)


def _reads(call: CreateIn | ListIn) -> Sequence[Touch]:
    return (Reads(call.workspace_path or "."),)


def _writes(call: RestoreIn) -> Sequence[Touch]:
    return (Writes(call.workspace_path or "."),)


def _explains(call: RestoreIn) -> Sequence[str]:
    name = call.backup_path or call.backup_timestamp or "?"
    return (
        f"Everything in {call.workspace_path or 'the workspace'} becomes exactly what {name} holds; what came "
        "after it goes away.",
        "The state before is saved first; `proctor undo` brings it back.",
    )


BACKUP_TOOLS: tuple[Tool, ...] = (
    declare(
        name="create_backup",
        summary="Create timestamped backup of workspace before making changes. "
        "Always call this before modifying files.",
        input=CreateIn,
        output=CreateOut,
        domain="backup",
        side_effect=SideEffect.READ_ONLY,
        handler=_create,
        mock=_create_mock,
        touches=_reads,
        seconds=_HOUR,
    ),
    declare(
        name="restore_backup",
        summary="Restore workspace from a previous backup. Use when changes need to be rolled back.",
        aliases=("restore_from_backup",),
        parameter_aliases={"timestamp": "backup_timestamp"},
        input=RestoreIn,
        output=RestoreOut,
        domain="backup",
        side_effect=SideEffect.EXECUTE,
        handler=_restore,
        mock=_restore_mock,
        touches=_writes,
        explains=_explains,
        seconds=_HOUR,
        snapshot=False,
    ),
    declare(
        name="list_backups",
        summary="List the backups of the workspace, the newest first.",
        input=ListIn,
        output=ListOut,
        domain="backup",
        side_effect=SideEffect.READ_ONLY,
        handler=_list,
        mock=_list_mock,
        touches=_reads,
        seconds=60.0,
    ),
)
