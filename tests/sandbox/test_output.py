"""What a command says comes back whole when short, and clearly cut when long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.sandbox.capture import Capture, Stream
from proctor.sandbox.spec import Level

Sh = Callable[..., Any]


@given(st.lists(st.binary(max_size=40)), st.integers(0, 50), st.integers(0, 50))
def test_a_capture_keeps_the_beginning_the_end_and_the_count(
    pieces: list[bytes], head: int, tail: int
) -> None:
    """However the bytes arrive, what is kept does not depend on it."""
    capture, at_once = Capture(head, tail), Capture(head, tail)
    for piece in pieces:
        capture.feed(piece)
    data = b"".join(pieces)
    at_once.feed(data)
    output = capture.output()
    assert output == at_once.output()
    assert output.total_bytes == len(data)
    if len(data) <= head + tail:
        assert output.text == data.decode("utf-8", "replace")
    else:
        assert output.truncated
        assert "truncated" in output.text


@given(st.text(max_size=400), st.integers(0, 60), st.integers(0, 60))
def test_cutting_never_splits_a_character(text: str, head: int, tail: int) -> None:
    """Valid text stays valid at both edges of the cut."""
    data = text.encode("utf-8", "replace")
    capture = Capture(head, tail)
    capture.feed(data)
    output = capture.output()
    whole = data.decode()
    assert whole.startswith(output.head)
    assert whole.endswith(output.tail)
    kept = len(output.head.encode()) + len(output.tail.encode())
    assert kept + output.dropped_bytes == len(data)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 100))
def test_a_live_stream_says_once_that_it_stops(pieces: list[bytes], cap: int) -> None:
    """A live reader gets at most the cap, then one notice."""
    stream = Stream(cap)
    shown = "".join(stream.text(piece) for piece in pieces) + stream.text(b"", final=True)
    total = sum(map(len, pieces))
    assert shown.count("not shown live") == (1 if total >= cap else 0)
    if total < cap:
        assert shown == b"".join(pieces).decode("utf-8", "replace")


async def test_both_streams_and_the_code_come_back(sh: Sh, level: Level) -> None:
    """Output, errors and exit code are kept apart."""
    result = await sh("echo out; echo err >&2; exit 7", level)
    assert (result.stdout.text, result.stderr.text, result.exit_code) == ("out\n", "err\n", 7)
    assert not result.ok


async def test_a_signal_is_told_as_the_shell_does(sh: Sh, level: Level) -> None:
    """A command that kills itself gives 128 + n."""
    assert (await sh("kill -SEGV $$", level)).exit_code == 139


async def test_a_huge_line_comes_back_bounded(sh: Sh, level: Level) -> None:
    """A line of 5 MB without an end is no problem."""
    result = await sh("head -c 5000000 /dev/zero | tr '\\0' y", level)
    assert result.stdout.total_bytes == 5_000_000
    assert result.stdout.text.startswith("yyy")
    assert result.stdout.text.endswith("yyy")


async def test_what_is_not_utf8_is_replaced(sh: Sh, level: Level) -> None:
    """Broken bytes never break the run."""
    result = await sh(r"printf 'a\xff\xfeb\x00c'", level)
    assert result.stdout.text == "a\ufffd\ufffdb\x00c"


async def test_closed_pipes_are_no_problem(sh: Sh, level: Level) -> None:
    """A command may close all it was given and still end well."""
    result = await sh("exec >&- 2>&- <&-; sleep 0.1; exit 4", level)
    assert result.exit_code == 4


async def test_a_command_may_delete_its_own_directory(sh: Sh, level: Level) -> None:
    """Losing the ground under its feet is the command's own affair."""
    result = await sh("mkdir d; cd d; rmdir ../d; echo alive; pwd -P; exit 5", level)
    assert result.exit_code == 5
    assert "alive" in result.stdout.text


async def test_standard_input_is_given_or_empty(sh: Sh, level: Level) -> None:
    """Without input a command reads the end at once and never waits for a person."""
    assert (await sh("cat", level)).stdout.text == ""
    assert (await sh("cat", level, stdin=b"given\n" * 50_000)).stdout.total_bytes == 300_000


async def test_output_is_shown_while_it_comes(sh: Sh, level: Level) -> None:
    """The callback hears each stream by name, whole characters only."""
    heard: list[tuple[str, str]] = []
    command = r"printf '\xc3'; sleep 0.1; printf '\xa9'; echo oops >&2"
    await sh(command, level, on_output=lambda stream, text: heard.append((stream, text)))
    assert "".join(text for stream, text in heard if stream == "stdout") == "é"
    assert ("stderr", "oops\n") in heard


@pytest.mark.parametrize("size", [200, 100_000])
async def test_long_commands_pass_whole(sh: Sh, level: Level, size: int) -> None:
    """A long line of words reaches the program unchanged."""
    result = await sh(("/bin/echo", "x" * size), level)
    assert result.stdout.total_bytes == size + 1
