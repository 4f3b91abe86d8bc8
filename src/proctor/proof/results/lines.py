"""Reading results that come as lines: TAP, node's spec report, cargo test, plain `go test`."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from proctor.proof.results.model import Outcome, Parsed, Reason

__all__ = [
    "is_cargo",
    "is_go_text",
    "is_node_spec",
    "is_tap",
    "read_cargo",
    "read_go_text",
    "read_node_spec",
    "read_tap",
]

_TAP: Final = re.compile(r"^( *)(not ok|ok) \d+(?: -)?(?: (.*?))?( # (?:SKIP|TODO|skip|todo)\b.*)?$")


def is_tap(text: str) -> bool:
    """Whether a text is TAP."""
    return text.lstrip().startswith("TAP version") or re.search(r"^1\.\.\d+$", text, re.MULTILINE) is not None


def read_tap(text: str, exit_code: int) -> Parsed:
    """Read TAP with node's nesting: a subtest is named by its parents, a parent only by its subtests."""
    found = Parsed("tap")
    lines = text.splitlines()
    parents: list[tuple[int, str]] = []
    families: set[str] = set()
    for place, line in enumerate(lines):
        if begun := re.match(r"^( *)# Subtest: (.*)$", line):
            depth = len(begun[1])
            parents = [one for one in parents if one[0] < depth]
            families.update(
                " > ".join(name for _, name in parents[:end]) for end in range(1, len(parents) + 1)
            )
            parents.append((depth, begun[2]))
        elif point := _TAP.match(line):
            _point(found, point, parents, lines[place + 1 : place + 80])
    for family in families:
        found.tests.pop(family, None)
        found.texts.pop(family, None)
    _noise(text, found)
    found.counts = dict(Counter(found.tests.values()))
    if not found.tests and not found.collecting:
        found.problem = (Reason.INFRASTRUCTURE, "no test ran")
    return found


def _point(found: Parsed, point: re.Match[str], parents: list[tuple[int, str]], following: list[str]) -> None:
    above = [name for depth, name in parents if depth < len(point[1])]
    name = " > ".join([*above, (point[3] or "").strip()]) or "unnamed"
    if point[4] and point[2] == "ok":
        found.add(name, Outcome.SKIPPED if "skip" in point[4].lower() else Outcome.PASSED)
    elif point[4]:
        found.add(name, Outcome.SKIPPED)
    elif point[2] == "ok":
        found.add(name, Outcome.PASSED)
    else:
        found.add(name, Outcome.FAILED, _yaml(following))


def _yaml(lines: list[str]) -> str:
    """The block under a failed point: what TAP knows of the error."""
    if not lines or lines[0].strip() != "---":
        return ""
    block = []
    for line in lines[1:]:
        if line.strip() == "..." or line.strip().startswith("stack:"):
            break
        block.append(re.sub(r"^error: ?(?:\|-)?'?", "", line.strip()).rstrip("'"))
    return "\n".join(block)


def _noise(text: str, found: Parsed) -> None:
    """A test file that could not even be loaded is reported as one failed test of that name."""
    comments = "\n".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    for name in [name for name, outcome in found.tests.items() if outcome is Outcome.FAILED]:
        if re.search(r"\.[cm]?[jt]sx?$", name) and "exitCode" in found.texts.get(name, ""):
            found.collecting[name] = comments
            del found.tests[name]


_SPEC: Final = re.compile(r"^( *)([✔✖﹣▶]) (.*?)(?: \([\d.]+ms\))?( # (?:SKIP|TODO|skip|todo)\b.*)?$")


def is_node_spec(text: str) -> bool:
    """Whether a text is node's spec report."""
    return re.search(r"^ℹ tests \d+$", text, re.MULTILINE) is not None  # noqa: RUF001 - node's own sign


def read_node_spec(text: str, exit_code: int) -> Parsed:
    """Read node's spec report; the list of failures at its end repeats what stands above."""
    found = Parsed("node")
    lines = text.partition("\n✖ failing tests:")[0].splitlines()
    parents: list[tuple[int, str]] = []
    groups: set[str] = set()
    for place, line in enumerate(lines):
        row = _SPEC.match(line)
        if not row:
            continue
        depth = len(row[1])
        parents = [one for one in parents if one[0] < depth]
        name = " > ".join([*(name for _, name in parents), row[3]])
        if row[2] == "▶":
            parents.append((depth, row[3]))
            groups.add(name)
        elif name not in groups:
            body = "\n".join(_indented(lines[place + 1 :], depth)) if row[2] == "✖" else ""
            skipped = row[2] == "﹣" or "SKIP" in (row[4] or "").upper()
            found.add(
                name,
                Outcome.SKIPPED if skipped else Outcome.FAILED if row[2] == "✖" else Outcome.PASSED,
                body,
            )
    for name in [
        n for n, o in found.tests.items() if o is Outcome.FAILED and re.search(r"\.[cm]?[jt]sx?$", n)
    ]:
        found.collecting[name] = f"{found.texts.pop(name, '')}\n{text[:4000]}"
        del found.tests[name]
    found.counts = dict(Counter(found.tests.values()))
    if not found.tests and not found.collecting:
        found.problem = (Reason.INFRASTRUCTURE, "no test ran")
    return found


def _indented(lines: list[str], depth: int) -> list[str]:
    block: list[str] = []
    for line in lines[:80]:
        if line.strip() and (len(line) - len(line.lstrip()) <= depth or _SPEC.match(line)):
            break
        block.append(line.strip())
    return block


_CARGO: Final = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)


def is_cargo(text: str) -> bool:
    """Whether a text is cargo's."""
    return re.search(r"^test result: |^error: could not compile", text, re.MULTILINE) is not None


def read_cargo(text: str, exit_code: int) -> Parsed:
    """Read the output of `cargo test`."""
    found = Parsed("cargo")
    bodies = dict(
        re.findall(r"^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:|\Z)", text, re.MULTILINE | re.DOTALL)
    )
    words = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}
    for name, word in _CARGO.findall(text):
        found.add(
            name,
            words[word],
            re.split(r"\nstack backtrace:", bodies.get(name, ""))[0] if word == "FAILED" else "",
        )
    found.counts = dict(Counter(found.tests.values()))
    if broken := re.search(r"^error: could not compile.*$", text, re.MULTILINE):
        errors = re.findall(r"^error(?:\[E\d+\])?: .*(?:\n +-->.*)?", text, re.MULTILINE)
        found.collecting["cargo"] = "\n".join([*errors[:20], broken[0]])
    elif not found.tests:
        found.problem = (Reason.INFRASTRUCTURE, "cargo ran no test")
    return found


def is_go_text(text: str) -> bool:
    """Whether a text is that of `go test` without -json."""
    return re.search(r"^(?:ok|FAIL|---\s+FAIL:|\?)\s+\S+(?:\s+[\d.(]|\s+\[)", text, re.MULTILINE) is not None


def read_go_text(text: str, exit_code: int) -> Parsed:
    """Read the output of `go test`, verbose or not."""
    found = Parsed("go")
    words = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}
    rows = list(re.finditer(r"^[ \t]*--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)$", text, re.MULTILINE))
    for place, row in enumerate(rows):
        end = rows[place + 1].start() if place + 1 < len(rows) else len(text)
        found.add(row[2], words[row[1]], text[row.end() : end][:2000] if row[1] == "FAIL" else "")
    for package in re.findall(r"^FAIL\s+(\S+) \[(?:build|setup) failed\]", text, re.MULTILINE):
        found.collecting[package] = text[:4000]
    found.counts = dict(Counter(found.tests.values())) or dict.fromkeys(
        [Outcome.PASSED] if re.search(r"^ok\s", text, re.MULTILINE) else [], 1
    )
    if not found.counts and not found.collecting:
        found.problem = (Reason.INFRASTRUCTURE, "no test ran")
    return found
