"""Directories placed over other paths: the command sees them there, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.sandbox.spec import Level, Placed, Spec, SpecError
from tests.sandbox.conftest import need


async def test_a_checkout_stands_at_the_repositorys_own_path(place: Path, sh: Callable[..., Any]) -> None:
    """Reading and writing under the repository's path reaches the checkout, and the repository stays."""
    need(Level.BWRAP)
    other, shared = place / "checkout", place / "shared"
    for folder in (other, shared):
        folder.mkdir()
    (other / "who").write_text("checkout")
    (place / "ws" / "who").write_text("repository")
    (shared / "lib").write_text("dependency")
    ws = str(place / "ws")
    placed = (Placed(str(other), ws, writable=True), Placed(str(shared), f"{ws}/deps"))
    line = f"cat {ws}/who {ws}/deps/lib; echo mine > {ws}/new; echo bad > {ws}/deps/lib; ls {other}"
    result = await sh(line, Level.BWRAP, placed=placed)
    assert result.stdout.text == "checkoutdependency"
    assert "Read-only" in result.stderr.text
    assert (other / "new").read_text() == "mine\n"
    assert not (place / "ws" / "new").exists()
    assert (shared / "lib").read_text() == "dependency"


def test_placing_is_refused_where_nothing_can_be_placed(tmp_path: Path) -> None:
    """Below level 3 the command would see something else than it was told."""
    placed = (Placed(str(tmp_path), str(tmp_path)),)
    with pytest.raises(SpecError):
        Spec(("true",), str(tmp_path), placed=placed)
    with pytest.raises(SpecError):
        Spec(("true",), str(tmp_path), placed=placed, level=Level.LANDLOCK)
