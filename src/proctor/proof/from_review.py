"""From a review to a fix file: JSON with findings or issues in any of the known shapes, or a Markdown list.

Refused as a whole with line and field of every problem: a finding without a place, a severity that is no word, a path
outside. Nothing of a review is guessed but the wording of "do not let this be so".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from proctor.proof.drafts import MAX_DRAFTS, Drafted, SourceError, severity_of
from proctor.proof.jsontext import JsonText, JsonTextError, Path, path_name, scan_json
from proctor.proof.schema import unsafe_path

__all__ = ["fixes_of_review"]

_TEXT: Final = ("issue", "description", "message", "text", "title", "finding")
_CURE: Final = ("fix", "recommendation", "suggestion", "solution", "cure")
_TEST: Final = (
    "verification",
    "reproduction",
    "reproduction_command",
    "verification_command",
    "command",
    "test",
)
_LISTS: Final = ("findings", "issues", "comments")
_VERDICTS: Final = {"blocker": "critical", "concerns": "major", "approved": "minor"}
_PLACE: Final = r"(?P<file>(?:[\w.@+-]+/)*[\w.@+-]+\.?[\w-]*):(?P<line>\d+(?:-\d+)?)(?::\d+)?"
_ITEM: Final = re.compile(r"^(?P<indent>\s*)(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>\S.*)$")
_WHERE: Final = re.compile(rf"[`*_(\[]*{_PLACE}[`*_)\]]*")
_ALONE: Final = re.compile(r"\W*(?P<word>[A-Za-z]\w{1,12})\W*")
_BEHIND: Final = re.compile(r"\W*(?P<word>[A-Za-z]\w{1,12})\s*[\]):*\u2013\u2014-]+\s*")
_MARKS: Final = " \t:,;\u2013\u2014-*_`[]()"
_MEMBER: Final = re.compile(
    r"^\W*(?P<name>fix|verification|severity|issue|suggestion|reproduction|test)\W*:\s*(?P<text>.+)$",
    re.IGNORECASE,
)


def fixes_of_review(text: str, name: str) -> Drafted:
    """Read a review; JSON by its first letter, everything else as Markdown."""
    problems: list[str] = []
    as_json = text.lstrip()[:1] in {"{", "["}
    drafted = _of_json(text, name, problems) if as_json else _of_markdown(text, problems)
    if not drafted.fixes and not problems:
        problems.append("it holds no finding; a review is JSON with a list `findings` or `issues`, or a Markdown"
                        " list with `file:line` in each item")  # fmt: skip
    if len(drafted.fixes) > MAX_DRAFTS:
        problems = [f"it holds {len(drafted.fixes)} findings; at most {MAX_DRAFTS} fit into one fix file"]
    if problems:
        raise SourceError(name=name, problems=problems)
    return drafted


# JSON


def _of_json(text: str, name: str, problems: list[str]) -> Drafted:
    try:
        source = scan_json(text, name)
    except JsonTextError as error:
        raise SourceError(
            name=name, problems=[f"line {error.facts['line']}: {error.facts['problem']}"]
        ) from None
    drafted = Drafted()
    for path, finding, grade, cure in _findings(source, source.value, ()):
        _take(drafted, source, path, finding, grade, cure, problems)
    return drafted


def _findings(source: JsonText, value: Any, path: Path) -> Iterator[tuple[Path, Any, str, str | None]]:
    """Every finding with its place, the severity its review as a whole says, and the advice that goes with it."""
    if isinstance(value, list):
        for index, one in enumerate(value):
            if isinstance(one, Mapping) and _holder(one):
                yield from _findings(source, one, (*path, index))  # a list of reviews
            else:
                yield (*path, index), one, "major", None
        return
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("payload"), Mapping):
        yield from _findings(source, value["payload"], (*path, "payload"))
        return
    member = _holder(value)
    if member is None:
        return
    grade = _VERDICTS.get(str(value.get("verdict", "")).lower(), "major")
    advice = value.get("recommendations")
    paired = advice if isinstance(advice, list) and len(advice) == len(value[member]) else []
    for index, one in enumerate(value[member]):
        cure = paired[index] if paired and isinstance(paired[index], str) else None
        yield (*path, member, index), one, grade, cure


def _holder(value: Mapping[str, Any]) -> str | None:
    if isinstance(value.get("payload"), Mapping):
        return "payload"
    return next((name for name in _LISTS if isinstance(value.get(name), list)), None)


def _take(
    drafted: Drafted, source: JsonText, path: Path, finding: Any, grade: str, cure: str | None, problems: list[str]
) -> None:  # fmt: skip
    where = f"line {source.line(path)}: {path_name(path)}"
    if isinstance(finding, str):
        _take_text(drafted, finding, {"severity": grade, "fix": cure}, where, problems)
        return
    if not isinstance(finding, Mapping):
        problems.append(f"{where}: must be an object or a text")
        return
    wrong = list(_wrong(finding, grade))
    if wrong:
        problems += [f"{where}.{member}: {sentence}" for member, sentence in wrong]
        return
    line = finding.get("line", finding.get("start_line"))
    issue = _said(finding, _TEXT) or ""
    file = str(finding["file"])
    place = f"{file}:{line}" if line is not None else file
    drafted.add(
        severity=severity_of(finding.get("severity"), grade),
        file=file,
        line=int(line) if isinstance(line, str) and line.isdigit() else line,
        issue=issue,
        fix=_said(finding, _CURE) or cure or _wish(place, issue),
        verification=_said(finding, _TEST),
    )


def _wrong(finding: Mapping[str, Any], grade: str) -> Iterator[tuple[str, str]]:
    file, line = finding.get("file"), finding.get("line", finding.get("start_line"))
    if not isinstance(file, str) or not file:
        yield "file", "must name the file"
    elif problem := unsafe_path(file):
        yield "file", f"{file!r} {problem}"
    if line is not None and not re.fullmatch(r"[1-9]\d{0,6}(?:-[1-9]\d{0,6})?", str(line)):
        yield "line", "must be a line number from 1, or a range"
    if not _said(finding, _TEXT):
        yield "description", "must say what is wrong"
    if severity_of(finding.get("severity"), grade) is None:
        yield "severity", f"{str(finding['severity'])[:40]!r} is none of critical, major, minor"


def _said(finding: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    found = (finding.get(name) for name in names)
    return next((text.strip() for text in found if isinstance(text, str) and text.strip()), None)


def _wish(place: str, issue: str) -> str:
    return f"Change {place} so that this no longer holds: {issue}"


# Markdown


def _of_markdown(text: str, problems: list[str]) -> Drafted:
    drafted = Drafted()
    for number, body, members in _items(text):
        _take_text(drafted, body, members, f"line {number}: item", problems)
    return drafted


def _items(text: str) -> Iterator[tuple[int, str, dict[str, str | None]]]:
    """List items with the lines that belong to them; `fix: …` and the like below an item are its members."""
    item: tuple[int, list[str], dict[str, str | None]] | None = None
    depth, fenced = 0, False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        found = None if fenced else _ITEM.match(line)
        body = found["text"] if found else line.strip()
        if (
            item is not None
            and (member := _MEMBER.match(body))
            and (not found or len(found["indent"]) > depth)
        ):
            item[2][member["name"].lower()] = member["text"].strip()
        elif found and (item is None or len(found["indent"]) <= depth):
            if item is not None:
                yield item[0], " ".join(item[1]), item[2]
            item, depth = (number, [body], {}), len(found["indent"])
        elif item is not None and line[:1] in {" ", "\t"} and body and not fenced:
            item[1].append(body)
        elif item is not None and body and not fenced:
            yield item[0], " ".join(item[1]), item[2]
            item = None
    if item is not None:
        yield item[0], " ".join(item[1]), item[2]


def _take_text(
    drafted: Drafted, body: str, members: Mapping[str, str | None], where: str, problems: list[str]
) -> None:
    """One finding in words: `[severity] file:line: what is wrong`."""
    place = _WHERE.search(body)
    if place is None:
        problems.append(f"{where}: file: no `file:line` in {body[:60]!r}")
        return
    if problem := unsafe_path(place["file"]):
        problems.append(f"{where}: file: {place['file']!r} {problem}")
        return
    word, rest = _graded(body[: place.start()], body[place.end() :])
    issue = members.get("issue") or rest
    severity = severity_of(members.get("severity") or word, "major")
    if severity is None:
        problems.append(f"{where}: severity: {members.get('severity')!r} is none of critical, major, minor")
    if not issue:
        problems.append(f"{where}: issue: nothing is said about {place['file']}:{place['line']}")
    if severity is None or not issue:
        return
    line = place["line"]
    drafted.add(
        severity=severity,
        file=place["file"],
        line=int(line) if line.isdigit() else line,
        issue=issue,
        fix=members.get("fix") or members.get("suggestion") or _wish(f"{place['file']}:{line}", issue),
        verification=members.get("verification") or members.get("reproduction") or members.get("test"),
    )


def _graded(before: str, after: str) -> tuple[str | None, str]:
    """The severity that stands alone before the place or right behind it, and what is said besides."""
    alone, behind = _ALONE.fullmatch(before), _BEHIND.match(after)
    if alone and severity_of(alone["word"], "") is not None:
        return alone["word"], after.strip(_MARKS)
    if behind and severity_of(behind["word"], "") is not None:
        return behind["word"], f"{before.strip(_MARKS)} {after[behind.end() :].strip(_MARKS)}".strip()
    return None, f"{before.strip(_MARKS)} {after.strip(_MARKS)}".strip()
