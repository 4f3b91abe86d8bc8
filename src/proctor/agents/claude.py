"""Claude Code, one-shot and ungated: `claude -p` with stream-json out, the prompt on standard input.

The native id is preset, so it is known before the launch. The last `result` line decides, and only together
with the exit code: API errors come as subtype "success" with is_error, and SIGINT ends with exit code 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from proctor.agents.driver import AgentEvent, AttemptRequest, Capabilities, Delegation, Failure, Usage
from proctor.agents.embedded import claims
from proctor.agents.failures import from_http_status, from_text
from proctor.agents.process import Command
from proctor.agents.stream import StreamDriver, Terminal, cap, raw_event, small, steps_done
from proctor.protocol.events import EventStatus

__all__ = ["ClaudeDriver", "ClaudeNormalizer"]

# The user's own values win. Without these a refused key is retried for minutes.
DEFAULTS = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "4",
    "DISABLE_AUTOUPDATER": "1",
}
EDITS = frozenset({"Edit", "MultiEdit", "NotebookEdit", "Write"})
WORKING = frozenset({"task_notification", "task_progress", "task_started", "task_updated", "thinking_tokens"})
REASONS = {
    "prompt_too_long": Failure.CONTEXT,
    "max_turns": Failure.LIMIT,
    "budget_exhausted": Failure.LIMIT,
}


class ClaudeDriver(StreamDriver):
    """Drives the `claude` program."""

    name = "claude"
    program = ("claude",)
    capabilities = Capabilities(
        resumes=True, interrupts=True, reports_tokens=True, reports_cost=True, preset_native_id=True
    )

    def command(self, request: AttemptRequest, native_id: str | None) -> Command:
        """Ungated flags; as root the CLI accepts them only when told that it is in a sandbox."""
        argv = [*self.program, "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--permission-mode", "bypassPermissions"]
        argv += ["--model", request.model] if request.model else []
        argv += ["--session-id" if request.resume is None else "--resume", str(native_id)]
        env = {**DEFAULTS, **request.env, "TMPDIR": str(request.tmp)}
        if os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"
        return Command(tuple(argv), request.worktree, env, request.prompt.encode())

    def normalizer(self, request: AttemptRequest, native_id: str | None) -> ClaudeNormalizer:
        """Make a fresh translator."""
        return ClaudeNormalizer(native_id)


class ClaudeNormalizer:
    """stream-json in our words."""

    def __init__(self, native_id: str | None = None) -> None:
        self.native_id = native_id
        self.usage = Usage(cumulative=True)
        self.final_text = ""
        self.terminal: Terminal | None = None
        self.delegations: tuple[Delegation, ...] = ()
        self._tools: dict[str, str] = {}

    def feed(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        """Translate one line; what has another shape than today's is kept raw."""
        try:
            match native.get("type"):
                case "system":
                    return self._system(native)
                case "assistant":
                    return self._assistant(native)
                case "user":
                    return self._user(native)
                case "result":
                    return self._result(native)
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        return [raw_event(native)]

    def _system(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        match native.get("subtype"):
            case "init":
                self.native_id = str(native["session_id"])
                details = {
                    "native_id": self.native_id,
                    "version": native.get("claude_code_version"),
                    "model": native.get("model"),
                }
                return [AgentEvent("status", "working", EventStatus.RUNNING, details=details)]
            case "api_retry":
                text = f"retry {native.get('attempt')} of {native.get('max_retries')}: {native.get('error')}"
                details = {"http_status": native.get("error_status")}
                return [AgentEvent("error", text, EventStatus.WARNING, details=details, useful=False)]
            case "permission_denied":
                return [_denied(native["tool_name"], native.get("message") or native.get("decision_reason"))]
        return [raw_event(native, useful=native.get("subtype") in WORKING)]

    def _assistant(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        parent = native.get("parent_tool_use_id")
        events = [event for block in native["message"]["content"] for event in self._block(block, parent)]
        return events or [raw_event(native)]

    def _block(self, block: Mapping[str, Any], parent: str | None) -> list[AgentEvent]:
        match block.get("type"):
            case "text":
                return self._text(str(block["text"]), parent)
            case "thinking":
                return [
                    AgentEvent(
                        "status", cap(str(block["thinking"])), EventStatus.RUNNING, details={"thinking": True}
                    )
                ]
            case "tool_use":
                return self._tool_use(block, parent)
        return [raw_event(block)]

    def _text(self, text: str, parent: str | None) -> list[AgentEvent]:
        if parent is not None:
            return [AgentEvent("message", cap(text), details={"parent": parent})]
        self.final_text = text
        return [AgentEvent("message", cap(text)), *claims(text)]

    def _tool_use(self, block: Mapping[str, Any], parent: str | None) -> list[AgentEvent]:
        name, given = str(block["name"]), block.get("input") or {}
        self._tools[str(block["id"])] = name
        details = {"call": block["id"], "input": small(given), **({"parent": parent} if parent else {})}
        events = [AgentEvent("tool_use", status=EventStatus.RUNNING, tool_name=name, details=details)]
        if name in EDITS:
            path = str(given.get("file_path") or given.get("notebook_path") or "")
            events.append(AgentEvent("task", f"{name} {path}", EventStatus.RUNNING, details={"file": path}))
        if name == "TodoWrite":
            todos = given.get("todos") or []
            events += steps_done(sum(1 for todo in todos if todo.get("status") == "completed"), len(todos))
        return events

    def _user(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        content = native["message"]["content"]
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        results = [block for block in blocks if block.get("type") == "tool_result"]
        return [self._tool_result(block) for block in results] or [raw_event(native, useful=False)]

    def _tool_result(self, block: Mapping[str, Any]) -> AgentEvent:
        call = str(block["tool_use_id"])
        status = EventStatus.ERROR if block.get("is_error") else EventStatus.SUCCESS
        return AgentEvent(
            "tool_result", cap(_plain(block.get("content"))), status, self._tools.get(call), {"call": call}
        )

    def _result(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        self.native_id = str(native.get("session_id") or self.native_id or "") or None
        self.usage = _usage(native)
        ok = not native.get("is_error") and native.get("subtype") == "success"
        text = str(native.get("result") or "")
        self.final_text = text if ok and text else self.final_text
        reason = "completed" if ok else text or str(native.get("terminal_reason") or native.get("subtype"))
        self.terminal = Terminal(ok, cap(reason, 2000), Failure.NONE if ok else _failure(native, text))
        events = [AgentEvent("usage", details=self.usage.as_details())]
        events += [
            _denied(each.get("tool_name", ""), "denied") for each in native.get("permission_denials") or []
        ]
        last = {"terminal": True, "claimed": True}
        if ok:
            return [*events, AgentEvent("milestone", cap(text), details=last)]
        return [*events, AgentEvent("error", cap(reason), EventStatus.ERROR, details=last)]


def _failure(native: Mapping[str, Any], text: str) -> Failure:
    known = REASONS.get(str(native.get("terminal_reason")), Failure.NONE)
    status = native.get("api_error_status")
    by_status = from_http_status(int(status)) if status else Failure.NONE
    by_name = Failure.NETWORK if native.get("api_error") == "connection_failed" else Failure.NONE
    return known or by_status or by_name or from_text(text) or Failure.AGENT


def _usage(native: Mapping[str, Any]) -> Usage:
    """Sum over the models when given: `usage` tells only of the main one."""
    models = list((native.get("modelUsage") or {}).values())
    cost = native.get("total_cost_usd")
    plain = native.get("usage") or {}
    return Usage(
        input_tokens=_sum(models, "inputTokens") if models else int(plain.get("input_tokens") or 0),
        output_tokens=_sum(models, "outputTokens") if models else int(plain.get("output_tokens") or 0),
        cached_input_tokens=_sum(models, "cacheReadInputTokens")
        if models
        else int(plain.get("cache_read_input_tokens") or 0),
        cost_usd=None if cost is None else float(cost),
        cumulative=True,  # after --resume the numbers of the models and the money go on from before
    )


def _sum(models: list[Mapping[str, Any]], key: str) -> int:
    return sum(int(model.get(key) or 0) for model in models)


def _denied(tool: object, why: object) -> AgentEvent:
    return AgentEvent("permission_blocker", cap(str(why)), EventStatus.WARNING, str(tool), {"denied": True})


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(
            str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content
        )
    return "" if content is None else json.dumps(content)
