"""Fix files are taken whole or refused with line and field; what is written back differs only where it should."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.fixfile import (
    MAX_BYTES,
    FixFileError,
    load_fix_file,
    parse_fix_file,
    replace_file,
    with_result,
)
from proctor.proof.jsontext import JsonTextError, scan_json
from proctor.proof.schema import STATUSES, render_schema
from proctor.protocol.errors import NotFoundError
from tests.layers.tree import ROOT
from tests.proof.seed import RESULT, fix, fix_file, text_of


def refused(value: object) -> str:
    """The sentence a file is refused with."""
    with pytest.raises(FixFileError) as caught:
        parse_fix_file(value if isinstance(value, str) else text_of(value), "005_x_fixes.json")
    return str(caught.value)


def test_the_contracts_own_file_is_read() -> None:
    """Task and result of the contract are taken as they stand."""
    document = parse_fix_file(text_of(fix_file(fix(result=RESULT))))
    result = document.fixes[0].result
    assert result is not None
    assert (result.status, document.fixes[0].lines, document.fixes[0].severity) == (
        "FIXED",
        (185, 185),
        "critical",
    )
    assert result.changes_made == RESULT["changes_made"]


def test_schema_of_an_editor_is_accepted() -> None:
    """`$schema` is a member like others."""
    assert parse_fix_file(text_of({"$schema": "fix-file.schema.json", **fix_file()})).fixes[1].id == 2


@pytest.mark.parametrize(
    ("members", "field", "said"),
    [
        ({"severity": "high"}, "fixes[0].severity", "critical, major or minor"),
        ({"severity": 3}, "fixes[0].severity", "critical, major or minor"),
        ({"line": "soon"}, "fixes[0].line", "85-92"),
        ({"line": True}, "fixes[0].line", "line number"),
        ({"line": 0}, "fixes[0].line", "line number"),
        ({"line": "9-3"}, "fixes[0].line", "range"),
        ({"line": None}, "fixes[0].line", "missing"),
        ({"id": [1]}, "fixes[0].id", "whole number"),
        ({"id": "../x"}, "fixes[0].id", "letters"),
        ({"issue": 7}, "fixes[0].issue", "must be a text"),
        ({"issue": "  "}, "fixes[0].issue", "not be empty"),
        ({"verification": None}, "fixes[0].verification", "is missing"),
        ({"file": "../etc/passwd"}, "fixes[0].file", "outside"),
        ({"file": "a/../../b"}, "fixes[0].file", "outside"),
        ({"file": "/etc/passwd"}, "fixes[0].file", "absolute"),
        ({"file": "C:\\x"}, "fixes[0].file", "absolute"),
        ({"file": ".git/config"}, "fixes[0].file", "git's own"),
        ({"file": "a\u0000b"}, "fixes[0].file", "control"),
        ({"file": "./"}, "fixes[0].file", "no file"),
        ({"result": []}, "fixes[0].result", "object"),
        ({"result": {**RESULT, "status": "DONE"}}, "fixes[0].result.status", "FIXED, NO_CHANGE_NEEDED"),
        ({"result": {**RESULT, "changes_made": "all"}}, "fixes[0].result.changes_made", "list"),
        ({"result": {**RESULT, "changes_made": []}}, "fixes[0].result", "changes_made"),
        ({"result": {**RESULT, "verification_command": ""}}, "fixes[0].result.verification_command", "empty"),
    ],
)  # fmt: skip
def test_wrong_members_are_named_with_their_line(members: dict[str, Any], field: str, said: str) -> None:
    """Type, value, path and status: the sentence names line and field."""
    text = text_of(fix_file(fix(**members)))
    name = field.rpartition(".")[2].partition("[")[0]
    line = next((n for n, each in enumerate(text.splitlines(), 1) if f'"{name}":' in each), 0)
    sentence = refused(text)
    assert field in sentence
    assert said in sentence
    if line:
        assert f"line {line}:" in sentence


def test_every_problem_is_listed_in_the_order_of_the_file() -> None:
    """One look is enough to mend a file."""
    sentence = refused(fix_file(fix(severity="x"), fix(id=1, line="y")))
    assert (
        sentence.index("fixes[0].severity") < sentence.index("fixes[1].id") < sentence.index("fixes[1].line")
    )
    assert "nothing was run" in sentence


def test_item_54_other_dialects_are_refused_with_the_cure() -> None:
    """task_list_id, tasks, priority and results without hallucination_check say how to mend them."""
    assert "rename it to review_id" in refused({"task_list_id": "x", "tasks": []})
    assert "rename the list to fixes" in refused({"task_list_id": "x", "tasks": []})
    assert "rename it to severity" in refused(fix_file(fix(severity=None, priority="high")))
    without = {name: value for name, value in RESULT.items() if name != "hallucination_check"}
    sentence = refused(fix_file(fix(result=without)))
    assert "fixes[0].result.hallucination_check: is missing; add a one-line command" in sentence


def test_a_flood_of_small_values_is_refused() -> None:
    """Eight megabytes of digits would fill the memory with places; the count is capped."""
    assert "more than 200,000 values" in refused('{"a": [' + "1," * 200_000 + "1]}")


@pytest.mark.parametrize("status", [each for each in STATUSES if each not in {"FIXED", "PARTIALLY_FIXED"}])
def test_results_without_change_want_a_finding(status: str) -> None:
    """Either changes_made or finding."""
    bare = {"status": status, "verification_command": "true", "hallucination_check": "true"}
    assert "finding must say" in refused(fix_file(fix(result=bare)))
    assert parse_fix_file(text_of(fix_file(fix(result={**bare, "finding": "it was right"})))).fixes[0].result


@pytest.mark.parametrize(
    "text", ["", "[", "[]", '"x"', "{]", '{"a": 1, "a": 2}', '{"a": NaN}', "{'a': 1}", "1 2", "[" * 100_000]
)
def test_text_that_is_no_fix_file_is_refused_in_one_sentence(text: str) -> None:
    """Broken JSON, double names, NaN and bottomless nesting end in a sentence, never in a traceback."""
    assert "nothing was run" in refused(text)


def test_huge_binary_and_odd_files_are_not_parsed(tmp_path: Path) -> None:
    """50 MB, bytes, a pipe, a link and a file that is not there: one sentence each, at once."""
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(50 * 1024 * 1024)
    with pytest.raises(FixFileError, match="52,428,800 bytes"):
        load_fix_file(huge)
    (tmp_path / "binary.json").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(FixFileError, match="binary"):
        load_fix_file(tmp_path / "binary.json")
    (tmp_path / "latin.json").write_bytes(b'{\n"a": "\xe4"}')
    with pytest.raises(FixFileError, match="line 2: text: it is not UTF-8"):
        load_fix_file(tmp_path / "latin.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(FixFileError, match="regular file"):
        load_fix_file(tmp_path / "pipe.json")
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    with pytest.raises(FixFileError, match="link"):
        load_fix_file(tmp_path / "link.json")
    with pytest.raises(NotFoundError):
        load_fix_file(tmp_path / "gone.json")
    assert MAX_BYTES < 50 * 1024 * 1024


def test_a_result_is_added_without_touching_another_byte() -> None:
    """Odd spacing, extra members, their order and number spelling stay as they were."""
    text = (
        text_of(fix_file(fix(note={"b": 1.50, "a": None}), fix(id=2)))
        .replace('"critical"', '   "critical"')
        .replace("1.5", "1.50")
    )
    changed = with_result(parse_fix_file(text), 0, RESULT)
    span = changed.source.spans["fixes", 0, "result"]
    comma = changed.text.rindex(",", 0, span.begin)
    assert changed.text[:comma] + changed.text[span.end :] == text
    assert changed.text[comma : span.end].startswith(',\n      "result": {\n')
    assert (
        with_result(changed, 0, {**RESULT, "solution": "other"}).text.replace(
            "other", str(RESULT["solution"])
        )
        == changed.text
    )


@pytest.mark.parametrize(
    "text",
    ['{"a":{"b":[]},"c":1}', '{\r\n\t"a": {\r\n\t\t"b": []\r\n\t},\r\n\t"c": 1\r\n}', '{"a":{},"c":{}}'],
)
def test_members_are_set_in_any_style_of_json(text: str) -> None:
    """Compact, tabs and CRLF: the value arrives, the rest stays."""
    changed = scan_json(text).with_member(("a",), "new", {"x": [1, "y"]})
    assert json.loads(changed) == {**json.loads(text), "a": {**json.loads(text)["a"], "new": {"x": [1, "y"]}}}


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_json, st.sampled_from([None, 1, "\t"]))
def test_the_scanner_reads_what_the_standard_library_reads(value: Any, indent: Any) -> None:
    """Same values, and the text at every place is that value."""
    text = json.dumps(value, indent=indent)
    source = scan_json(text)
    assert source.value == value
    for path, span in source.spans.items():
        inner = value
        for part in path:
            inner = inner[part]
        assert json.loads(text[span.start : span.end]) == inner


@given(st.text(alphabet='{}[]",:01e-. \n\\truefalsnu"ab', max_size=40))
def test_the_scanner_refuses_what_the_standard_library_refuses(text: str) -> None:
    """Equal judgement on any text, but for double names and NaN, which only the library takes."""
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(JsonTextError):
            scan_json(text)
        return
    doubles: list[str] = []
    json.loads(text, object_pairs_hook=lambda pairs: doubles.extend(["x"] * (len(pairs) - len(dict(pairs)))))
    if doubles:
        with pytest.raises(JsonTextError, match="twice"):
            scan_json(text)
    else:
        assert scan_json(text).value == expected


def test_item_53_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """While one writes again and again, every read is one whole version; no scratch file stays."""
    path = tmp_path / "005_stress_test_system_fixes.json"
    versions = [text_of(fix_file(fix(note="x" * size))) for size in (1, 200_000)]
    replace_file(path, versions[0])
    stop = threading.Event()

    def write() -> None:
        for turn in range(60):
            replace_file(path, versions[turn % 2])
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not stop.is_set():
        seen.add(load_fix_file(path).text)
    writer.join()
    assert seen <= set(versions)
    assert [each.name for each in tmp_path.glob("*.json*")] == [path.name]
    assert not list(tmp_path.glob(".*"))


def test_replacing_keeps_the_mode_of_the_file(tmp_path: Path) -> None:
    """A file that was private stays private."""
    path = tmp_path / "x.json"
    path.write_text("{}")
    path.chmod(0o600)
    replace_file(path, "[]")
    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, "[]")


def test_published_schema_is_the_one_of_the_code() -> None:
    """docs/reference/fix-file.schema.json is generated; `python3 dev.py docs` brings it up to date."""
    assert (ROOT / "docs" / "reference" / "fix-file.schema.json").read_text() == render_schema()
