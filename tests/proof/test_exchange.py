"""Names are parsed by the rule, numbers are given out once, files move from outgoing to incoming."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.exchange import Exchange
from proctor.proof.names import TYPES, FileName, FileNameError, parse_name, snake_case
from proctor.protocol.errors import NotFoundError, UsageError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("005_stress_test_system_fixes.json", (5, "stress_test_system", "fixes")),
        ("001_websocket_reliability_review_request.md", (1, "websocket_reliability", "review_request")),
        ("042_fixes_review_feedback.json", (42, "fixes", "review_feedback")),
        ("007_api_test_results.json", (7, "api", "test_results")),
    ],
)
def test_names_are_parsed_by_the_longest_type(name: str, parts: tuple[int, str, str]) -> None:
    """Focus area and type both hold underscores."""
    parsed = parse_name(name)
    assert (parsed.sequence, parsed.focus, parsed.kind) == parts
    assert str(parsed) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("0005_x_fixes.json", "write 005"),
        ("5_x_fixes.json", "write 005"),
        ("005_fixes.json", "snake_case"),
        ("005_CamelCase_fixes.json", "snake_case"),
        ("005_x.json", "does not end in one of"),
        ("005_x_fixes", "extension"),
        ("", "extension"),
        ("abc_x_fixes.json", "three digits"),
    ],
)
def test_item_54_wrong_names_say_the_cure(name: str, said: str) -> None:
    """Four digits and other liberties are refused with what to write."""
    with pytest.raises(FileNameError, match=said):
        parse_name(name)


@given(st.integers(1, 999), st.text(min_size=0, max_size=30), st.sampled_from(TYPES))
def test_every_made_name_is_parsed_back(sequence: int, focus: str, kind: str) -> None:
    """What we name, we can read."""
    name = FileName(sequence, snake_case(focus), kind)
    parsed = parse_name(str(name))
    assert (parsed.sequence, parsed.review_id[:3]) == (sequence, f"{sequence:03d}")
    assert f"{parsed.focus}_{parsed.kind}" == f"{name.focus}_{kind}"


def test_sequence_numbers_are_given_out_once(tmp_path: Path) -> None:
    """Many callers with different focus areas at the same time: no number twice, none left out."""
    box = Exchange(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: box.create(f"focus_{n}", "fixes", f"{n}"), range(24)))
    assert sorted(path.name[:3] for path in made) == [f"{n:03d}" for n in range(1, 25)]
    assert not [path for path in box.outgoing.iterdir() if path.name.startswith(".")]


def test_sequence_counts_both_directories_and_wrong_names(tmp_path: Path) -> None:
    """A number that is taken anywhere is not used again; the end of the numbers is said."""
    box = Exchange(tmp_path)
    box.incoming.mkdir(parents=True)
    (box.incoming / "041_whatever.json").write_text("{}")
    assert box.create("x", "fixes", "{}").name == "042_x_fixes.json"
    assert box.create("x", "fixes", "{}", after=50).name == "051_x_fixes.json"
    with pytest.raises(FileNameError):
        box.create("../x", "fixes", "{}")
    (box.incoming / "999_last_fixes.json").write_text("{}")
    with pytest.raises(UsageError, match="used up"):
        box.create("x", "fixes", "{}")


def test_files_are_found_and_delivered_without_losing_one(tmp_path: Path) -> None:
    """By name or number; delivering twice or over another file loses nothing."""
    box = Exchange(tmp_path)
    path = box.create("x", "fixes", "new")
    assert box.find("001") == box.find("1") == box.find("001_x_fixes.json") == path
    assert box.deliver(path.name) == box.find("001")
    assert not path.exists()
    with pytest.raises(NotFoundError):
        box.deliver(path.name)
    path.write_text("other")
    with pytest.raises(UsageError, match="already"):
        box.deliver(path.name)
    assert (path.read_text(), (box.incoming / path.name).read_text()) == ("other", "new")
    with pytest.raises(NotFoundError):
        box.find("077")


def test_links_and_wrong_names_are_listed_or_left_alone(tmp_path: Path) -> None:
    """A wrong name is shown with its problem; a link is no file of the exchange."""
    box = Exchange(tmp_path)
    box.outgoing.mkdir(parents=True)
    (box.outgoing / "0005_x_fixes.json").write_text("{}")
    (box.outgoing / "001_x_fixes.json").symlink_to("/etc/passwd")
    (found,) = box.files()
    assert (found.path.name, found.name) == ("0005_x_fixes.json", None)
    assert "write 005" in found.problem
