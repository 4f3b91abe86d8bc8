"""What a request is about, found without a model: its kind, the rules it touches, the files it names, how big it is.

Pure: texts in, facts out; the same request on the same files gives the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from proctor.tools.architecture import Rule

__all__ = ["Analysis", "Step", "analyze", "guess_type", "steps_of"]

MOST_FILES: Final = 20
MOST_RULES: Final = 10
PER_FILE: Final = 2
_WORD: Final = re.compile(r"[a-z0-9]{3,}")
# In two steps, each of which looks at a letter once: in one, a long word without a dot would stop the server.
_PATH: Final = re.compile(r"[\w./\-]+")
_FILE: Final = re.compile(r".+\.\w+")
_SMALL: Final = frozenset(
    (
        *(
            "the",
            "and",
            "for",
            "with",
            "that",
            "this",
            "from",
            "into",
            "are",
            "not",
            "you",
            "can",
            "will",
            "use",
        ),
        *("all", "new", "add", "make", "when", "then", "have", "should", "must", "file", "files", "code"),
        *("test", "tests", "bug", "fix", "src", "lib", "app"),
    )
)
_KINDS: Final = (
    (
        "bug_fix",
        re.compile(r"\b(bug|fix|error|broken|crash\w*|fail\w*|wrong|defect|regression)\b", re.IGNORECASE),
    ),
    (
        "refactor",
        re.compile(
            r"\b(refactor\w*|clean ?up|rename|restructure|simplify|split|deduplicate)\b", re.IGNORECASE
        ),
    ),
    ("feature_integration", re.compile(r"\b(integrat\w*|connect|wire|hook up|plug in)\b", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What was found."""

    request_type: str
    rules: tuple[str, ...]
    files: tuple[str, ...]
    complexity: int
    estimate: int
    notes: str


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction to be."""

    text: str
    target: str | None
    outcome: str


def guess_type(text: str) -> str:
    """Say what kind of work a request is, when nobody did."""
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "new_feature")


def analyze(text: str, request_type: str | None, rules: Sequence[Rule], paths: Iterable[str]) -> Analysis:
    """Find kind, rules, files and size of a request."""
    words = _words(text)
    used = tuple(rule.feature_type for rule in rules if _touches(rule, words))[:MOST_RULES]
    files, more = _files(text, words, paths)
    estimate = PER_FILE * max(1, len(files))
    score = min(10, 1 + len(files) // 2 + len(used) + min(3, len(text) // 500))
    notes = [f"{len(files)} files and {len(used)} architecture rules fit the request."]
    if not files:
        notes.append("No file of the workspace is named or fits: whoever does it chooses where.")
    if more:
        notes.append(f"{more} further files fit less well and were left out.")
    return Analysis(request_type or guess_type(text), used, files, score, estimate, " ".join(notes))


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _SMALL


def _touches(rule: Rule, words: frozenset[str]) -> bool:
    """A rule is used when the request says most of its feature type's words."""
    own = _words(rule.feature_type.replace("_", " "))
    return bool(own) and len(own & words) * 2 >= len(own)


def _files(text: str, words: frozenset[str], paths: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Files the text names come first, then those whose name shares a word with it."""
    said = {found[0] for word in _PATH.findall(text) if (found := _FILE.match(word))}
    ranked = []
    for path in paths:
        name = path.rpartition("/")[2]
        if path in said or name in said:
            ranked.append((0, path))
        elif shared := len(_words(name.rpartition(".")[0].replace("_", " ")) & words):
            ranked.append((10 - min(shared, 9), path))
    ranked.sort()
    chosen = tuple(path for _rank, path in ranked[:MOST_FILES])
    return chosen, max(0, len(ranked) - MOST_FILES)


def steps_of(text: str, files: Sequence[str], rules: Sequence[str]) -> list[Step]:
    """Two steps per file: change it, then show that the change holds."""
    follow = f" Follow the architecture rules: {', '.join(rules)}." if rules else ""
    short = text if len(text) <= 2000 else text[:2000] + " [… truncated …]"
    found: list[Step] = []
    for file in files or (None,):
        where = file or "the fitting place"
        found += [
            Step(
                f"Change {where} for this request: {short}{follow}",
                file,
                f"{where} does what the request asks, and nothing else changed.",
            ),
            Step(
                f"Run the tests that cover {where} and show that they fail without the change and pass with it.",
                file,
                f"The tests for {where} pass.",
            ),
        ]
    return found
