"""Confined file access, with the kernel's openat2 and with the walk that stands in for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.protocol.permits import PermitForgedError, PermitSpentError
from proctor.testing.permits import permit_for_tests
from proctor.workspace.beneath import Opener, PathEscapeError, kernel_opener, walking_opener
from proctor.workspace.files import NotRegularFileError, Root

OUTSIDE = ["../secret", "out", "abs", "dirlink/secret", "a/../../secret", "/etc/passwd", "../repo-evil/x"]
PARTS = ["..", ".", "a", "b", "in", "out", "dirlink", "abs", "up", "f.txt", "secret"]


def openers() -> list[Opener]:
    """Every way to open that this machine has."""
    return [opener for opener in (kernel_opener(), walking_opener()) if opener is not None]


@pytest.fixture(params=openers(), ids=lambda opener: type(opener).__name__)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Root]:
    """A workspace with links of every kind, and a secret beside it."""
    place = tmp_path / "repo"
    (place / "a" / "b").mkdir(parents=True)
    (place / "a" / "f.txt").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "repo-evil").mkdir()
    (tmp_path / "repo-evil" / "x").write_text("outside")
    (place / "in").symlink_to("a/f.txt")
    (place / "a" / "b" / "up").symlink_to("../f.txt")
    (place / "out").symlink_to("../secret")
    (place / "abs").symlink_to(str(place / "a" / "f.txt"))
    (place / "dirlink").symlink_to("..")
    (place / "loop").symlink_to("loop")
    (place / "broken").symlink_to("nowhere")
    os.mkfifo(place / "pipe")
    with Root(place, opener=request.param) as opened:
        yield opened


def write(root: Root, path: str, data: bytes = b"new", **options: bool) -> None:
    """Write with a permit of its own."""
    root.write_atomic(path, data, permit=permit_for_tests("write_file"), **options)


@pytest.mark.parametrize("path", ["a/f.txt", "in", "a/b/up", "a/b/../f.txt", "./a//f.txt"])
def test_paths_and_links_that_stay_inside_are_read(root: Root, path: str) -> None:
    """Inside links and `..` work with both ways of opening."""
    assert root.read(path).text == "inside"
    assert root.read(root.path / "a" / "f.txt").text == "inside"


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read_or_written(root: Root, path: str) -> None:
    """`..`, links, absolute paths and a sibling with the same beginning are refused."""
    with pytest.raises(PathEscapeError):
        root.read(path)
    with pytest.raises(RefusedError):
        write(root, path)
    assert (root.path.parent / "secret").read_text() == "outside"


@pytest.mark.parametrize("path", ["pipe", "a", "loop", "a/f.txt/x"])
def test_only_regular_files_are_read(root: Root, path: str) -> None:
    """FIFOs, directories and loops are refused at once; nothing hangs."""
    with pytest.raises(NotRegularFileError):
        root.read(path)


def test_missing_files_are_not_found(root: Root) -> None:
    """A file that is not there, or a link to nowhere, is not found."""
    for path in ("nope", "a/nope", "broken"):
        with pytest.raises(NotFoundError):
            root.read(path)


def test_reads_are_capped_and_say_so(root: Root) -> None:
    """A cap cuts and is told; the exact size is not a cut."""
    (root.path / "long").write_bytes("ä".encode() * 10)
    cut = root.read("long", cap=5)
    assert (cut.truncated, cut.data, cut.text, cut.size) == (True, b"\xc3\xa4\xc3\xa4\xc3", "ää", 20)
    assert not root.read("long", cap=20).truncated


def test_binary_files_are_marked(root: Root) -> None:
    """A file with NUL gives the marker with path and size; other bytes than UTF-8 are still text."""
    (root.path / "bin").write_bytes(b"\x00\x01\x02")
    (root.path / "latin").write_bytes(b"caf\xe9")
    assert root.read("bin").text == "[BINARY FILE: bin, Size: 3 bytes]"
    assert root.read("latin").text == "café"


def test_writes_are_whole_keep_the_mode_and_leave_nothing_behind(root: Root) -> None:
    """The new content is there, the mode is kept, parents are made, and no temporary file stays."""
    (root.path / "a" / "f.txt").chmod(0o750)
    write(root, "a/f.txt", b"changed", fsync=True)
    write(root, "x/y/z.txt", b"")
    assert (root.path / "a" / "f.txt").read_bytes() == b"changed"
    assert (root.path / "a" / "f.txt").stat().st_mode & 0o777 == 0o750
    assert (root.path / "x" / "y" / "z.txt").read_bytes() == b""
    assert not list(root.path.rglob("*.tmp"))


@pytest.mark.parametrize("path", ["in", "broken", "pipe", "a", "dirlink/secret"])
def test_links_pipes_and_directories_are_not_replaced(root: Root, path: str) -> None:
    """A write never replaces or follows what is not a regular file."""
    before = sorted((p.name, p.is_symlink()) for p in root.path.iterdir())
    with pytest.raises(RefusedError):
        write(root, path)
    assert sorted((p.name, p.is_symlink()) for p in root.path.iterdir()) == before


def test_a_write_demands_a_permit_and_spends_it(root: Root) -> None:
    """Without a genuine permit nothing is written, and one permit writes once."""
    with pytest.raises(PermitForgedError):
        root.write_atomic("n", b"x", permit=None)  # type: ignore[arg-type]
    assert not (root.path / "n").exists()
    permit = permit_for_tests("write_file")
    root.write_atomic("n", b"x", permit=permit)
    with pytest.raises(PermitSpentError):
        root.write_atomic("n", b"y", permit=permit)
    assert (root.path / "n").read_bytes() == b"x"


def test_a_hard_link_to_an_outside_file_is_not_written_through(root: Root) -> None:
    """Replacing by rename leaves the other name of the file as it was."""
    os.link(root.path.parent / "secret", root.path / "hard")
    write(root, "hard", b"mine")
    assert (root.path.parent / "secret").read_text() == "outside"


def test_listing_survives_everything_and_names_links(root: Root) -> None:
    """Broken links, loops and pipes are entries, never failures; links are not followed."""
    kinds = {entry.path: entry.kind for entry in root.list(recursive=True).entries}
    assert kinds["broken"] == kinds["loop"] == kinds["dirlink"] == "symlink"
    assert (kinds["pipe"], kinds["a/b"], kinds["a/f.txt"]) == ("pipe", "directory", "file")
    assert not any(path.startswith("dirlink/") for path in kinds)


def test_five_levels_are_five_levels(root: Root) -> None:
    """max_depth 5 lists the fifth level and not the sixth."""
    (root.path / "1" / "2" / "3" / "4" / "5" / "6").mkdir(parents=True)
    names = {entry.path for entry in root.list(recursive=True, max_depth=5).entries}
    assert "1/2/3/4/5" in names
    assert "1/2/3/4/5/6" not in names
    assert "1/2" not in {entry.path for entry in root.list().entries}


def test_listings_are_capped_in_order(root: Root) -> None:
    """A cap keeps the first names in order and says that there are more."""
    for number in range(30):
        (root.path / "a" / "b" / f"{number:02}").touch()
    listing = root.list("a/b", cap=10)
    assert [entry.path for entry in listing.entries] == [f"a/b/{number:02}" for number in range(10)]
    assert listing.truncated
    assert not root.list("a/b", cap=31).truncated


def test_a_race_of_directory_and_link_never_leads_out(root: Root) -> None:
    """While another thread swaps a directory for a link to the outside, only the inside is ever read."""
    swap, keep, link = root.path / "swap", root.path / "keep", root.path / "link"
    swap.mkdir()
    (swap / "secret").write_text("inside")
    link.symlink_to("..")
    stop = threading.Event()

    def attack() -> None:
        while not stop.is_set():
            swap.rename(keep)
            link.rename(swap)
            swap.rename(link)
            keep.rename(swap)

    attacker = threading.Thread(target=attack)
    attacker.start()
    seen = set()
    try:
        for _ in range(1500):
            try:
                seen.add(root.read("swap/secret").text)
            except (RefusedError, NotFoundError) as error:
                seen.add(type(error).__name__)
    finally:
        stop.set()
        attacker.join()
    assert "outside" not in seen


@given(
    path=st.lists(
        st.sampled_from(PARTS),
        max_size=6,
    ).map("/".join)
)
@settings(max_examples=150, deadline=None)
def test_both_ways_give_the_same_answer(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever path is asked for, the walk answers like the kernel."""
    place = tmp_path_factory.mktemp("same") / "repo"
    (place / "a" / "b").mkdir(parents=True)
    (place / "a" / "f.txt").write_text("inside")
    (place.parent / "secret").write_text("outside")
    for name, target in (
        ("in", "a/f.txt"),
        ("out", "../secret"),
        ("dirlink", ".."),
        ("abs", "/"),
        ("a/b/up", "../f.txt"),
    ):
        (place / name).symlink_to(target)
    answers = set()
    for opener in openers():
        with Root(place, opener=opener) as root:
            try:
                answers.add(root.read(path or ".").text)
            except (RefusedError, NotFoundError) as error:
                answers.add(error.code)
    assert len(answers) == 1
    assert "outside" not in answers
