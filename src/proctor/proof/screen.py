"""The first screen of a judgement: what is proven, what is not, what is hollow, the next step; then what was run.

Everything is read from the receipt, so that the screen, the pull request and the stored record cannot differ.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proctor.proof.advice import next_step

__all__ = ["as_text", "sign_of"]

_SIGNS: Final = {"refuted": "✗", "inconclusive": "?", "not applicable": "-"}
_CAP: Final = 20
_TAIL: Final = 8  # last lines of a broken command's output
_WIDTH: Final = 110
_LABEL: Final = 13
_NOTHING: Final = {
    "preserved": "nothing needs to be: behaviour is preserved",
    "checked": "nothing needs to be: it was checked",
    "shown": "nothing needs to be: it was shown",
    "not applicable": "nothing needs to be",
}
_HOLLOW: Final = ("hollow: ", "look at this: ")


def sign_of(word: str) -> str:
    """One letter for a verdict."""
    return _SIGNS.get(word, "✓")


def as_text(receipt: Mapping[str, Any], width: int | None = None) -> str:
    """A screenful; `width` is the terminal's, None without one."""
    room = min(width or _WIDTH, _WIDTH)
    word, change = receipt["verdict"], receipt["change"]
    title = f"{sign_of(word)} {word}: {change['label']} ({receipt['kind']}: {receipt['kind_reason']})"
    lines = [*textwrap.wrap(title, room, subsequent_indent="  ", break_long_words=False), ""]
    lines += _labelled("proven", _proven(receipt), room)
    lines += _labelled("not proven", _open(receipt), room)
    lines += _labelled("hollow", _hollow(receipt), room)
    lines += _labelled("next", [next_step(receipt)], room)
    lines += _ran(receipt, room)
    lines += _notes(receipt)
    return "\n".join(_shown(line) for line in lines)


def _shown(line: str) -> str:
    """Names and outputs are others' words: no control character of theirs reaches the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in line)


def _labelled(label: str, sentences: Sequence[str], room: int) -> list[str]:
    lines: list[str] = []
    for sentence in sentences[:_CAP]:
        head = f"  {label if not lines else '':<{_LABEL}}"
        lines += textwrap.wrap(
            sentence, room, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
        )
    if len(sentences) > _CAP:
        lines.append(f"  {'':<{_LABEL}}… and {len(sentences) - _CAP} more (--json has them all)")
    return lines


def _proven(receipt: Mapping[str, Any]) -> list[str]:
    word = receipt["verdict"]
    if word == "proven":
        return [*_plain(receipt), *_guard(receipt)]
    if word in _NOTHING:
        return [f"{_NOTHING[word]}: {'; '.join(_plain(receipt))}"]
    return ["nothing"]


def _guard(receipt: Mapping[str, Any]) -> Iterator[str]:
    after = next((leg for leg in receipt["legs"] if leg["name"] == "after"), None)
    if after is not None and after["tests"]["passed"]:
        count = len(after["tests"]["passed"])
        yield f"guard: {count} {'test passes' if count == 1 else 'tests pass'} with the change, none is newly red"


def _plain(receipt: Mapping[str, Any]) -> list[str]:
    """The reasons that are not about hollow findings; those have a place of their own."""
    return [reason for reason in receipt["reasons"] if not reason.startswith(_HOLLOW)]


def _open(receipt: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    if receipt["verdict"] in _SIGNS and receipt["verdict"] != "not applicable":
        found = [f"the change: {reason}" for reason in _plain(receipt)] or ["the change: see what is hollow"]
    coverage = receipt.get("coverage") or {"missed": {}, "unknown": []}
    found += [f"{path}: no test runs lines {_ranges(lines)}" for path, lines in coverage["missed"].items()]
    if coverage["unknown"] and receipt["verdict"] != "refuted":
        names = ", ".join(coverage["unknown"][:_CAP])
        hint = " (`--coverage` does)" if coverage["unknown"][0].endswith((".py", ".sh", ".bash")) else ""
        found.append(f"whether the tests run the changed lines of {names} was not measured{hint}")
    return found or ["nothing is left open"]


def _hollow(receipt: Mapping[str, Any]) -> list[str]:
    said = {"refutes": "yes", "suspicious": "perhaps", "note": "noted"}
    order = list(said)
    findings = sorted(receipt["findings"], key=lambda one: order.index(one["weight"]))
    return [f"{said[one['weight']]}: {_finding(one)}" for one in findings] or ["nothing found"]


def _finding(finding: Mapping[str, Any]) -> str:
    return f"{finding['file']}:{finding['line']}: {finding['kind']}: {finding['why']}"


def _ran(receipt: Mapping[str, Any], room: int) -> list[str]:
    if not receipt["legs"]:
        return []
    lines = ["", "  what was run: " + "; ".join(receipt["commands"])[:_WIDTH]]
    lines += [f"    {_leg_line(leg, receipt)}" for leg in receipt["legs"]]
    broken = [
        leg for leg in receipt["legs"] if leg["tests"]["reason"] in {"infrastructure", "timeout", "unknown"}
    ]
    for leg in broken[:1]:
        tail = [line for run in leg["runs"] for line in run["output_head"].splitlines() if line.strip()]
        lines += ["", f"  the end of its output ({leg['name']})"] if tail else []
        lines += [f"    {line[: room - 4]}" for line in tail[-_TAIL:]]
    return lines


def _leg_line(leg: Mapping[str, Any], receipt: Mapping[str, Any]) -> str:
    tests, recorded = leg["tests"], receipt.get("recorded", {})
    counted = [f"{len(tests[name])} {name}" for name in ("passed", "failed", "skipped") if tests[name]]
    codes = ",".join(str(run["exit_code"]) for run in leg["runs"])
    seconds = sum(recorded.get("seconds", {}).get(leg["name"], []))
    told = ", ".join(counted) or f"exit code {codes}"
    why = f" [{tests['reason']}]" if tests["reason"] else ""
    again = f", repeated {leg['repeats']} times" if leg["repeats"] else ""
    kept = ", from an earlier run" if leg["name"] in recorded.get("cached", []) else ""
    return f"{leg['name']:<9}  {_WHERE.get(leg['name'], ''):<28} {told}{why} in {seconds:.1f} s{again}{kept}"


_WHERE: Final = {
    "after": "with the change",
    "before": "without it, with its tests",
    "reverted": "its source taken back",
    "base": "before the change",
    "canary": "a break planted in it",
    "old tests": "under the tests as they were",
}


def _notes(receipt: Mapping[str, Any]) -> list[str]:
    empty = [words for words in receipt["sandbox"].get("missing", ()) if "submodule" in words]
    notes = [f"  note: {note}" for note in [*receipt["notes"], *empty]]
    if receipt["sandbox"]["rerooted"]:
        words = "this machine cannot place the checkout at the repository's path; paths in commands were re-rooted"
        notes.append(f"  note: {words}")
    return ["", *notes] if notes else []


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found[:_CAP])
