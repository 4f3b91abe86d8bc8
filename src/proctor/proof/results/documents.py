"""Reading results that come as documents: JUnit XML, the JSON of jest and vitest, the JSON lines of `go test`."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final
from xml.etree import ElementTree as Xml

from proctor.proof.results.model import Outcome, Parsed, Reason

__all__ = ["is_go_json", "is_jest_json", "is_junit", "read_go_json", "read_jest_json", "read_junit"]

MAX_TESTS: Final = 200_000


def is_junit(text: str) -> bool:
    """Whether a text is JUnit XML."""
    return re.match(r"\s*(?:<\?xml[^>]*\?>\s*)?<testsuites?\b", text[:2000]) is not None


def read_junit(text: str, exit_code: int) -> Parsed:
    """Read JUnit XML; entities are refused, because they can blow a small file up."""
    found = Parsed("junit")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        found.problem = (Reason.INFRASTRUCTURE, "the JUnit file declares entities and was not read")
        return found
    try:
        root = Xml.fromstring(text[text.index("<") :])  # noqa: S314 - entities were refused above
    except (Xml.ParseError, ValueError) as error:
        found.problem = (Reason.INFRASTRUCTURE, f"the JUnit file is broken: {error}")
        return found
    for case in list(root.iter("testcase"))[:MAX_TESTS]:
        _case(case, found)
    found.counts = dict(Counter(found.tests.values()))
    if not found.tests:
        found.problem = (Reason.INFRASTRUCTURE, "the JUnit file names no test")
    return found


def _case(case: Xml.Element, found: Parsed) -> None:
    where, name = case.get("classname") or case.get("file") or "", case.get("name") or ""
    test = f"{where}::{name}" if where else name
    bad = next((child for child in case if child.tag in {"failure", "error"}), None)
    if bad is None:
        skipped = any(child.tag == "skipped" for child in case)
        found.add(test, Outcome.SKIPPED if skipped else Outcome.PASSED)
        return
    text = f"{bad.get('type') or ''} {bad.get('message') or ''}\n{bad.text or ''}".strip()
    collecting = "collection failure" in (bad.get("message") or "")
    if collecting:
        found.collecting[test] = text
    else:
        found.add(test, Outcome.ERROR if bad.tag == "error" else Outcome.FAILED, text)


def is_jest_json(text: str) -> bool:
    """Whether a text holds the JSON report of jest or vitest."""
    return '"numTotalTests"' in text and '"testResults"' in text


def read_jest_json(text: str, exit_code: int) -> Parsed:
    """Read the JSON report of jest or vitest, also with other lines around it."""
    found = Parsed("jest")
    report = _object(text, '"numTotalTests"')
    if report is None:
        found.problem = (Reason.INFRASTRUCTURE, "the JSON report is broken")
        return found
    for suite in _list(report.get("testResults")):
        cases = _list(suite.get("assertionResults"))
        if not cases and suite.get("status") == "failed":
            found.collecting[str(suite.get("name", ""))] = str(suite.get("message", ""))
        for case in cases:
            title = str(case.get("fullName") or case.get("title") or "")
            message = "\n".join(str(one) for one in _texts(case.get("failureMessages")))
            found.add(
                f"{_short(suite.get('name'))}::{title}",
                _JEST.get(str(case.get("status")), Outcome.SKIPPED),
                message,
            )
    found.counts = dict(Counter(found.tests.values()))
    if not found.tests and not found.collecting:
        found.problem = (Reason.INFRASTRUCTURE, "no test ran")
    return found


_JEST: Final = {"passed": Outcome.PASSED, "failed": Outcome.FAILED}


def _short(path: object) -> str:
    return "/".join(str(path or "").split("/")[-2:])


def _list(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _texts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(text: str, mark: str) -> dict[str, Any] | None:
    """The JSON object that holds a mark; it may stand among other lines."""
    decoder = json.JSONDecoder()
    at = text.find(mark)
    for start in [found.start() for found in re.finditer(r"^[ \t]*\{", text[: at + 1], re.MULTILINE)][-20:]:
        try:
            value, _ = decoder.raw_decode(text[start:].lstrip())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and mark.strip('"') in value:
            return value
    return None


def is_go_json(text: str) -> bool:
    """Whether a text holds the events of `go test -json`."""
    return (
        re.search(r'^\{"(?:Time|ImportPath|Action)":.*"Action":"', text, re.MULTILINE) is not None
        or '{"Action":"' in text
    )


def read_go_json(text: str, exit_code: int) -> Parsed:
    """Read the events of `go test -json`."""
    found = Parsed("go")
    output: dict[str, list[str]] = {}
    ended: dict[str, str] = {}
    for line in text.splitlines():
        event = _event(line)
        if event is None:
            continue
        package, test = str(event.get("Package") or event.get("ImportPath") or ""), event.get("Test")
        key = f"{package}::{test}" if test else package
        action = str(event.get("Action"))
        if action in {"output", "build-output"}:
            output.setdefault(key, []).append(str(event.get("Output", "")))
        elif action in {"pass", "fail", "skip", "build-fail"}:
            ended[key] = action
    _go_outcomes(found, ended, {key: "".join(lines) for key, lines in output.items()})
    return found


def _event(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "Action" in event else None


def _go_outcomes(found: Parsed, ended: dict[str, str], output: dict[str, str]) -> None:
    words = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}
    parents = {key.rsplit("/", 1)[0] for key in ended if "::" in key and "/" in key.split("::")[1]}
    failed_tests = {key for key, action in ended.items() if "::" in key and action == "fail"}
    for key, action in ended.items():
        if "::" in key and key not in parents and action in words:
            found.add(key, words[action], output.get(key, "") if action == "fail" else "")
        elif (
            "::" not in key
            and action in {"fail", "build-fail"}
            and not any(t.startswith(key + "::") for t in failed_tests)
        ):
            found.collecting[key] = output.get(key, "") or "build failed"
    found.counts = dict(Counter(found.tests.values()))
    if not found.tests and not found.collecting:
        found.problem = (Reason.INFRASTRUCTURE, "no test ran")
