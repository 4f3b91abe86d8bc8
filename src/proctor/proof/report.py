"""Judgements for people and machines: text, JSON, JUnit XML and Markdown, all from the same receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

__all__ = ["as_junit", "as_markdown", "as_text"]

_SIGNS = {"refuted": "✗", "inconclusive": "?", "not applicable": "-"}
_CAP = 20


def _sign(word: str) -> str:
    return _SIGNS.get(word, "✓")


def as_text(receipt: Mapping[str, Any]) -> str:
    """A screenful: the word and why, what each leg said, what looks hollow, what was noted."""
    change = receipt["change"]
    lines = [
        f"{_sign(receipt['verdict'])} {receipt['verdict']}: {change['label']} ({receipt['kind']}: {receipt['kind_reason']})"
    ]
    lines += [f"  {reason}" for reason in receipt["reasons"]]
    if receipt["legs"]:
        lines += ["", "  what was run"]
        lines += [f"    {_leg_line(leg, receipt)}" for leg in receipt["legs"]]
    if receipt["findings"]:
        lines += ["", "  what looks hollow"]
        lines += [f"    {_finding_line(finding)}" for finding in receipt["findings"][:_CAP]]
    lines += [f"  note: {note}" for note in receipt["notes"]]
    lines += _coverage(receipt.get("coverage"))
    if receipt["sandbox"]["rerooted"]:
        lines.append(
            "  note: this machine cannot place the checkout at the repository's path; paths in commands were re-rooted"
        )
    return "\n".join(lines)


def _leg_line(leg: Mapping[str, Any], receipt: Mapping[str, Any]) -> str:
    tests = leg["tests"]
    counted = [f"{len(tests[name])} {name}" for name in ("passed", "failed", "skipped") if tests[name]]
    codes = ",".join(str(run["exit_code"]) for run in leg["runs"])
    seconds = sum(receipt.get("recorded", {}).get("seconds", {}).get(leg["name"], []))
    told = ", ".join(counted) or f"exit code {codes}"
    why = f" [{tests['reason']}]" if tests["reason"] else ""
    again = f", repeated {leg['repeats']} times" if leg["repeats"] else ""
    kept = ", from an earlier run" if leg["name"] in receipt.get("recorded", {}).get("cached", []) else ""
    return f"{leg['name']:<20} {told}{why} in {seconds:.1f} s{again}{kept}"


def _finding_line(finding: Mapping[str, Any]) -> str:
    return f"{finding['weight']}: {finding['file']}:{finding['line']}: {finding['kind']}: {finding['why']}"


def _coverage(coverage: Mapping[str, Any] | None) -> list[str]:
    if not coverage:
        return []
    lines = [
        f"  not executed: {path}: lines {_ranges(missed)}" for path, missed in coverage["missed"].items()
    ]
    if coverage["unknown"]:
        lines.append(f"  unknown whether executed: {', '.join(coverage['unknown'][:_CAP])}")
    return lines


def _ranges(numbers: Sequence[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found[:_CAP])


def as_markdown(receipts: Sequence[Mapping[str, Any]]) -> str:
    """What a pull request shows: a table of verdicts, and the details folded below."""
    lines = ["### Proctor", "", "| change | kind | verdict | why |", "|---|---|---|---|"]
    for receipt in receipts:
        why = "<br>".join(_cell(reason) for reason in receipt["reasons"][:3])
        word = f"{_sign(receipt['verdict'])} **{receipt['verdict']}**"
        lines.append(f"| {_cell(_name(receipt))} | {receipt['kind']} | {word} | {why} |")
    for receipt in receipts:
        body = as_text(receipt).replace("```", "` ` `")
        lines += [
            "",
            f"<details><summary>{_html(_name(receipt))}</summary>",
            "",
            "```",
            body,
            "```",
            "",
            "</details>",
        ]
    return "\n".join(lines) + "\n"


def _name(receipt: Mapping[str, Any]) -> str:
    fix = receipt.get("fix")
    return f"fix {fix['id']} in {fix['file']}" if fix else str(receipt["change"]["label"])


def _cell(text: str) -> str:
    return _html(" ".join(text.split())).replace("|", "\\|")[:400]


def _html(text: str) -> str:
    return escape(text)


def as_junit(receipts: Sequence[Mapping[str, Any]]) -> str:
    """One test case per judgement: refuted is a failure, inconclusive an error, the words of the ladder pass."""
    words = [receipt["verdict"] for receipt in receipts]
    failures, errors = words.count("refuted"), words.count("inconclusive")
    head = f'<testsuite name="proctor" tests="{len(words)}" failures="{failures}" errors="{errors}">'
    cases = [_case(receipt) for receipt in receipts]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>"]) + "\n"


def _case(receipt: Mapping[str, Any]) -> str:
    seconds = sum(sum(times) for times in receipt.get("recorded", {}).get("seconds", {}).values())
    name = f"{receipt['kind']}: {_name(receipt)}"
    head = f'  <testcase classname="proctor" name={quoteattr(_printable(name))} time="{seconds:.3f}">'
    message = quoteattr(_printable("; ".join(receipt["reasons"])))
    text = escape(_printable(as_text(receipt)))
    tag = {"refuted": "failure", "inconclusive": "error"}.get(receipt["verdict"])
    body = f"<{tag} message={message}>{text}</{tag}>" if tag else f"<system-out>{text}</system-out>"
    return f"{head}\n    {body}\n  </testcase>"


def _printable(text: str) -> str:
    """XML knows no control characters but tab and line ends."""
    return "".join(
        c if c in "\t\n\r" or " " <= c < "\ud800" or "\ue000" <= c < "\ufffe" or c > "\uffff" else "�"
        for c in text
    )
