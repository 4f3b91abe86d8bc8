"""Violations of standards as SARIF for code hosts, and as a ready fix file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proctor import __version__
from proctor.proof.mend import INSTRUCTIONS
from proctor.proof.standards import RULES, Violation

__all__ = ["fix_file_of", "sarif_of"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_FIXES: Final = 500


def sarif_of(violations: Sequence[Violation]) -> dict[str, Any]:
    """SARIF 2.1.0."""
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    driver = {"name": "proctor standards", "version": __version__, "rules": rules}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_result(one) for one in violations]}],
    }


def _result(one: Violation) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": one.file, "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": one.line},
    }
    return {
        "ruleId": one.rule,
        "level": "warning",
        "message": {"text": f"{one.sentence} {one.cure}"},
        "locations": [{"physicalLocation": place}],
    }


def fix_file_of(
    violations: Sequence[Violation], *, review_id: str, component: str, date: str
) -> dict[str, Any]:
    """The content of a fix file with one fix for each violation."""
    return {
        "review_id": review_id,
        "component": component,
        "date": date,
        "assigned_to": "executor",
        "instructions": INSTRUCTIONS,
        "fixes": [_fix(number, one) for number, one in enumerate(violations[:MAX_FIXES], 1)],
    }


def _fix(number: int, one: Violation) -> dict[str, Any]:
    return {
        "id": number,
        "severity": "minor",
        "file": one.file,
        "line": one.line,
        "issue": one.sentence,
        "fix": f"In {one.file}: {one.cure}",
        "verification": f"Run `proctor standards check {one.file}`; it must not report {one.rule} for this file any more.",
    }
