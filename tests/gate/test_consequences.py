"""What a person is shown before they answer: true, bounded, and worked out in moments."""

from __future__ import annotations

import random
from pathlib import Path

from proctor.gate.consequences import MAX_COMPARED, MAX_LINES, consequences_of
from proctor.protocol.tools import Writes
from proctor.tools.files import FILE_TOOLS, WriteIn

WRITE = next(tool for tool in FILE_TOOLS if tool.name == "write_file")


def _shown(root: Path, content: str) -> tuple[str, ...]:
    touches = [Writes("a.txt", content.encode())]
    return consequences_of(WRITE, WriteIn(path="a.txt", content=content), touches, workspace=root).lines


def test_a_change_is_shown_line_by_line(tmp_path: Path) -> None:
    """The person sees what goes and what comes."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    lines = _shown(tmp_path, "one\nthree\n")
    assert {"-two", "+three"} <= set(lines)
    assert lines[0] == "changes a.txt (8 to 10 bytes)"


def test_many_lines_that_look_alike_are_not_compared(tmp_path: Path) -> None:
    """It would take minutes, and nobody would read it: sizes are told, and that no difference is shown."""
    chance = random.Random(1)
    lines = [f"{chance.randrange(150)}\n" for _ in range(200_000)]
    (tmp_path / "a.txt").write_text("".join(lines))
    shown = _shown(tmp_path, "".join(reversed(lines)))
    assert f"(more than {MAX_COMPARED} lines: no difference shown)" in shown
    assert len(shown) <= MAX_LINES
