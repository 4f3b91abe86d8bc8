"""Judgements for machines and pull requests: JUnit XML and Markdown, from the same receipt as the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from proctor.proof.screen import as_text, sign_of

__all__ = ["as_junit", "as_markdown"]


def as_markdown(receipts: Sequence[Mapping[str, Any]]) -> str:
    """What a pull request shows: a table of verdicts, and the details folded below."""
    lines = ["### Proctor", "", "| change | kind | verdict | why |", "|---|---|---|---|"]
    for receipt in receipts:
        why = "<br>".join(_cell(reason) for reason in receipt["reasons"][:3])
        word = f"{sign_of(receipt['verdict'])} **{receipt['verdict']}**"
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
