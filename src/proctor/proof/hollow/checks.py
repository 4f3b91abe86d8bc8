"""What decides about the change, edited by the change itself: CI, runner settings, the verification and what it calls."""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from proctor.gate.policy.resolve import resolve
from proctor.proof.change import Change, ChangedFile
from proctor.proof.diff import FileDiff
from proctor.proof.exitstatus import read_status
from proctor.proof.hollow.model import HollowFinding, HollowKind, HollowWeight
from proctor.proof.kinds import FileKind, is_check_file, is_test_file

__all__ = ["edited_checks", "edited_verification", "raised_tolerances"]

_LOOSENS: Final = re.compile(
    r"continue-on-error:\s*true|allow_failure:\s*true|\|\|\s*(?:true\b|:(?:\s|$)|echo\b|exit 0)|--passWithNoTests|"
    r"passWithNoTests\W+true|"
    r"--deselect|--ignore(?:-glob)?[= ]|-k\s*[\"']?not |\bcollect_ignore|testPathIgnorePatterns|^\s*if:\s*false|\bexit 0\b|"
    r"--no-verify|"
    r"pytest_ignore_collect|report\.outcome\s*=|exitstatus\s*=\s*0|os\._exit\(0\)|sys\.exit\(0\)|--exit-zero|ignore_errors\s*=\s*true",
    re.IGNORECASE,
)  # fmt: skip
_HOOKS: Final = re.compile(
    r"def pytest_(?:collection_modifyitems|runtest_\w+|itemcollected|pyfunc_call|sessionfinish|report\w*|make\w+)"
)
_TOOLS: Final = re.compile(
    r"\b(pytest|unittest|tox|nox|jest|vitest|mocha|ava|playwright|cypress|npm (?:run )?test|npm (?:run )?lint|yarn test|"
    r"pnpm test|go test|"
    r"go vet|cargo test|cargo clippy|ruff|mypy|eslint|tsc|flake8|pylint|bats|make (?:test|check|lint)|fail_under|"
    r"cov-fail-under|"
    r"xfail_strict|strict-markers|dev\.py (?:test|check))\b"
)
_NUMBER: Final = re.compile(r"\d+(?:_\d{3})*(?:\.\d+)?")
_TOLERANT: Final = re.compile(
    r"timeout|sleep|wait|retr(?:y|ies)|reruns?|attempts|deadline|tolerance|delta|\babs\s*=|\brel\s*=|epsilon|max_examples",
    re.IGNORECASE,
)
_RETRIES: Final = re.compile(
    r"@(?:pytest\.mark\.)?flaky\b|jest\.retryTimes\(|--reruns\b|@retry\b|\bretries\s*:"
)
_CHECK_WORDS: Final = re.compile(
    r"verif|check|test|valid|assert|lint|smoke|(?:^|[/_-])ci(?:[/_.-]|$)", re.IGNORECASE
)


def edited_checks(change: Change) -> Iterator[HollowFinding]:
    """CI and runner settings: additions are noted, removals are suspicious, what loosens refutes."""
    for file in change.files:
        name = posixpath.basename(file.path)
        diff = change.diff.of(file.path)
        if diff is None or not is_check_file(file.path, partly=True):
            continue
        if name == "package.json":
            yield from _package(file)
        elif name == "proctor.toml":
            yield from _own_settings(file)
        elif name in {"pyproject.toml", "Cargo.toml", "setup.cfg"}:
            yield from _settings(file, diff)
        elif name in {"Makefile", "makefile", "GNUmakefile", "justfile", "Taskfile.yml"}:
            yield from _recipes(file, diff)
        else:
            yield from _whole(file, diff)


def _found(file: ChangedFile | FileDiff, line: int, weight: HollowWeight, why: str) -> HollowFinding:
    return HollowFinding(HollowKind.CHECK_EDITED, weight, file.path, line, why)


def _whole(file: ChangedFile, diff: FileDiff) -> Iterator[HollowFinding]:
    """A file that is a check as a whole."""
    if file.after is None:
        yield _found(file, 1, HollowWeight.SUSPICIOUS, "the check was deleted")
        return
    loose = list(_loosened(diff))
    yield from loose
    if loose or file.before is None:
        return
    hook = next(((number, text) for number, text in diff.added if _HOOKS.search(text)), None)
    fixtures = posixpath.basename(file.path) == "conftest.py"
    if hook:
        yield _found(
            file,
            hook[0],
            HollowWeight.SUSPICIOUS,
            f"it changes how tests are collected or reported: `{hook[1].strip()[:80]}`",
        )
    elif fixtures:
        return
    elif any(text.strip() for _, text in diff.removed):
        yield _found(file, _first(diff), HollowWeight.SUSPICIOUS, "the check was edited")
    else:
        yield _found(file, _first(diff), HollowWeight.NOTE, "the check was added to")


def _first(diff: FileDiff) -> int:
    return min((number for number, _ in (*diff.added, *diff.removed)), default=1)


def _loosened(diff: FileDiff) -> Iterator[HollowFinding]:
    removed = {text.strip() for _, text in diff.removed}
    for number, text in diff.added:
        if _LOOSENS.search(text) and not any(
            _LOOSENS.search(old) and _tools(old) == _tools(text) for old in removed
        ):
            yield _found(
                diff, number, HollowWeight.REFUTES, f"it lets checks fail unheard: `{text.strip()[:80]}`"
            )
    added = " ".join(text for _, text in diff.added)
    for number, text in diff.removed:
        gone = _tools(text) - _tools(added)
        if gone and not text.lstrip().startswith(("#", "//")):
            yield _found(
                diff,
                number,
                HollowWeight.REFUTES,
                f"{min(gone)} is not run or demanded any more: `{text.strip()[:80]}`",
            )


def _tools(text: str) -> set[str]:
    return set(_TOOLS.findall(text))


def _package(file: ChangedFile) -> Iterator[HollowFinding]:
    """Only the scripts that check, and the settings of the runner."""
    before, after = _json(file.before), _json(file.after)
    for name in ("test", "lint", "check", "pretest", "posttest", "test:unit", "test:ci", "typecheck"):
        old, new = before.get("scripts", {}).get(name), after.get("scripts", {}).get(name)
        if not isinstance(old, str) or old == new:
            continue
        line = _line_of(file.after, f'"{name}"')
        if not isinstance(new, str):
            yield _found(file, line, HollowWeight.REFUTES, f"the script {name} was removed")
        elif read_status(new).never or _LOOSENS.search(new) or _tools(old) - _tools(new):
            yield _found(
                file,
                line,
                HollowWeight.REFUTES,
                f"the script {name} checks less: `{old[:60]}` became `{new[:60]}`",
            )
        else:
            yield _found(
                file,
                line,
                HollowWeight.SUSPICIOUS,
                f"the script {name} was edited: `{old[:60]}` became `{new[:60]}`",
            )
    for runner in ("jest", "vitest", "ava", "mocha", "nyc", "c8"):
        if runner in before and before.get(runner) != after.get(runner):
            weight = (
                HollowWeight.REFUTES
                if _LOOSENS.search(json.dumps(after.get(runner)))
                else HollowWeight.SUSPICIOUS
            )
            yield _found(
                file, _line_of(file.after, f'"{runner}"'), weight, f"the settings of {runner} were edited"
            )


def _json(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {**value, "scripts": value["scripts"] if isinstance(value.get("scripts"), dict) else {}}


def _line_of(text: str | None, word: str) -> int:
    place = (text or "").find(word)
    return (text or "").count("\n", 0, max(place, 0)) + 1


def _settings(file: ChangedFile, diff: FileDiff) -> Iterator[HollowFinding]:
    """Tables of pyproject.toml and its kin that belong to checks."""
    if file.before is None:
        return
    old, new = _check_tables(file.before), _check_tables(file.after or "")
    touched = [name for name in old if old[name] != new.get(name)]
    if not touched:
        return
    loose = list(_loosened(diff))
    lowered = _lowered(old, new)
    if lowered:
        yield _found(file, _line_of(file.after, lowered), HollowWeight.REFUTES, f"{lowered} demands less")
    yield from loose
    if not loose and not lowered:
        weight = HollowWeight.SUSPICIOUS if any("pytest" in name for name in touched) else HollowWeight.NOTE
        yield _found(file, _first(diff), weight, f"the settings of {touched[0]} were edited")


def _own_settings(file: ChangedFile) -> Iterator[HollowFinding]:
    """What Proctor itself judges by: a change must not choose its own judge."""
    old, new = _judged_by(file.before), _judged_by(file.after)
    for name in [name for name, value in old.items() if value is not None and value != new[name]]:
        lines = [new[name]] if isinstance(new[name], str) else new[name] or [""]
        never = name == "test" and all(isinstance(line, str) and read_status(line).never for line in lines)
        weight = HollowWeight.REFUTES if never else HollowWeight.SUSPICIOUS
        yield _found(
            file, _line_of(file.after, name), weight, f"the change edits `{name}`, by which it is judged"
        )


def _judged_by(text: str | None) -> dict[str, Any]:
    try:
        value = tomllib.loads(text or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        value = {}
    project, proof = value.get("project", {}), value.get("proof", {})
    found = {name: project.get(name) for name in ("test", "setup", "env", "services")}
    return {**found, **{name: proof.get(name) for name in ("flaky", "paths", "docs", "pictures")}}


def _check_tables(text: str) -> dict[str, Any]:
    try:
        tool = tomllib.loads(text).get("tool", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return dict(
            re.findall(r"^\[(tool:pytest|coverage:\w+|flake8|mypy)\]\n((?:(?!\[).*\n?)*)", text, re.MULTILINE)
        )
    names = ("pytest", "coverage", "ruff", "mypy", "pylint", "pyright", "hypothesis")
    return {name: tool[name] for name in names if isinstance(tool, dict) and name in tool}


def _lowered(old: dict[str, Any], new: dict[str, Any]) -> str:
    was, now = _flat(old), _flat(new)
    for key in ("fail_under",):
        for path, value in was.items():
            if path.endswith(key) and isinstance(value, int | float) and now.get(path, 0) < value:
                return key
    for path, value in was.items():
        if path.endswith(("xfail_strict", "strict")) and value is True and now.get(path) is not True:
            return path.rsplit(".", 1)[-1]
    return ""


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {key: one for name, inner in value.items() for key, one in _flat(inner, f"{path}.{name}").items()}


def _recipes(file: ChangedFile, diff: FileDiff) -> Iterator[HollowFinding]:
    """Recipes of targets that check."""
    if file.before is None:
        return
    loose = list(_loosened(diff))
    yield from loose
    if not loose and any(_tools(text) for _, text in diff.removed):
        yield _found(file, _first(diff), HollowWeight.SUSPICIOUS, "the recipe of a check was edited")


def edited_verification(change: Change, commands: Sequence[str]) -> Iterator[HollowFinding]:
    """Scripts the verification calls that were there before and were edited by the change itself."""
    called = {word for command in commands for word in _called(command)}
    for file in change.files:
        if file.before is None or (file.kind is FileKind.TEST and file.path.endswith(".py")):
            continue
        named = any(
            file.path == word.lstrip("./") or word.endswith("/" + file.path) or file.path.endswith("/" + word)
            for word in called
        )
        if not named or not (is_test_file(file.path) or _CHECK_WORDS.search(file.path)):
            continue
        diff = change.diff.of(file.path)
        loose = diff is not None and any(_LOOSENS.search(text) for _, text in diff.added)
        shell = file.path.endswith((".sh", ".bash")) or (file.after or "").startswith("#!/bin/")
        never = file.after is None or (
            shell and read_status(file.after).never and not read_status(file.before).never
        )
        weight = HollowWeight.REFUTES if loose or never else HollowWeight.SUSPICIOUS
        why = "the verification runs this file, and the change edited it" + (
            " so that it cannot fail" if loose or never else ""
        )
        yield HollowFinding(
            HollowKind.VERIFICATION_EDITED, weight, file.path, _first(diff) if diff else 1, why
        )


def _called(command: str) -> set[str]:
    """Words of a command that name files."""
    words = {word for one in resolve(command).commands for word in one.argv if word}
    return {word for word in words if re.fullmatch(r"[\w./@-]+", word) and ("." in word or "/" in word)}


def raised_tolerances(change: Change) -> Iterator[HollowFinding]:
    """Time-outs, retries and tolerances of tests that grew, and retries that are new."""
    for diff in change.diff.files:
        if not (is_test_file(diff.path) or is_check_file(diff.path, partly=True)) or diff.old_path is None:
            continue
        for hunk in diff.hunks:
            removed = [line.text for line in hunk.lines if line.kind == "-"]
            for number, line in hunk.numbered():
                if line.kind != "+":
                    continue
                if found := _raised(line.text, removed):
                    yield HollowFinding(
                        HollowKind.TOLERANCE_RAISED, HollowWeight.SUSPICIOUS, diff.path, number, found
                    )
                elif _RETRIES.search(line.text) and not any(_RETRIES.search(old) for old in removed):
                    why = f"failures are tried again: `{line.text.strip()[:80]}`"
                    yield HollowFinding(
                        HollowKind.TOLERANCE_RAISED, HollowWeight.SUSPICIOUS, diff.path, number, why
                    )


def _raised(text: str, removed: list[str]) -> str:
    if not _TOLERANT.search(text):
        return ""
    shape = _NUMBER.sub("#", text).strip()
    for old in removed:
        if _NUMBER.sub("#", old).strip() != shape:
            continue
        pairs = zip(_NUMBER.findall(old), _NUMBER.findall(text), strict=True)
        if any(float(new.replace("_", "")) > float(was.replace("_", "")) for was, new in pairs):
            return f"`{old.strip()[:60]}` became `{text.strip()[:60]}`"
    return ""
