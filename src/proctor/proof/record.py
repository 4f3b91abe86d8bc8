"""Keeping receipts: written once under their digest, and their digest written into the trace, which is chained.

The event is durable before the file appears; the file names the event it is chained to.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from proctor.proof.judgement import Judgement, Word
from proctor.proof.receipt import build_receipt
from proctor.proof.recipe import recipe_of
from proctor.protocol.events import Draft, EventStatus
from proctor.protocol.ids import new_id
from proctor.protocol.ports import EventSink
from proctor.workspace.trees import Trees

__all__ = ["Recorder", "write_receipt"]


def write_receipt(receipt: dict[str, Any], place: Path) -> None:
    """Write a receipt; it appears whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(receipt, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    data = text.encode("utf-8", "replace")
    with tempfile.NamedTemporaryFile(dir=place.parent, prefix=".receipt-", delete=False) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(place)


class Recorder:
    """Makes receipts of judgements and keeps them."""

    def __init__(self, sink: EventSink, folder: Path, trees: Trees, redact: Callable[[str], str]) -> None:
        self._sink, self._folder, self._trees, self._redact = sink, folder, trees, redact
        self._recipes: dict[tuple[str, str, str], dict[str, Any]] = {}  # fixes of one file share most legs

    def record(
        self, judgement: Judgement, *, trace_id: str | None = None, more: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], Path]:
        """Build the receipt, chain it to the trace and write it."""
        subject = judgement.subject
        patch = "" if subject.committed else self._trees.diff(subject.base_tree, subject.tree)
        recipes = {
            leg.tree: self._recipe(subject.base_tree, subject.tree, leg.tree) for leg in judgement.legs
        }
        receipt = build_receipt(
            judgement,
            when=datetime.now(UTC),
            root=str(self._trees.root),
            patch=patch,
            recipes=recipes,
            more=more,
            redact=self._redact,
        )
        refuted = judgement.word in {Word.REFUTED, Word.INCONCLUSIVE}
        draft = Draft(
            trace_id=trace_id or new_id("trace"),
            event="proof_judged",
            status=EventStatus.WARNING if refuted else EventStatus.SUCCESS,
            actor_name="proof",
            details={
                "digest": receipt["digest"],
                "verdict": judgement.word.value,
                "kind": judgement.kind,
                "change": subject.label,
                "tree": subject.tree,
                "reason": judgement.reasons[0] if judgement.reasons else "",
                **({"fix": more["fix"]["id"]} if more and "fix" in more else {}),
            },
        )
        event = self._sink.append([draft])[0]
        receipt["recorded"]["trace"] = {"trace_id": event.trace_id, "seq": event.seq, "hash": event.hash}
        place = self._folder / f"{receipt['digest'][:32]}.json"
        write_receipt(receipt, place)
        return receipt, place

    def _recipe(self, base: str, tree: str, leg: str) -> dict[str, Any]:
        key = (base, tree, leg)
        if key not in self._recipes:
            self._recipes[key] = recipe_of(self._trees, base, tree, leg)
        return self._recipes[key]
