"""User requests and their instructions: request → analyze → instructions → next, each step once and in order.

Invariants: a status moves only along its table, in one transaction; an instruction is given to one caller; within a
request instructions come in its own order, and older requests come first. Only a person or Proctor says `verified`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa

from proctor.gate.context import Context
from proctor.protocol.errors import InvalidTransitionError, NotFoundError, RefusedError
from proctor.protocol.events import ActorKind, Draft
from proctor.protocol.tools import SideEffect, Tool
from proctor.store.tables import github_instruction_queue, solace_user_requests
from proctor.tools.analysis import analyze, steps_of
from proctor.tools.architecture import load_rules
from proctor.tools.models import now
from proctor.tools.registry import declare
from proctor.tools.request_mocks import (
    mock_analyze,
    mock_create,
    mock_get,
    mock_instructions,
    mock_next,
    mock_update,
)
from proctor.tools.request_models import (
    AnalyzeOut,
    CreateIn,
    Instruction,
    InstructionsOut,
    NextIn,
    NextOut,
    RequestIn,
    RequestOut,
    UpdateIn,
    UpdateOut,
)
from proctor.workspace.scan import Scanner

__all__ = ["REQUEST_TOOLS"]

STALE: Final = timedelta(hours=1)
MOST_TRIES: Final = 3
MOST: Final = 500
_requests, _queue = solace_user_requests, github_instruction_queue
# From where an instruction may come to a status.
_FROM: Final[Mapping[str, frozenset[str]]] = {
    "pending": frozenset({"in_progress", "failed"}),
    "in_progress": frozenset({"pending"}),
    "completed": frozenset({"in_progress"}),
    "verified": frozenset({"completed"}),
    "failed": frozenset({"in_progress", "completed"}),
}


# ── asking ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _create(context: Context, call: CreateIn) -> RequestOut:
    workspace = context.call.workspace
    values = {
        "request_text": call.request_text,
        "request_type": call.request_type,
        "status": "analyzing",
        "workspace": None if workspace is None else _stored_path(str(workspace)),
        "trace_id": context.call.trace_id,
        "created_by": context.call.actor.name[:100],
    }

    def change(connection: sa.Connection) -> tuple[RequestOut, list[Draft]]:
        made = sa.insert(_requests).values(**values).returning(_requests)
        return RequestOut.model_validate(dict(connection.execute(made).mappings().one())), []

    return await context.writer.transact_async(change)


def _stored_path(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _get(context: Context, call: RequestIn) -> RequestOut:
    return RequestOut.model_validate(await asyncio.to_thread(_read, context, call.request_id))


def _read(context: Context, request_id: int) -> dict[str, Any]:
    with context.database.read() as connection:
        return _row(connection, request_id)


def _row(connection: sa.Connection, request_id: int, *, lock: bool = False) -> dict[str, Any]:
    query = sa.select(_requests).where(_requests.c.id == request_id)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise NotFoundError(kind="request", name=str(request_id), cure="Take the id of create_user_request.")
    return dict(found)


# ── analysing ──────────────────────────────────────────────────────────────────────────────────────────────


async def _analyze(context: Context, call: RequestIn) -> AnalyzeOut:
    row = await asyncio.to_thread(_read, context, call.request_id)
    rules = await asyncio.to_thread(load_rules, context.database)
    paths = await asyncio.to_thread(_paths, context)
    found = await asyncio.to_thread(analyze, row["request_text"], row["request_type"], rules, paths)
    values = {
        "request_type": found.request_type,
        "complexity_score": found.complexity,
        "architecture_rules_used": list(found.rules),
        "files_affected": list(found.files),
        "estimated_instructions": found.estimate,
        "analysis_notes": found.notes,
        "status": "planned",
    }

    def change(connection: sa.Connection) -> tuple[None, list[Draft]]:
        _step(connection, call.request_id, values, allowed=("analyzing", "planned"))
        return None, []

    await context.writer.transact_async(change)
    said = {"message": "Request analyzed", "request_id": call.request_id}
    return AnalyzeOut.model_validate({**said, **values})


def _paths(context: Context) -> list[str]:
    if context.call.workspace is None:
        return []
    # A name that is not UTF-8 cannot stand in a row, and nobody can name it in a request.
    listing = Scanner().files(context.root)
    return [path for path in listing.paths if path.isprintable()]


def _step(
    connection: sa.Connection, request_id: int, values: Mapping[str, Any], *, allowed: tuple[str, ...]
) -> dict[str, Any]:
    """Move a request on, if it stands where the step may begin; in the caller's transaction."""
    row = _row(connection, request_id, lock=True)
    if row["status"] not in allowed:
        raise InvalidTransitionError(
            machine="request",
            current=row["status"],
            target=str(values["status"]),
            allowed=f"from {' or '.join(allowed)}",
        )
    connection.execute(sa.update(_requests).where(_requests.c.id == request_id).values(**values))
    return {**row, **values}


# ── instructing ────────────────────────────────────────────────────────────────────────────────────────────


async def _generate(context: Context, call: RequestIn) -> InstructionsOut:
    def change(connection: sa.Connection) -> tuple[InstructionsOut, list[Draft]]:
        begun = {"status": "executing", "started_at": now()}
        row = _step(connection, call.request_id, begun, allowed=("planned",))
        steps = steps_of(row["request_text"], row["files_affected"], row["architecture_rules_used"])
        rows = [
            {
                "parent_task_id": call.request_id,
                "instruction_sequence": number,
                "instruction_text": step.text,
                "target_file_path": step.target,
                "expected_outcome": step.outcome,
            }
            for number, step in enumerate(steps, 1)
        ]
        connection.execute(sa.insert(_queue), rows)
        return _listed(connection, call.request_id, "executing", "Instructions generated"), []

    return await context.writer.transact_async(change)


async def _list(context: Context, call: RequestIn) -> InstructionsOut:
    def look() -> InstructionsOut:
        with context.database.read() as connection:
            row = _row(connection, call.request_id)
            return _listed(connection, call.request_id, row["status"], "Instructions of the request")

    return await asyncio.to_thread(look)


def _listed(connection: sa.Connection, request_id: int, status: str, message: str) -> InstructionsOut:
    mine = _queue.c.parent_task_id == request_id
    query = sa.select(_queue).where(mine).order_by(_queue.c.instruction_sequence).limit(MOST)
    rows = [Instruction.model_validate(dict(row)) for row in connection.execute(query).mappings()]
    return InstructionsOut(
        message=message,
        request_id=request_id,
        parent_task_id=request_id,
        status=status,
        instructions=rows,
        count=len(rows),
    )


async def _next(context: Context, call: NextIn) -> NextOut:
    def change(connection: sa.Connection) -> tuple[NextOut, list[Draft]]:
        if call.request_id is not None:
            _row(connection, call.request_id)
        while (candidate := _candidate(connection, call.request_id)) is not None:
            claimed = _claim(connection, candidate, context.call.actor.name)
            if claimed is not None:
                return NextOut(has_next=True, message="Next instruction", instruction=claimed), []
        return NextOut(has_next=False, message="No pending instructions"), []

    return await context.writer.transact_async(change)


def _candidate(connection: sa.Connection, request_id: int | None) -> Mapping[Any, Any] | None:
    """The first that is free in its request's own order; one whose caller was silent too long is free again."""
    stale = (_queue.c.status == "in_progress") & (_queue.c.started_at < now() - STALE)
    free = (_queue.c.status == "pending") | stale
    query = (
        sa.select(_queue)
        .where(free, _queue.c.retry_count < MOST_TRIES)
        .order_by(_queue.c.parent_task_id, _queue.c.instruction_sequence)
        .limit(1)
    )
    if request_id is not None:
        query = query.where(_queue.c.parent_task_id == request_id)
    return connection.execute(query).mappings().first()


def _claim(connection: sa.Connection, row: Mapping[Any, Any], by: str) -> Instruction | None:
    """Take it, unless somebody was faster: the condition makes two claims of one row impossible."""
    unchanged = (
        (_queue.c.id == row["id"])
        & (_queue.c.status == row["status"])
        & (_queue.c.retry_count == row["retry_count"])
    )
    tries = row["retry_count"] + (1 if row["status"] == "in_progress" else 0)
    values = {"status": "in_progress", "started_at": now(), "claimed_by": by[:100], "retry_count": tries}
    taken = sa.update(_queue).where(unchanged).values(**values).returning(_queue)
    found = connection.execute(taken).mappings().first()
    return None if found is None else Instruction.model_validate(dict(found))


# ── reporting back ─────────────────────────────────────────────────────────────────────────────────────────


async def _update(context: Context, call: UpdateIn) -> UpdateOut:
    if call.status == "verified" and context.call.actor.kind is ActorKind.AGENT:
        reason = "an agent's word is a claim; a person or Proctor verifies"
        raise RefusedError(reason=reason, cure="Report completed, with what you did.")

    def change(connection: sa.Connection) -> tuple[UpdateOut, list[Draft]]:
        row = _instruction(connection, call.instruction_id)
        if row["status"] not in _FROM[call.status]:
            raise InvalidTransitionError(
                machine="instruction",
                current=row["status"],
                target=call.status,
                allowed=", ".join(sorted(to for to, origins in _FROM.items() if row["status"] in origins))
                or "nothing, it has ended",
            )
        changed = sa.update(_queue).where(_queue.c.id == row["id"]).values(**_reported(call, row))
        after = connection.execute(changed.returning(_queue)).mappings().one()
        status = _follow(connection, row["parent_task_id"])
        instruction = Instruction.model_validate(dict(after))
        return UpdateOut(message="Instruction updated", instruction=instruction, request_status=status), []

    return await context.writer.transact_async(change)


def _instruction(connection: sa.Connection, instruction_id: int) -> Mapping[Any, Any]:
    query = sa.select(_queue).where(_queue.c.id == instruction_id).with_for_update()
    found = connection.execute(query).mappings().first()
    if found is None:
        cure = "Take the id that get_next_instruction gave."
        raise NotFoundError(kind="instruction", name=str(instruction_id), cure=cure)
    return found


def _reported(call: UpdateIn, row: Mapping[Any, Any]) -> dict[str, Any]:
    """The columns that go with a status; what was said before stays unless it is said anew."""
    values: dict[str, Any] = {"status": call.status}
    for name in ("github_response", "verification_notes"):
        if (said := getattr(call, name)) is not None:
            values[name] = said
    if call.status == "pending":
        again = {"retry_count": row["retry_count"] + 1} if row["status"] == "failed" else {}
        values |= {"started_at": None, "completed_at": None, "claimed_by": None, **again}
    if call.status in {"completed", "failed"}:
        values["completed_at"] = now()
    if call.status == "in_progress":
        values["started_at"] = now()
    if call.status == "verified":
        values["verified_at"] = now()
    return values


def _follow(connection: sa.Connection, request_id: int) -> str:
    """Let the request stand where its instructions do."""
    _row(connection, request_id, lock=True)
    query = sa.select(_queue.c.status).where(_queue.c.parent_task_id == request_id)
    found = set(connection.execute(query).scalars())
    if found & {"pending", "in_progress"}:
        status, outcome = "executing", None
    elif "failed" in found:
        status, outcome = "failed", "At least one instruction failed."
    elif "completed" in found:
        status, outcome = "verifying", None
    else:
        status, outcome = "complete", "All instructions are verified."
    ended = now() if status in {"failed", "complete"} else None
    values = {"status": status, "completed_at": ended, "final_outcome": outcome}
    connection.execute(sa.update(_requests).where(_requests.c.id == request_id).values(**values))
    return status


_ID: Final = {"id": "request_id", "parent_task_id": "request_id"}

REQUEST_TOOLS: tuple[Tool, ...] = (
    declare(
        name="create_user_request",
        summary="Write down what a user wants; analyze_request comes next.",
        input=CreateIn,
        output=RequestOut,
        domain="database",
        side_effect=SideEffect.PROPOSE,
        handler=_create,
        mock=mock_create,
        seconds=60.0,
    ),
    declare(
        name="get_user_request",
        summary="Show a request and where it stands.",
        parameter_aliases=_ID,
        input=RequestIn,
        output=RequestOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_get,
        mock=mock_get,
        seconds=60.0,
    ),
    declare(
        name="analyze_request",
        summary="Find the kind, size, architecture rules and files of a request; generate_instructions comes next.",
        parameter_aliases=_ID,
        input=RequestIn,
        output=AnalyzeOut,
        domain="database",
        side_effect=SideEffect.PROPOSE,
        handler=_analyze,
        mock=mock_analyze,
        seconds=120.0,
    ),
    declare(
        name="generate_instructions",
        summary="Turn an analyzed request into instructions, two per file, in order.",
        parameter_aliases=_ID,
        input=RequestIn,
        output=InstructionsOut,
        domain="database",
        side_effect=SideEffect.PROPOSE,
        handler=_generate,
        mock=mock_instructions,
        seconds=60.0,
    ),
    declare(
        name="list_instructions",
        summary="Show the instructions of a request, in order.",
        parameter_aliases=_ID,
        input=RequestIn,
        output=InstructionsOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_list,
        mock=mock_instructions,
        seconds=60.0,
    ),
    declare(
        name="get_next_instruction",
        summary="Claim the next pending instruction; it is given to one caller only and becomes in_progress.",
        parameter_aliases=_ID,
        input=NextIn,
        output=NextOut,
        domain="database",
        side_effect=SideEffect.PROPOSE,
        handler=_next,
        mock=mock_next,
        seconds=60.0,
    ),
    declare(
        name="update_instruction",
        summary="Report what became of an instruction: completed, failed, or pending to give it back.",
        parameter_aliases={"id": "instruction_id"},
        input=UpdateIn,
        output=UpdateOut,
        domain="database",
        side_effect=SideEffect.PROPOSE,
        handler=_update,
        mock=mock_update,
        seconds=60.0,
    ),
)
