"""Files: inside the workspace exactly as asked, outside never, and always bounded."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from proctor.protocol.errors import ProctorError, RefusedError
from tests.tools.conftest import Desk


async def test_reading_gives_the_words_of_both_dialects(desk: Desk) -> None:
    """`path` and `file_path`, content, hash, size and time."""
    got = await desk.call("read_file", file_path="src/app.py")
    assert got["path"] == got["file_path"] == "src/app.py"
    assert got["content"] == "print('hello')\n"
    assert got["content_hash"] == hashlib.sha256(b"print('hello')\n").hexdigest()
    assert got["size_bytes"] == 15
    assert got["last_modified"].startswith("20")
    assert (got["truncated"], got["binary"], got["simulated"]) == (False, False, False)


OUTSIDE = ["/etc/passwd", "../secret", "src/../../secret", "link/passwd", "/", ".."]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "list_directory"])
async def test_bug_2_no_path_leads_out_of_the_workspace(desk: Desk, tool: str, path: str) -> None:
    """Absolute paths, `..` and links are refused by all three, and nothing is touched outside."""
    secret = desk.root.parent / "secret"
    secret.write_text("keep")
    (desk.root / "link").symlink_to("/etc")
    extra: dict[str, Any] = {"content": "x"} if tool == "write_file" else {}
    with pytest.raises(RefusedError):
        await desk.call(tool, path=path, **extra)
    assert secret.read_text() == "keep"


async def test_bug_2_a_neighbour_with_the_same_beginning_is_outside(desk: Desk) -> None:
    """`/repo-evil` is not in `/repo`."""
    evil = desk.root.with_name(desk.root.name + "-evil")
    evil.mkdir()
    (evil / "f").write_text("x")
    with pytest.raises(RefusedError):
        await desk.call("read_file", path=str(evil / "f"))


async def test_absolute_path_inside_is_taken(desk: Desk) -> None:
    """The seeds' clients send absolute paths."""
    got = await desk.call("read_file", path=str(desk.root / "README.md"))
    assert (got["path"], got["content"]) == ("README.md", "# Project\n")


@pytest.mark.parametrize("data", [b"\0\1\2", b"\xff\xfeabc", b"caf\xe9"])
async def test_what_is_not_text_is_marked(desk: Desk, data: bytes) -> None:
    """A file that is not UTF-8 gives the seeds' marker, not broken text."""
    (desk.root / "b.bin").write_bytes(data)
    got = await desk.call("read_file", path="b.bin")
    assert got["content"] == f"[BINARY FILE: b.bin, Size: {len(data)} bytes]"
    assert got["binary"] is True


async def test_bug_7_reading_is_bounded_and_says_so(desk: Desk) -> None:
    """A cut inside a character is still text; the hash of a part is not given out as the file's."""
    (desk.root / "big.txt").write_text("ü" * 600_000)
    got = await desk.call("read_file", path="big.txt")
    assert (got["truncated"], got["binary"], got["content_hash"]) == (True, False, None)
    assert (len(got["content"]), got["size_bytes"]) == (500_000, 1_200_000)
    small = await desk.call("read_file", path="big.txt", max_bytes=3)
    assert (small["content"], small["truncated"]) == ("ü", True)


async def test_what_was_read_can_be_written_back_exactly(desk: Desk) -> None:
    """Byte order mark and line ends survive."""
    data = b"\xef\xbb\xbfone\r\ntwo\n"
    (desk.root / "odd.txt").write_bytes(data)
    got = await desk.call("read_file", path="odd.txt")
    await desk.call("write_file", path="odd.txt", content=got["content"])
    assert (desk.root / "odd.txt").read_bytes() == data


async def test_writing_makes_parents_and_tells_the_size(desk: Desk) -> None:
    """Both dialects' words, again."""
    got = await desk.call("write_file", path="a/b/c.txt", content="ü")
    assert (desk.root / "a/b/c.txt").read_text() == "ü"
    assert (got["path"], got["file_path"], got["size"], got["size_bytes"]) == ("a/b/c.txt", "a/b/c.txt", 2, 2)
    assert (got["success"], got["created"]) == (True, True)
    again = await desk.call("write_file", path="a/b/c.txt", content="v")
    assert again["created"] is False


async def test_bug_13_empty_content_is_written(desk: Desk) -> None:
    """An empty file is a file."""
    got = await desk.call("write_file", path="empty", content="")
    assert got["size"] == 0
    assert (desk.root / "empty").read_bytes() == b""
    assert (await desk.call("read_file", path="empty"))["content"] == ""


async def test_bug_13_an_empty_directory_is_an_empty_list(desk: Desk) -> None:
    """Never null."""
    (desk.root / "nothing").mkdir()
    got = await desk.call("list_directory", path="nothing")
    assert (got["files"], got["count"], got["truncated"]) == ([], 0, False)


async def test_listing_gives_the_words_of_both_dialects(desk: Desk) -> None:
    """{path, type, modified, size} and {name, is_dir, size_bytes, last_modified}."""
    got = await desk.call("list_directory", dir_path="src")
    (entry,) = got["files"]
    assert (entry["path"], entry["type"], entry["size"]) == ("src/app.py", "file", 15)
    assert (entry["name"], entry["is_dir"], entry["size_bytes"]) == ("app.py", False, 15)
    assert entry["modified"] == entry["last_modified"]
    top = {one["path"]: one for one in (await desk.call("list_directory"))["files"]}
    assert top["src"]["is_dir"] is True
    assert "size" not in top["src"]
    assert "src/app.py" in top


async def test_bug_7_depth_five_lists_exactly_five_levels(desk: Desk) -> None:
    """Five, not six."""
    (desk.root / "1/2/3/4/5/6").mkdir(parents=True)
    paths = [one["path"] for one in (await desk.call("list_directory", path="."))["files"]]
    assert "1/2/3/4/5" in paths
    assert "1/2/3/4/5/6" not in paths
    flat = [one["path"] for one in (await desk.call("list_directory", recursive=False))["files"]]
    assert flat == ["1", "README.md", "proctor.toml", "src"]


async def test_bug_7_broken_links_and_loops_are_listed_not_followed(desk: Desk) -> None:
    """One bad name does not spoil the listing."""
    (desk.root / "broken").symlink_to("nowhere")
    (desk.root / "loop").symlink_to(".")
    os.mkfifo(desk.root / "pipe")
    found = {one["path"]: one for one in (await desk.call("list_directory"))["files"]}
    assert (found["broken"]["type"], found["broken"]["target"]) == ("symlink", "nowhere")
    assert found["pipe"]["type"] == "pipe"
    assert not any(path.startswith("loop/") for path in found)


async def test_listing_is_bounded_from_the_bottom(desk: Desk) -> None:
    """A cap cuts the deepest levels first, and machine-made directories do not fill it."""
    (desk.root / ".git" / "objects").mkdir(parents=True)
    for n in range(30):
        (desk.root / "src" / f"f{n:02}").write_text("")
        (desk.root / ".git" / f"g{n:02}").write_text("")
    got = await desk.call("list_directory", limit=10)
    paths = [one["path"] for one in got["files"]]
    assert got["truncated"] is True
    assert len(paths) == got["count"] == 10
    assert {".git", "README.md", "proctor.toml", "src"} <= set(paths)
    whole = await desk.call("list_directory")
    assert not any(one["path"].startswith(".git/") for one in whole["files"])
    assert any(
        one["path"] == ".git/objects" for one in (await desk.call("list_directory", path=".git"))["files"]
    )


async def test_unreadable_directory_is_a_line_with_a_problem(desk: Desk) -> None:
    """Everything else is listed all the same."""
    locked = desk.root / "locked"
    locked.mkdir()
    (locked / "x").write_text("")
    locked.chmod(0)
    try:
        found = {one["path"]: one for one in (await desk.call("list_directory"))["files"]}
    finally:
        locked.chmod(0o700)
    assert "README.md" in found
    # root may read it all the same
    assert ("problem" in found["locked"]) != ("locked/x" in found)


async def test_pipe_is_refused_at_once(desk: Desk) -> None:
    """Neither reading nor writing waits for somebody at the other end."""
    os.mkfifo(desk.root / "pipe")
    with pytest.raises(RefusedError):
        await desk.call("read_file", path="pipe")
    with pytest.raises(RefusedError):
        await desk.call("write_file", path="pipe", content="x")


async def test_link_is_not_replaced_by_a_write(desk: Desk) -> None:
    """What a link points at stays, and the link too."""
    target = desk.root.parent / "target"
    target.write_text("keep")
    (desk.root / "link").symlink_to(target)
    with pytest.raises(ProctorError):
        await desk.call("write_file", path="link", content="x")
    assert target.read_text() == "keep"
    assert (desk.root / "link").is_symlink()


@pytest.mark.parametrize("path", ["x" * 300, "a/" * 300 + "b", "nul\0", "\ud800", "README.md/x", "src"])
async def test_impossible_names_are_refused_with_a_sentence(desk: Desk, path: str) -> None:
    """No traceback, whatever the name."""
    with pytest.raises(ProctorError):
        await desk.call("read_file", path=path)
    with pytest.raises(ProctorError):
        await desk.call("write_file", path=path, content="x")


async def test_mock_touches_nothing_and_says_so(desk: Desk, tmp_path: Path) -> None:
    """A simulated write writes nothing; all three say what they are."""
    before = sorted(str(path) for path in desk.root.rglob("*"))
    wrote = await desk.call("write_file", adapter="mock", path="new", content="x")
    read = await desk.call("read_file", adapter="mock", path="/etc/shadow")
    listed = await desk.call("list_directory", adapter="mock")
    assert [one["simulated"] for one in (wrote, read, listed)] == [True] * 3
    assert "SIMULATED" in wrote["message"]
    assert "SIMULATED" in read["content"]
    assert sorted(str(path) for path in desk.root.rglob("*")) == before
