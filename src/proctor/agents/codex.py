"""Codex, one-shot and ungated: `codex exec --json`, the prompt on standard input.

The thread id comes with the first event and cannot be preset. Codex confines itself (`-s`): workspace-write
unless PROCTOR_CODEX_SANDBOX in the agent's environment says read-only or danger-full-access. Tokens, never
money.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from proctor.agents.driver import AgentEvent, AttemptRequest, Capabilities, Delegation, Failure, Usage
from proctor.agents.embedded import claims
from proctor.agents.failures import from_text
from proctor.agents.process import Command
from proctor.agents.stream import StreamDriver, Terminal, cap, raw_event, small, steps_done
from proctor.protocol.errors import ConfigError
from proctor.protocol.events import EventStatus

__all__ = ["SANDBOX", "CodexDriver", "CodexNormalizer"]

SANDBOX = "PROCTOR_CODEX_SANDBOX"
SANDBOXES = ("workspace-write", "read-only", "danger-full-access")
RETRY = re.compile(r"^Reconnecting\.\.\.")


class CodexDriver(StreamDriver):
    """Drives the `codex` program."""

    name = "codex"
    program = ("codex",)
    capabilities = Capabilities(resumes=True, reports_tokens=True)

    def command(self, request: AttemptRequest, native_id: str | None) -> Command:
        """Options belong before `resume`; `-` takes the prompt from standard input."""
        argv = [*self.program, "exec", "--json", "--skip-git-repo-check", "-s", _sandbox(request)]
        argv += ["-C", str(request.worktree)]
        argv += ["-m", request.model] if request.model else []
        argv += [] if request.resume is None else ["resume", request.resume]
        env = {name: value for name, value in request.env.items() if name != SANDBOX}
        return Command(
            (*argv, "-"), request.worktree, {**env, "TMPDIR": str(request.tmp)}, request.prompt.encode()
        )

    def normalizer(self, request: AttemptRequest, native_id: str | None) -> CodexNormalizer:
        """Make a fresh translator."""
        return CodexNormalizer(native_id)


def _sandbox(request: AttemptRequest) -> str:
    chosen = request.env.get(SANDBOX, SANDBOXES[0])
    if chosen not in SANDBOXES:
        allowed = f"Use one of: {', '.join(SANDBOXES)}."
        raise ConfigError(where=SANDBOX, problem=f"{chosen!r} is not a sandbox of Codex", allowed=allowed)
    return chosen


class CodexNormalizer:
    """`exec --json` in our words."""

    def __init__(self, native_id: str | None = None) -> None:
        self.native_id = native_id
        self.usage = Usage(cumulative=True)
        self.final_text = ""
        self.terminal: Terminal | None = None
        self.delegations: tuple[Delegation, ...] = ()

    def feed(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        """Translate one line; what has another shape than today's is kept raw."""
        try:
            match native.get("type"):
                case "thread.started":
                    self.native_id = str(native["thread_id"])
                    details = {"native_id": self.native_id}
                    return [AgentEvent("status", "working", EventStatus.RUNNING, details=details)]
                case "turn.started":
                    return [AgentEvent("status", "turn started", EventStatus.RUNNING, useful=False)]
                case "item.started" | "item.updated" | "item.completed" as stage:
                    return self._item(stage, native["item"])
                case "turn.completed":
                    return self._completed(native)
                case "turn.failed":
                    return self._failed(str(native["error"]["message"]))
                case "error":
                    return self._error(str(native["message"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        return [raw_event(native)]

    def _item(self, stage: str, item: Mapping[str, Any]) -> list[AgentEvent]:
        match item.get("type"):
            case "agent_message":
                self.final_text = str(item["text"])
                return [AgentEvent("message", cap(self.final_text)), *claims(self.final_text)]
            case "reasoning":
                return [
                    AgentEvent(
                        "status", cap(str(item["text"])), EventStatus.RUNNING, details={"thinking": True}
                    )
                ]
            case "command_execution" | "file_change" | "mcp_tool_call" as kind:
                return _call(stage, kind, item)
            case "todo_list":
                todos = item.get("items") or []
                return steps_done(sum(1 for todo in todos if todo.get("completed")), len(todos))
            case "error":  # a warning of Codex about itself, not a failure
                return [AgentEvent("error", cap(str(item["message"])), EventStatus.WARNING)]
        return [raw_event({"type": stage, "item": dict(item)})]

    def _completed(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        usage = native.get("usage") or {}
        self.usage = Usage(
            input_tokens=int(usage.get("input_tokens") or 0),
            output_tokens=int(usage.get("output_tokens") or 0),
            cached_input_tokens=int(usage.get("cached_input_tokens") or 0),
            cumulative=True,
        )
        self.terminal = Terminal(True, "completed")
        last = {"terminal": True, "claimed": True}
        done = AgentEvent("milestone", cap(self.final_text), details=last)
        return [AgentEvent("usage", details=self.usage.as_details()), done]

    def _failed(self, message: str) -> list[AgentEvent]:
        self.terminal = Terminal(False, cap(message, 2000), from_text(message) or Failure.AGENT)
        return [AgentEvent("error", cap(message), EventStatus.ERROR, details={"terminal": True})]

    def _error(self, message: str) -> list[AgentEvent]:
        retry = RETRY.match(message) is not None
        status = EventStatus.WARNING if retry else EventStatus.ERROR
        return [AgentEvent("error", cap(message), status, details={"retry": retry}, useful=False)]


def _call(stage: str, kind: str, item: Mapping[str, Any]) -> list[AgentEvent]:
    name = {"command_execution": "shell", "file_change": "edit"}.get(
        kind
    ) or f"{item['server']}.{item['tool']}"
    if stage != "item.completed":
        details = {"call": item.get("id"), "input": _given(kind, item)}
        return [AgentEvent("tool_use", status=EventStatus.RUNNING, tool_name=name, details=details)]
    status = EventStatus.SUCCESS if item.get("status") == "completed" else EventStatus.ERROR
    details = {"call": item.get("id"), "exit_code": item.get("exit_code")}
    events = [AgentEvent("tool_result", cap(_output(kind, item)), status, name, details)]
    if kind == "file_change" and status is EventStatus.SUCCESS:
        events += [
            AgentEvent("task", f"{change['kind']} {change['path']}", details={"file": change["path"]})
            for change in item.get("changes") or []
        ]
    return events


def _given(kind: str, item: Mapping[str, Any]) -> Any:
    return small(
        {
            "command_execution": item.get("command"),
            "file_change": item.get("changes"),
            "mcp_tool_call": item.get("arguments"),
        }[kind]
    )


def _output(kind: str, item: Mapping[str, Any]) -> str:
    if kind == "command_execution":
        return str(item.get("aggregated_output") or "")
    return json.dumps(
        item.get("changes") if kind == "file_change" else item.get("error") or item.get("result")
    )
