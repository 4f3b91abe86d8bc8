"""The settings' page and the code say the same."""

from __future__ import annotations

from pathlib import Path

from proctor.config import OPTIONS, render_settings_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "settings.md"


def test_the_settings_page_is_current() -> None:
    """docs/reference/settings.md equals render_settings_page(); `python3 dev.py docs` writes it anew."""
    assert PAGE.read_text(encoding="utf-8") == render_settings_page()


def test_every_option_is_described_and_its_variable_is_unique() -> None:
    """No setting without a meaning, no variable for two settings."""
    variables = [name for option in OPTIONS for name in option.variables]
    assert all(option.doc and option.word for option in OPTIONS)
    assert len(variables) == len(set(variables))
