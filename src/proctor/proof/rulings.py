"""What `fixes verify` ruled about a file, kept so that the follow-up of that very text carries what was refuted.

Kept under the text's hash: a file that was edited since has not been judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from proctor.proof.verdicts import Judgement
from proctor.protocol.decisions import Proof

__all__ = ["keep_rulings", "kept_rulings"]


def _place(folder: Path, text: str) -> Path:
    return folder / f"{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"


def keep_rulings(folder: Path, text: str, rulings: Mapping[str, Judgement]) -> None:
    """Write them; they appear whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        name: {"proof": one.proof.value, "rule": one.rule, "reason": one.reason, "follow_up": one.follow_up}
        for name, one in rulings.items()
    }
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".rulings-", delete=False) as file:
        json.dump(data, file)
    os.replace(file.name, _place(folder, text))  # noqa: PTH105 - a name, not a path


def kept_rulings(folder: Path, text: str) -> dict[str, Judgement] | None:
    """What was ruled about this very text; None when it was not judged here, or cannot be read."""
    try:
        data = json.loads(_place(folder, text).read_text())
        return {
            str(name): Judgement(
                Proof(one["proof"]), str(one["rule"]), str(one["reason"]), bool(one["follow_up"])
            )
            for name, one in data.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
