"""The driver of the scripted agent: everything it does is simulated and says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from proctor.agents.driver import AgentEvent, Answer, AttemptRequest, Capabilities, Delegation, Usage
from proctor.agents.process import Command
from proctor.agents.stream import StreamDriver, Terminal, cap, raw_event, small
from proctor.protocol.events import EventStatus

__all__ = ["ScriptedDriver", "ScriptedNormalizer"]


class ScriptedDriver(StreamDriver):
    """Runs `proctor.testing.scripted_agent` as a real process."""

    name = "scripted"
    capabilities = Capabilities(
        resumes=True,
        gated=True,
        interrupts=True,
        reports_tokens=True,
        reports_cost=True,
        preset_native_id=True,
        simulated=True,
    )

    # Isolated, so that files of the worktree cannot shadow the standard library.
    program = (sys.executable, "-I", "-m", "proctor.testing.scripted_agent")

    def command(self, request: AttemptRequest, native_id: str | None) -> Command:
        """Give the prompt on standard input, where the answers will come too."""
        argv = [
            *self.program,
            "--native-id",
            str(native_id),
            "--task",
            request.task_id,
            "--state",
            str(request.state),
        ]
        if request.resume is not None:
            argv.append("--resume")
        prompt = json.dumps({"prompt": request.prompt}).encode() + b"\n"
        env = {**request.env, "TMPDIR": str(request.tmp)}
        return Command(tuple(argv), request.worktree, env, prompt, keep_stdin=True)

    def normalizer(self, request: AttemptRequest, native_id: str | None) -> ScriptedNormalizer:
        """Make a fresh translator."""
        return ScriptedNormalizer(native_id)

    def encode_answer(self, request_id: str, answer: Answer) -> bytes:
        """Say an answer as the scripted agent reads it."""
        message = {"answer": {"id": request_id, "allow": answer.allow, "reason": answer.reason}}
        return json.dumps(message).encode() + b"\n"


class ScriptedNormalizer:
    """The scripted agent's lines in our words."""

    def __init__(self, native_id: str | None) -> None:
        self.native_id = native_id
        self.usage = Usage()
        self.final_text = ""
        self.terminal: Terminal | None = None
        self.delegations: tuple[Delegation, ...] = ()

    def feed(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        """Translate one line."""
        handler = getattr(self, f"_on_{native.get('type')}", None)
        try:
            return [raw_event(native)] if handler is None else handler(native)
        except (KeyError, TypeError, ValueError):
            return [raw_event(native)]

    def _on_start(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        self.native_id = str(native["native_id"])
        return [
            AgentEvent(
                "status", "working (simulated)", EventStatus.RUNNING, details={"native_id": self.native_id}
            )
        ]

    def _on_say(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        self.final_text = str(native["text"])
        return [AgentEvent("message", cap(self.final_text))]

    def _on_progress(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        progress = max(0.0, min(100.0, float(native["progress"])))
        details = {"progress": progress}
        return [
            AgentEvent("progress", cap(str(native.get("text", ""))), EventStatus.RUNNING, details=details)
        ]

    def _on_milestone(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        return [AgentEvent("milestone", cap(str(native["text"])), details={"claimed": True})]

    def _on_tool_use(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        details = {"call": native["id"], "input": small(native["input"])}
        return [
            AgentEvent("tool_use", status=EventStatus.RUNNING, tool_name=str(native["tool"]), details=details)
        ]

    def _on_tool_result(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        status = EventStatus.SUCCESS if native["ok"] else EventStatus.ERROR
        details = {"call": native["id"]}
        return [AgentEvent("tool_result", cap(str(native["output"])), status, str(native["tool"]), details)]

    def _on_usage(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        self.usage = _usage(native)
        return [AgentEvent("usage", details=self.usage.as_details())]

    def _on_ask(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        details = {"request_id": native["id"], "input": small(native["input"])}
        return [
            AgentEvent(
                "permission_blocker", "asks for permission", EventStatus.PENDING, str(native["tool"]), details
            )
        ]

    def _on_delegate(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        wish = Delegation(str(native["agent"]), str(native["description"]), str(native.get("guidance", "")))
        self.delegations += (wish,)
        details = {"delegate_to": wish.agent, "guidance": wish.guidance}
        return [AgentEvent("task", cap(wish.description), EventStatus.PENDING, details=details)]

    def _on_result(self, native: Mapping[str, Any]) -> list[AgentEvent]:
        text = str(native["text"])
        self.terminal = Terminal(bool(native["ok"]), text)
        self.usage = _usage(native.get("usage") or {})
        if native["ok"]:
            return [AgentEvent("status", cap(text), details={"terminal": True})]
        return [AgentEvent("error", cap(text), EventStatus.ERROR, details={"terminal": True})]


def _usage(native: Mapping[str, Any]) -> Usage:
    cost = native.get("cost_usd")
    return Usage(
        input_tokens=int(native.get("input_tokens", 0)),
        output_tokens=int(native.get("output_tokens", 0)),
        cost_usd=None if cost is None else float(cost),
        cumulative=True,
    )
