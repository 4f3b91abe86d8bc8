"""Reading pytest's and unittest's text."""

from __future__ import annotations

import re
from typing import Final

from proctor.proof.results.model import Outcome, Parsed, Reason

__all__ = ["is_pytest", "is_unittest", "read_pytest", "read_unittest"]

_WORDS: Final = {
    **dict.fromkeys(("passed", "PASSED"), Outcome.PASSED),
    **dict.fromkeys(("failed", "FAILED", "XPASS", "xpassed"), Outcome.FAILED),
    **dict.fromkeys(("error", "errors", "ERROR"), Outcome.ERROR),
    **dict.fromkeys(("skipped", "SKIPPED", "XFAIL", "xfailed"), Outcome.SKIPPED),
}
_LAST: Final = re.compile(
    r"^=*[ \t]*((?:\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?|rerun)(?:, )?)+) in [\d.]+s.*$"
    r"|^=*[ \t]*no tests (?:ran|collected).*$",
    re.MULTILINE,
)
_ROW: Final = re.compile(
    r"^(\S.*) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: +\([^)\n]{0,500}\))?(?: +\[ *\d{1,3}%\])?$",
    re.MULTILINE,
)
_SHORT: Final = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (\S.*?)(?: - (.*))?$", re.MULTILINE)
_SECTION: Final = re.compile(r"^_{3,} (.+?) _{3,}$", re.MULTILINE)
_USAGE: Final = re.compile(r"^ERROR: (.+)$", re.MULTILINE)


def is_pytest(text: str) -> bool:
    """Whether a text is pytest's."""
    return _LAST.search(text) is not None or "= test session starts =" in text or "INTERNALERROR>" in text


def read_pytest(text: str, exit_code: int) -> Parsed:
    """Read pytest's output, quiet or verbose; in quiet output only failures have names."""
    found = Parsed("pytest")
    for name, word in _ROW.findall(text):
        if "::" in name:
            found.add(name, _WORDS[word])
    for word, name, message in _SHORT.findall(text):
        if "::" in name:
            found.add(name, _WORDS[word], f"E   {message}" if message and not message.endswith("...") else "")
        elif word == "ERROR":
            found.collecting[name] = message
    _sections(text, found)
    _counts(text, found)
    found.problem = _problem(text, exit_code, found)
    return found


def _problem(text: str, exit_code: int, found: Parsed) -> tuple[Reason, str] | None:
    usage = _USAGE.search(text)
    if exit_code == 4 or (usage and not found.tests):
        said = usage[1] if usage else "pytest could not use its arguments (exit code 4)"
        return Reason.INFRASTRUCTURE, said
    if exit_code == 3 or "INTERNALERROR>" in text:
        return Reason.INFRASTRUCTURE, "pytest itself failed (exit code 3)"
    if exit_code == 5 or not (found.counts or found.collecting):
        return Reason.INFRASTRUCTURE, "pytest ran no test (exit code 5)"
    return None


def _counts(text: str, found: Parsed) -> None:
    lines = [line for line in _LAST.finditer(text) if line[1]]
    for number, word in re.findall(r"(\d+) (\w+)", lines[-1][1] if lines else ""):
        if word in _WORDS:
            found.counts[_WORDS[word]] = found.counts.get(_WORDS[word], 0) + int(number)


def _sections(text: str, found: Parsed) -> None:
    """Give every failure its text: sections are titled by class and function."""
    pieces = _SECTION.split(text)
    titles = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    by_title: dict[str, list[str]] = {}
    for name in found.tests:
        for title in {name.partition("::")[2].replace("::", "."), name.rpartition("::")[2]}:
            by_title.setdefault(title, []).append(name)
    for title, rest in titles.items():
        body = rest.partition("\n=====")[0]
        if title.startswith("ERROR collecting "):
            found.collecting[title.removeprefix("ERROR collecting ")] = body
            continue
        plain = re.sub(r"^ERROR at (?:setup|teardown) of ", "", title)
        for name in by_title.get(plain, ()):
            found.texts[name] = f"{found.texts.get(name, '')}\n{body}".strip()


_RAN: Final = re.compile(r"^Ran (\d+) tests? in [\d.]+s", re.MULTILINE)
_VERBOSE: Final = re.compile(
    r"^[ \t]*(\w+) \(([\w.]+)\)(?: \([^)\n]{0,500}\))?(?:\n[^\n]*?)??"
    r" \.\.\. (ok|FAIL|ERROR|skipped|expected failure|unexpected success)",
    re.MULTILINE,
)
_HEAD: Final = re.compile(r"^(FAIL|ERROR|UNEXPECTED SUCCESS): (\w+) ?(?:\(([\w.]+)\))?.*$", re.MULTILINE)
_VERBOSE_WORDS: Final = {"ok": Outcome.PASSED, "FAIL": Outcome.FAILED, "ERROR": Outcome.ERROR, "skipped": Outcome.SKIPPED,
                         "expected failure": Outcome.SKIPPED, "unexpected success": Outcome.FAILED}  # fmt: skip


def is_unittest(text: str) -> bool:
    """Whether a text is unittest's."""
    return _RAN.search(text) is not None


def read_unittest(text: str, exit_code: int) -> Parsed:
    """Read the output of `python -m unittest`, verbose or not."""
    found = Parsed("unittest")
    for name, where, word in _VERBOSE.findall(text):
        found.add(_test_id(name, where), _VERBOSE_WORDS[word])
    heads = list(_HEAD.finditer(text))
    for place, head in enumerate(heads):
        end = heads[place + 1].start() if place + 1 < len(heads) else len(text)
        body = text[head.end() : end].partition("\nRan ")[0]
        outcome = Outcome.ERROR if head[1] == "ERROR" else Outcome.FAILED
        if "_FailedTest" in (head[3] or "") or head[2] in {"setUpClass", "setUpModule"}:
            found.collecting[head[2]] = body
        else:
            found.add(_test_id(head[2], head[3] or ""), outcome, body)
    _count_unittest(text, found)
    if not sum(found.counts.values()):
        found.problem = (Reason.INFRASTRUCTURE, "unittest ran no test")
    return found


def _test_id(name: str, where: str) -> str:
    return where if where.endswith("." + name) else f"{where}.{name}".strip(".")


def _count_unittest(text: str, found: Parsed) -> None:
    ran = _RAN.findall(text)
    total = int(ran[-1]) if ran else 0
    said = re.search(r"^(?:FAILED|OK) \((.*)\)\s*$", text, re.MULTILINE)
    parts = dict(re.findall(r"([a-z ]+)=(\d+)", said[1])) if said else {}
    bad = {name.strip(): int(number) for name, number in parts.items()}
    failed, errors = bad.get("failures", 0) + bad.get("unexpected successes", 0), bad.get("errors", 0)
    skipped = bad.get("skipped", 0) + bad.get("expected failures", 0)
    counts = {Outcome.FAILED: failed, Outcome.ERROR: errors, Outcome.SKIPPED: skipped,
              Outcome.PASSED: max(0, total - failed - errors - skipped)}  # fmt: skip
    found.counts = {outcome: number for outcome, number in counts.items() if number}
