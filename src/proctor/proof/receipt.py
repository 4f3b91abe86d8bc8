"""Receipts: one JSON per change with everything another machine needs to see the same, and a digest over it.

Canonical: equal runs give equal bytes but for `recorded` (times, durations, the machine, the place in the trace), which
the digest leaves out. Work that was not committed travels as a patch. Outputs are redacted before they are written.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from proctor import __version__
from proctor.proof.fixfile import read_capped
from proctor.proof.judgement import Judgement
from proctor.proof.legs import Leg
from proctor.protocol.errors import IntegrityError, UsageError

__all__ = [
    "MAX_PATCH",
    "SCHEMA",
    "ReceiptError",
    "at_home",
    "build_receipt",
    "canonical",
    "digest_of",
    "load_receipt",
    "portable",
]

SCHEMA: Final = "urn:proctor:receipt:1"
#: Stands for the repository's path in commands: a fix's command names it in full, and every clone lies elsewhere.
ROOT: Final = "<repository>"
MAX_PATCH: Final = 1 << 20
Redact = Callable[[str], str]


class ReceiptError(UsageError):
    """{name} is not a receipt: {problem}. Give a file that `proctor check --receipt` or `proctor fixes verify` wrote."""

    code = "receipt"


def portable(text: str, root: str) -> str:
    """The text with the repository's own path taken out, so that it means the same in any clone."""
    if not root or ROOT in text:
        return text
    return re.sub(re.escape(root) + r"(?![\w.-])", ROOT, text)


def at_home(text: str, root: str) -> str:
    """The text with the path of this clone put in."""
    return text.replace(ROOT, root)


def build_receipt(
    judgement: Judgement,
    *,
    when: datetime,
    root: str = "",
    patch: str = "",
    recipes: Mapping[str, Mapping[str, Any]] | None = None,
    more: Mapping[str, Any] | None = None,
    redact: Redact = str,
) -> dict[str, Any]:
    """Build the receipt of a judgement; `more` are facts of a fix. The trace's place is added when it is known."""
    subject = judgement.subject
    legs = judgement.legs

    def said(text: str) -> str:
        return portable(redact(text), root)

    body: dict[str, Any] = {
        "schema": SCHEMA,
        "verdict": judgement.word.value,
        "reasons": [said(reason) for reason in judgement.reasons],
        "kind": judgement.kind,
        "kind_reason": judgement.kind_reason,
        "change": {
            "label": subject.label,
            "base": subject.base or None,
            "base_tree": subject.base_tree,
            "commit": subject.head if subject.committed else None,
            "tree": subject.tree,
            "patch": None if subject.committed else _fitting(patch),
        },
        "commands": [portable(command, root) for command in judgement.commands],
        "environment": judgement.environment,
        "sandbox": _sandbox(legs),
        "legs": [_leg(leg, said, root) | {"recipe": dict((recipes or {}).get(leg.tree, {}))} for leg in legs],
        "evidence": list(judgement.evidence),
        "weak": judgement.weak,
        "notes": [said(note) for note in judgement.notes],
        "findings": [dict(finding) for finding in judgement.findings],
        "coverage": judgement.coverage.as_dict() if judgement.coverage else None,
        "needs_you": judgement.needs_you,
        "pictures": dict(judgement.pictures),
        **(more or {}),
    }
    body["digest"] = digest_of(body)
    body["recorded"] = {
        "at": when.isoformat().replace("+00:00", "Z"),
        "proctor": __version__,
        "system": f"{platform.system()} {platform.machine()}",
        "seconds": {leg.name: [each.seconds for each in leg.ran] for leg in legs},
        "cached": sorted(leg.name for leg in legs if leg.cached),
    }
    return body


def _fitting(patch: str) -> str | None:
    """The patch as JSON can hold it; None when it is too long to travel."""
    text = patch.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return (
        text if len(text) <= MAX_PATCH and text.encode() == patch.encode("utf-8", "surrogateescape") else None
    )


def _sandbox(legs: tuple[Leg, ...]) -> dict[str, Any]:
    return {
        "level": min((leg.level for leg in legs), default=None),
        "network": "off",
        "missing": sorted({words for leg in legs for words in leg.missing}),
        "rerooted": any(leg.rerooted for leg in legs),
    }


def _leg(leg: Leg, redact: Redact, root: str) -> dict[str, Any]:
    return {
        "name": leg.name,
        "tree": leg.tree,
        "head": leg.head,
        "passed": leg.passed,
        "tests": leg.reading.as_dict() | {"detail": redact(leg.reading.detail)},
        "lent": list(leg.lent),
        "repeats": leg.repeats,
        "unsteady": list(leg.unsteady),
        "runs": [
            {
                "argv": ["bash", "--noprofile", "--norc", "-c", portable(each.command, root)],
                "exit_code": each.exit_code,
                "killed_for": each.killed_for,
                "stage": each.stage,
                "output_sha256": each.output_sha256,
                "output_head": redact(each.output_head),
            }
            for each in leg.ran
        ],
    }


def canonical(value: Any) -> bytes:
    """One spelling for one value: sorted keys, no blanks, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def digest_of(receipt: Mapping[str, Any]) -> str:
    """SHA-256 over everything but the digest itself and what is recorded about this one run."""
    rest = {name: value for name, value in receipt.items() if name not in {"digest", "recorded"}}
    return hashlib.sha256(canonical(rest)).hexdigest()


def load_receipt(path: Path) -> dict[str, Any]:
    """Read a receipt; one that was altered is refused."""
    try:
        value = json.loads(read_capped(path))
    except (ValueError, RecursionError) as error:
        raise ReceiptError(name=path.name, problem=f"it is not JSON ({str(error)[:200]})") from None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ReceiptError(name=path.name, problem=f"it does not say {SCHEMA!r}")
    for name in ("verdict", "change", "commands", "legs", "digest", "kind"):
        if name not in value:
            raise ReceiptError(name=path.name, problem=f"it has no {name!r}")
    if digest_of(value) != value["digest"]:
        raise IntegrityError(what=f"The receipt {path.name}", reason="its digest does not fit what it says")
    return value
