"""The seeds' ten WebSocket requests as a table: which tool, which fields must be there, and the exact frame of the answer.

Whatever else the registry has can be asked for by its own name and is answered by a `tool_result` frame. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from proctor.protocol.tools import CallResult, Tool

__all__ = [
    "REQUESTS",
    "Asked",
    "Frame",
    "Request",
    "RequestError",
    "answer_of",
    "asked",
    "error_frame",
    "inputs_of",
    "marked",
    "pending_frame",
]

Frame = dict[str, Any]
Fields = Mapping[str, Any]
MOST_SHOWN: Final = 100
# Fields of the envelope itself; everything else at the top level is taken as data where the tool knows it.
_ENVELOPE: Final = frozenset(
    {"type", "data", "id", "progress", "workspace", "trace_id", "background", "as", "profile", "key"}
)


class RequestError(ValueError):
    """A message that cannot be understood; its text is the answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One message, understood."""

    type: str
    data: Fields
    """What was sent as data: must be right."""
    beside: Fields
    """What else stood at the top level: taken where it fits, as some seed clients send it."""
    id: str | int | None = None
    progress: bool = False
    background: bool = False
    workspace: str | None = None
    trace_id: str | None = None
    acting: str | None = None
    """`as`: judge it as this agent's call."""
    profile: str | None = None
    key: str | None = None
    """Names the call, so that the same one again is the same."""

    def get(self, name: str) -> Any:
        """A field, from data or from the top level."""
        found = self.data.get(name)
        return self.beside.get(name) if found is None else found


@dataclass(frozen=True, slots=True)
class Request:
    """One of the seeds' requests."""

    tool: str
    answer: Callable[[Asked, Fields], Frame]
    needs: tuple[tuple[str, ...], ...] = ()
    """Fields that must be there, each with its other names."""
    missing: str = ""


def asked(message: object) -> Asked:
    """Read the envelope; whatever is wrong with it is one sentence."""
    if not isinstance(message, dict):
        raise RequestError("A message is a JSON object with a type.")
    kind, data = message.get("type"), message.get("data")
    if not isinstance(kind, str) or not kind:
        raise RequestError("Missing type")
    if data is not None and not isinstance(data, dict):
        raise RequestError("data must be an object")
    data = data or {}
    beside = {name: value for name, value in message.items() if name not in _ENVELOPE}
    mark = message.get("id")
    place, trace = _text(message, "workspace"), _text(message, "trace_id")
    return Asked(
        kind,
        {name: value for name, value in data.items() if name not in {"progress", "background"}},
        beside,
        mark if isinstance(mark, str | int) and not isinstance(mark, bool) else None,
        (message.get("progress") or data.get("progress")) is True,
        (message.get("background") or data.get("background")) is True,
        place,
        trace,
        _text(message, "as"),
        _text(message, "profile"),
        _text(message, "key"),
    )


def _text(message: Fields, name: str) -> str | None:
    found = message.get(name)
    if found is not None and not isinstance(found, str):
        raise RequestError(f"{name} must be a text")
    return found


def inputs_of(request: Asked, tool: Tool, needs: tuple[tuple[str, ...], ...], missing: str) -> dict[str, Any]:
    """What the tool gets; a null is as good as nothing, and so is an empty text where only content may be empty."""
    for names in needs:
        if all(request.get(name) in _NOTHING.get(name, (None, "")) for name in names):
            raise RequestError(missing)
    known = {*tool.input.model_fields, *tool.parameter_aliases}
    fitting = {name: value for name, value in request.beside.items() if name in known and value is not None}
    said = {name: value for name, value in request.data.items() if value is not None}
    own = {tool.parameter_aliases.get(name, name) for name in said}
    return {
        **{
            name: value
            for name, value in fitting.items()
            if tool.parameter_aliases.get(name, name) not in own
        },
        **said,
    }


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _path(request: Asked) -> str:
    names = ("path", "file_path", "dir_path", "directory", "filename")
    return next((str(found) for name in names if (found := request.get(name)) is not None), ".")


def _file(request: Asked, output: Fields) -> Frame:
    return {"type": "file_content", "path": _path(request), "content": output["content"]}


def _written(request: Asked, _output: Fields) -> Frame:
    return {"type": "write_success", "path": _path(request)}


def _listing(request: Asked, output: Fields) -> Frame:
    names = ("path", "type", "modified", "size", "target", "problem")
    files = [{name: one[name] for name in names if name in one} for one in output["files"]]
    return {"type": "directory_listing", "path": _path(request), "files": files, "count": output["count"]}


def _rules(_request: Asked, output: Fields) -> Frame:
    return {
        "type": "architecture_rules",
        "rules": output["rules"],
        "count": output["count"],
        "filter": output["filter"],
    }


def _schema(_request: Asked, output: Fields) -> Frame:
    return {"type": "database_schema", "schema": output["schema"] or {"tables": output["tables"]}}


def _backup(_request: Asked, output: Fields) -> Frame:
    return {"type": "backup_created", "backup_path": output["backup_path"]}


def _restored(_request: Asked, _output: Fields) -> Frame:
    return {"type": "restore_complete"}


def _command(_request: Asked, output: Fields) -> Frame:
    return {"type": "command_output", **{name: output[name] for name in ("stdout", "stderr", "exit_code")}}


_NOTHING: Final = {"content": (None,)}
_FILE: Final = ("path", "file_path", "filename")
REQUESTS: Final[Mapping[str, Request]] = MappingProxyType(
    {
        "read_file": Request("read_file", _file, (_FILE,), "Missing file path"),
        "write_file": Request("write_file", _written, (_FILE, ("content",)), "Missing path or content"),
        "list_directory": Request("list_directory", _listing),
        "get_architecture": Request("get_architecture_rules", _rules),
        "query_schema": Request("query_schema", _schema),
        "create_backup": Request(
            "create_backup", _backup, (("workspace_path", "workspace"),), "Missing workspace_path"
        ),
        "restore_backup": Request(
            "restore_backup",
            _restored,
            (("backup_path", "backup_timestamp", "timestamp"), ("workspace_path", "workspace")),
            "Missing backup_path or workspace_path",
        ),
        "execute_command": Request("execute_command", _command, (("command",),), "Missing command"),
    }
)


def answer_of(request: Asked, how: Request | None, result: CallResult) -> Frame:
    """The frame of a call's answer; what is out of the ordinary is said beside the seed's fields."""
    if result.error is not None:
        return error_frame(_sentence(request, result), request, code="" if how else result.error.code)
    output = result.output or {}
    if how is None:
        frame: Frame = {"type": "tool_result", "tool": result.tool, "output": output}
    else:
        frame = how.answer(request, output)
    for flag in ("truncated", "timed_out"):
        if output.get(flag) is True:
            frame[flag] = True
    if result.simulated:
        frame["simulated"] = True
    if result.notes:
        frame["notes"] = list(result.notes)
    return marked(frame, request)


def _sentence(request: Asked, result: CallResult) -> str:
    assert result.error is not None
    if result.tool == "read_file" and result.error.code == "not_found":
        return f"File not found: {_path(request)[:MOST_SHOWN]}"
    return result.error.message


def error_frame(message: str, request: Asked | None = None, *, code: str = "") -> Frame:
    """The one shape of everything that went wrong."""
    frame: Frame = {"type": "error", "message": message}
    if code:
        frame["code"] = code
    return frame if request is None else marked(frame, request)


def pending_frame(request: Asked, result: CallResult, key: str | None, *, kind: str) -> Frame:
    """That a person is asked (`approval_requested`), or was asked and has not answered yet (`approval_pending`)."""
    assert result.error is not None
    frame: Frame = {
        "type": kind,
        "tool": result.tool,
        "approval_id": result.approval_id,
        "call_id": result.call_id,
        "trace_id": result.trace_id,
        "message": result.error.message,
    }
    return marked(frame if key is None else {**frame, "key": key}, request)


def marked(frame: Frame, request: Asked) -> Frame:
    """Give an answer the mark its request came with."""
    return frame if request.id is None else {**frame, "id": request.id}
