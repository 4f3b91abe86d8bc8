"""Tricks: changes that look like a fix, pass the usual gate, and are none; and honest ones that look like a trick.

Each is one small project in a text file of `tricks/`, with every file before and after the change. What a hollow one may
be called never includes an accepting word; an honest one (`lookalike`) is never refuted.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.hollow.cases import Case, Claim

__all__ = ["tricky_cases"]

FOLDER = Path(__file__).parent / "tricks"
_PART = re.compile(r"^--- (before|after|gone): (.+)\n", re.MULTILINE)


def tricky_cases() -> Iterator[Case]:
    """Every file of the folder as a case, by name."""
    for path in sorted(FOLDER.glob("*.txt")):
        yield _case(path.stem, path.read_text().replace("{python}", sys.executable))


def _case(name: str, text: str) -> Case:
    head, *parts = _PART.split(text)
    said = dict(line.split(": ", 1) for line in head.splitlines())
    files: dict[str, dict[str, str | None]] = {"before": {}, "after": {}}
    for label, path, content in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        files["after" if label == "gone" else label][path] = None if label == "gone" else content
    category = name.split("-")[1]
    return Case(
        name,
        category,
        category == "lookalike",
        files["before"],
        files["after"],
        said["command"],
        "fix",
        frozenset(said["words"].split(", ")),
        _claim(said["claim"]) if "claim" in said else None,
    )


def _claim(text: str) -> Claim:
    said = json.loads(text)
    return Claim(
        said["file"],
        said["line"],
        said["verification_command"],
        said["hallucination_check"],
        tuple(said["changes_made"]),
    )
