"""Standards are off until they are set, say file, line and cure, and Proctor keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.config import RawTable, load_settings
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.followup import render_fix_file
from proctor.proof.standards import RULES, StandardsSettings, check_text, check_tree, standards_settings
from proctor.proof.standards_report import fix_file_of, sarif_of
from proctor.protocol.errors import ConfigError, NotFoundError
from tests.layers.tree import ROOT

ALL = StandardsSettings(max_lines=500, header=True, usage="main", type_hints=True, loguru=True)
GOOD = '''"""Adds numbers."""

from loguru import logger


def add(first: int, second: int) -> int:
    """Add."""
    return first + second


if __name__ == "__main__":
    logger.info(add(1, 2))
'''


def rules(text: str, settings: StandardsSettings = ALL, path: str = "a.py") -> list[tuple[str, int]]:
    """The rules a text breaks, with lines."""
    return [(one.rule, one.line) for one in check_text(path, text, settings)]


def test_nothing_is_checked_until_it_is_set() -> None:
    """Other people's repositories have their own standards."""
    assert not StandardsSettings().on
    assert rules("import logging\nprint(1)\n" * 300, StandardsSettings()) == []


def test_a_good_file_keeps_all() -> None:
    """Every rule can be kept at once."""
    assert rules(GOOD) == []


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (GOOD + "# more\n" * 489, ("max_lines", 501)),
        (GOOD.replace('"""Adds numbers."""\n', ""), ("header", 1)),
        (GOOD.replace("__name__", "other"), ("usage", 1)),
        (GOOD.replace("first: int", "first"), ("type_hints", 6)),
        (GOOD.replace(" -> int", ""), ("type_hints", 6)),
        (GOOD.replace("from loguru import logger", "import logging as logger"), ("loguru", 3)),
        (GOOD.replace("logger.info", "print"), ("loguru", 12)),
        ("def x(:\n", ("syntax", 1)),
    ],
)
def test_each_rule_names_its_line(text: str, broken: tuple[str, int]) -> None:
    """The five standards of the contract, and a file that cannot be read."""
    assert rules(text) == [broken]


def test_rules_can_be_set_more_finely() -> None:
    """Words in the header, places that may print, usage only where a file can be run, other languages."""
    words = StandardsSettings(header=True, header_words=("Example Input:",))
    assert rules(GOOD, words) == [("header", 1)]
    assert rules(GOOD.replace("numbers.", "numbers.\n\nExample Input: 1"), words) == []
    assert rules("print(1)\n", StandardsSettings(loguru=True, print_allowed=("cli/**",)), "cli/a.py") == []
    runnable = StandardsSettings(usage="runnable")
    assert rules("x = 1\n", runnable) == []
    assert rules('"""Adds."""\nif __name__ == "__main__":\n    go()\n', runnable) == [("usage", 1)]
    assert rules('"""Usage: python a.py."""\nif __name__ == "__main__":\n    go()\n', runnable) == []
    assert rules("let x = 1;\n", ALL, "a.js") == [("header", 1)]
    assert rules("#!/bin/sh\n# Says hello.\necho hello\n", ALL, "a.sh") == []
    assert rules("", ALL) == []


def test_wrong_settings_are_named_with_their_line() -> None:
    """A misspelt or mistyped setting is refused."""
    sources: dict[tuple[str | int, ...], str] = {
        ("max_lines",): "proctor.toml:2",
        ("max_line",): "proctor.toml:3",
    }
    with pytest.raises(ConfigError, match=r"proctor.toml:3: 'max_line' is not a setting"):
        standards_settings(RawTable({"max_line": 3}, sources))
    with pytest.raises(ConfigError, match=r"proctor.toml:2: standards.max_lines must be a whole number"):
        standards_settings(RawTable({"max_lines": True}, sources))
    with pytest.raises(ConfigError, match="one of off, runnable, main"):
        standards_settings(RawTable({"usage": "x"}))


def test_trees_are_walked_by_patterns_and_paths(tmp_path: Path) -> None:
    """Only what is meant is read; links and unknown paths are not followed."""
    (tmp_path / "src").mkdir()
    (tmp_path / "gen").mkdir()
    for name in ("src/a.py", "src/b.py", "gen/c.py", "notes.txt"):
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "src" / "link.py").symlink_to("/etc/passwd")
    settings = StandardsSettings(header=True, exclude=("gen/",))
    assert [one.file for one in check_tree(tmp_path, settings)] == ["src/a.py", "src/b.py"]
    assert [one.file for one in check_tree(tmp_path, settings, ["./src/b.py"])] == ["src/b.py"]
    with pytest.raises(NotFoundError):
        check_tree(tmp_path, settings, ["nowhere"])


def test_violations_become_sarif_and_a_fix_file() -> None:
    """Both name rule, file and line; the fix file is one the contract takes."""
    found = check_text("src/a.py", "print(1)\n", ALL)
    sarif = sarif_of(found)
    (run,) = sarif["runs"]
    assert sarif["version"] == "2.1.0"
    assert (
        {one["ruleId"] for one in run["results"]}
        <= {one["id"] for one in run["tool"]["driver"]["rules"]}
        == set(RULES)
    )
    assert run["results"][-1]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    content = fix_file_of(
        found, review_id="001_code_standards", component="code_standards", date="2025-06-26"
    )
    document = parse_fix_file(render_fix_file(content))
    assert [fix.file for fix in document.fixes] == ["src/a.py"] * len(found)


def test_proctor_keeps_its_own_standards() -> None:
    """The set in our proctor.toml holds for our own tree."""
    settings = standards_settings(load_settings(ROOT, {"HOME": str(ROOT)}).standards)
    assert settings.on
    assert [str(one) for one in check_tree(ROOT, settings)] == []
