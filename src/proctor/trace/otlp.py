"""Traces as OpenTelemetry spans with the names of the GenAI conventions; an extra: `pip install 'proctor[otlp]'`.

One root span per trace, one per attempt of an agent and one per tool call; every other event is a span event
on the nearest span around it. The same trace always gets the same OpenTelemetry trace id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from proctor.protocol.errors import UnavailableError
from proctor.protocol.events import Event, EventKind, EventStatus

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

__all__ = ["export_spans", "otlp_exporter"]

_CALL_ENDS = {"tool_call_complete", "tool_call_error"}
_ATTEMPT_ENDS = {"attempt_ended", "attempt_interrupted"}
_TEXT = 1024


def _missing(error: ImportError) -> UnavailableError:
    cure = "Run `pip install 'proctor[otlp]'`."
    return UnavailableError(what="OpenTelemetry export", reason=str(error), cure=cure)


def otlp_exporter(endpoint: str) -> SpanExporter:
    """An exporter that sends spans to an OTLP endpoint over HTTP."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise _missing(error) from error
    return OTLPSpanExporter(endpoint=endpoint)


def export_spans(events: Iterable[Event], exporter: SpanExporter) -> int:
    """Turn the events of one trace, in order, into spans and hand them over; returns how many events."""
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    except ImportError as error:
        raise _missing(error) from error
    provider = TracerProvider(resource=Resource({"service.name": "proctor"}), id_generator=_ids())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    weaver = _Weaver(provider.get_tracer("proctor"))
    count = 0
    for event in events:
        if not count:
            provider.id_generator.trace_name = event.trace_id  # type: ignore[attr-defined]
        weaver.take(event)
        count += 1
    weaver.finish()
    provider.shutdown()
    return count


def _ids() -> Any:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Span ids by chance, the trace id from our trace's name."""

        trace_name = ""

        def generate_trace_id(self) -> int:
            return int.from_bytes(hashlib.sha256(self.trace_name.encode()).digest()[:16]) or 1

    return Ids()


class _Weaver:
    """Opens and closes spans as events come by."""

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer
        self.root: Span | None = None
        self.open: dict[tuple[Any, ...], Span] = {}
        self.last = 0
        self.failed = False

    def take(self, event: Event) -> None:
        """Take the next event."""
        self.last = max(self.last, _nanos(event))
        if self.root is None:
            self.root = self._start(f"trace {event.trace_id}", event, None)
            self.root.set_attribute("proctor.trace_id", event.trace_id)
            if event.session_id:
                self.root.set_attribute("gen_ai.conversation.id", event.session_id)
        self.failed = self.failed or event.status is EventStatus.ERROR
        if event.kind is EventKind.CANONICAL and event.event == "tool_call_start":
            self._call(event)
        elif event.kind is EventKind.CANONICAL and event.event in _CALL_ENDS:
            if not self._close(_call_key(event), event):
                self._call_at_once(event)
        elif event.event == "attempt_started":
            self._attempt(event)
        elif event.event in _ATTEMPT_ENDS:
            self._close(_attempt_key(event), event)
        else:
            self._around(event).add_event(event.event, _facts(event), timestamp=_nanos(event))

    def finish(self) -> None:
        """Close what is still open: a call without an end is left unset, not called a success."""
        for span in self.open.values():
            span.set_attribute("proctor.interrupted", True)
            span.end(self.last)
        if self.root is not None:
            self._mark(self.root, self.failed, "")
            self.root.end(self.last)

    def _start(self, name: str, event: Event, parent: Span | None, start: int | None = None) -> Span:
        from opentelemetry.trace import set_span_in_context

        context = None if parent is None else set_span_in_context(parent)
        begun: Span = self.tracer.start_span(name, context=context, start_time=start or _nanos(event))
        return begun

    def _call(self, event: Event, start: int | None = None) -> Span:
        tool = event.tool_name or "unknown"
        span = self._start(f"execute_tool {tool}", event, self._around(event), start)
        span.set_attributes(
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, **_facts(event)}
        )
        if isinstance(event.details.get("call_id"), str):
            span.set_attribute("gen_ai.tool.call.id", event.details["call_id"])
        self.open[_call_key(event)] = span
        return span

    def _call_at_once(self, event: Event) -> None:
        """An end whose start we never saw: the span is as long as the event says."""
        self._call(event, _nanos(event) - int((event.duration_ms or 0.0) * 1_000_000))
        self._close(_call_key(event), event)

    def _attempt(self, event: Event) -> None:
        span = self._start(f"invoke_agent {event.actor_name}", event, self.root)
        span.set_attributes(
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": event.actor_name, **_facts(event)}
        )
        self.open[_attempt_key(event)] = span

    def _close(self, key: tuple[Any, ...], event: Event) -> bool:
        span = self.open.pop(key, None)
        if span is None:
            return False
        for ours, theirs in (("input_tokens", "input"), ("output_tokens", "output")):
            if isinstance(event.details.get(ours), int):
                span.set_attribute(f"gen_ai.usage.{theirs}_tokens", event.details[ours])
        self._mark(span, event.status is EventStatus.ERROR, str(event.details.get("error", ""))[:_TEXT])
        span.end(_nanos(event))
        return True

    def _mark(self, span: Span, failed: bool, reason: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_status(Status(StatusCode.ERROR, reason or None) if failed else Status(StatusCode.OK))

    def _around(self, event: Event) -> Span:
        span = self.open.get(_attempt_key(event)) or self.root
        assert span is not None
        return span


def _call_key(event: Event) -> tuple[Any, ...]:
    name = event.details.get("call_id")
    return (
        ("call", name) if isinstance(name, str) else ("call", event.tool_name, event.task_id, event.attempt)
    )


def _attempt_key(event: Event) -> tuple[Any, ...]:
    return ("attempt", event.task_id, event.attempt)


def _facts(event: Event) -> dict[str, Any]:
    facts = {
        "proctor.seq": event.seq,
        "proctor.kind": event.kind.value,
        "proctor.status": event.status.value,
        "proctor.actor": event.actor.value,
        "proctor.task_id": event.task_id,
        "proctor.attempt": event.attempt,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _nanos(event: Event) -> int:
    return int(event.ts.timestamp() * 1_000_000) * 1000
