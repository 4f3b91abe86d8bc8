"""How fast redaction is: log-like text in MB/s, details of events per second; with both gates, in CPU time."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable
from typing import Any

from proctor.trace.redact import Redactor, StreamRedactor

__all__ = ["run"]

ROUNDS = 3
SECRET_EVERY = 100  # lines, in the text that has secrets
KNOWN = ("a-known-secret-value", "another/known+secret")


def details(n: int) -> dict[str, Any]:
    """What an ordinary event carries, about 200 bytes as JSON."""
    return {
        "tool": "read_file",
        "path": "src/proctor/store/database.py",
        "session": f"01890a5d-ac96-774b-bcce-b3020{n % 10**7:07d}",
        "duration_ms": 12.5,
        "input_tokens": 1200 + n,
        "summary": "Read 120 lines of the file and found nothing of note",
        "ok": True,
    }


def log_text(size: int, *, secrets: bool) -> str:
    """Lines as servers and test runners write them; the same for every run."""
    lots = random.Random(7)
    lines: list[str] = []
    length = 0
    while length < size:
        line = (
            f"2026-11-15 10:{lots.randrange(60):02d}:{lots.randrange(60):02d}.{lots.randrange(10**6):06d} INFO "
            f"proctor.worker request={lots.getrandbits(128):032x} GET /api/v1/tasks/{lots.randrange(10**6)} "
            f"status=200 took={lots.random() * 90:.2f}ms tokens={lots.randrange(9000)}"
        )
        if secrets and len(lines) % SECRET_EVERY == 0:
            line += " with ghp_" + "".join(lots.choices(string.ascii_letters + string.digits, k=36))
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


def best(work: Callable[[], object]) -> float:
    """CPU seconds of the best round: other processes on the machine count less that way."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def measure(redactor: Redactor, size: int, events: int) -> dict[str, float]:
    """All numbers of one gate."""
    redactor.text(log_text(10_000, secrets=True))  # compiles what is compiled once
    clean, dirty = log_text(size, secrets=False), log_text(size, secrets=True)
    drafts = [details(n) for n in range(events)]
    leaky = [{**draft, "summary": f"used password=correct-horse-{n}"} for n, draft in enumerate(drafts)]
    each_clean = best(lambda: [redactor.value(draft) for draft in drafts]) / events
    each_leaky = best(lambda: [redactor.value(draft) for draft in leaky]) / events
    return {
        "clean_text_mb_per_s": round(size / best(lambda: redactor.text(clean)) / 1e6, 1),
        "text_with_secrets_mb_per_s": round(size / best(lambda: redactor.text(dirty)) / 1e6, 1),
        "stream_by_4_kb_mb_per_s": round(size / best(lambda: _stream(redactor, dirty)) / 1e6, 1),
        "clean_events_per_s": round(1 / each_clean),
        "clean_event_us": round(each_clean * 1e6, 2),
        "events_with_a_secret_per_s": round(1 / each_leaky),
    }


def _stream(redactor: Redactor, text: str) -> int:
    stream = StreamRedactor(redactor)
    return sum(len(stream.feed(text[at : at + 4096])) for at in range(0, len(text), 4096)) + len(
        stream.flush()
    )


def run(scale: float = 1.0) -> dict[str, Any]:
    """Both gates over the same texts and events; the fast one only where hyperscan is installed."""
    size, events = max(100_000, int(2_000_000 * scale)), max(1000, int(20_000 * scale))
    found: dict[str, Any] = {}
    for name, fast in (("keyword_gate", False), ("fast_matcher", True)):
        redactor = Redactor(key=b"k" * 32, known=KNOWN, use_fast=fast, warm_up=0)
        if redactor.fast == fast:
            found[name] = measure(redactor, size, events)
    return {
        **found,
        "fast_matcher_installed": "fast_matcher" in found,
        "time": f"CPU, best of {ROUNDS}",
        "text": f"{size} characters, one secret in {SECRET_EVERY} lines where it has any",
        "event": "7 fields, about 200 bytes as JSON, one call each",
        "known_values": len(KNOWN),
    }
