"""Files and changes are told by kind, and each kind has its word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.change import change_of
from proctor.proof.kinds import (
    LADDER,
    FileKind,
    Kind,
    Rung,
    file_kind,
    guess_kind,
    is_check_file,
    is_test_file,
)
from proctor.proof.symbols import added_symbols

OLD = "def total(items):\n    result = 0\n    for item in items:\n        result = result + item\n    return result\n"
RENAMED = OLD.replace("result", "amount")
FIXED = OLD.replace("result = 0", "result = 1")
FEATURE = OLD + "\n\ndef mean(items):\n    return total(items) / len(items)\n"
TEST = (
    "tests/test_a.py",
    ("def test_a():\n    assert total([1]) == 1\n", "def test_a():\n    assert total([1]) == 2\n"),
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("tests/test_a.py", FileKind.TEST), ("pkg/a_test.go", FileKind.TEST), ("src/a.test.tsx", FileKind.TEST),
        ("src/__tests__/a.js", FileKind.TEST), ("spec/a_spec.rb", FileKind.TEST), ("a.bats", FileKind.TEST),
        ("src/test/java/ATest.java", FileKind.TEST), ("tests/data.json", FileKind.TEST),
        ("src/contest.py", FileKind.SOURCE),
        ("src/testing.py", FileKind.SOURCE), ("latest.py", FileKind.SOURCE), ("tests/README.md", FileKind.DOCS),
        ("tests/conftest.py", FileKind.CHECK), (".github/workflows/ci.yml", FileKind.CHECK),
        ("jest.config.js", FileKind.CHECK),
        ("docs/a.md", FileKind.DOCS), ("LICENSE", FileKind.DOCS), ("a.css", FileKind.UI), ("logo.svg", FileKind.UI),
        ("pyproject.toml", FileKind.CONFIG), ("src/a.rs", FileKind.SOURCE), ("run.sh", FileKind.SOURCE),
        ("data.bin", FileKind.OTHER),
    ],
)  # fmt: skip
def test_files_are_told_by_kind(path: str, kind: FileKind) -> None:
    """By the names that runners and people use in each ecosystem."""
    assert file_kind(path) is kind


def test_files_that_hold_checks_among_other_things_are_known() -> None:
    """package.json is no check as a whole, but may hold one."""
    assert not is_check_file("package.json")
    assert is_check_file("package.json", partly=True)


@pytest.mark.parametrize(
    ("path", "before", "after", "comments"),
    [
        ("a.py", "# a\nx = 1\n", "# b\nx = 1\n", True),
        ("a.py", 'def f():\n    """a"""\n', 'def f():\n    """b"""\n', True),
        ("a.py", '"""a"""\n', '"""a"""; exit()\n', False),
        ("a.py", "f(\n    *items[1:],\n)\n", "f(\n    *items,\n)\n", False),
        ("a.js", "// a\nf();\n", "// b\nf();\n", True),
        ("a.js", "/**\n * a\n */\nf();\n", "/**\n * b\n */\nf();\n", True),
        ("a.js", "let x = a\n  * 2;\n", "let x = a\n  * 3;\n", False),
        ("a.js", "/* a */ f();\n", "/* a */ g();\n", False),
        ("a.js", "class A {\n  #x = 1;\n}\n", "class A {\n  #x = 2;\n}\n", False),
        ("a.c", "#define MAX 10\n", "#define MAX 99\n", False),
        ("a.c", "*p = 1;\n", "*p = 2;\n", False),
        ("src/lib.rs", "#[test]\nfn a() {}\n", "fn a() {}\n", False),
        ("src/lib.rs", "/// ```\n/// assert!(a());\n/// ```\n", "/// a\n", False),
        ("src/lib.rs", "// a\nfn a() {}\n", "// b\nfn a() {}\n", True),
        ("a.go", "//go:build linux\npackage a\n", "//go:build windows\npackage a\n", False),
        ("a.sh", "#!/bin/bash\nls\n", "#!/bin/dash\nls\n", False),
    ],
)
def test_only_comments_of_the_language_are_documents(
    path: str, before: str, after: str, comments: bool
) -> None:
    """What looks like a comment of one language is code of another, and code needs its proof."""
    assert (guess_kind(change_of({path: (before, after)}).diff).kind is Kind.DOCS) is comments


@pytest.mark.parametrize(
    ("texts", "message", "kind"),
    [
        ({"README.md": ("a\n", "b\n")}, "", Kind.DOCS),
        ({"README.md": ("a\n", "b\n"), "x.toml": (None, "a = 1\n")}, "", Kind.DOCS),
        ({"a.py": ("# a\nx = 1\n", "# b\nx = 1\n")}, "", Kind.DOCS),
        ({"a.css": ("a {}\n", "b {}\n"), "b.html": ("a\n", "b\n")}, "", Kind.UI),
        ({"a.py": (OLD, RENAMED)}, "", Kind.REFACTOR),
        ({"a.py": (OLD, FIXED)}, "", Kind.FIX),
        ({"a.py": (OLD, FIXED), TEST[0]: TEST[1]}, "", Kind.FIX),
        ({"a.py": (OLD, FEATURE), "tests/test_b.py": (None, "def test_b(): ...\n")}, "", Kind.FEATURE),
        ({"a.py": (OLD, FEATURE)}, "", Kind.FEATURE),
        ({"a.py": (OLD, FEATURE)}, "fix(core): mean", Kind.FIX),
        ({"README.md": ("a\n", "b\n")}, "fix: words", Kind.DOCS),
        (dict([TEST]), "", Kind.FIX),
        ({"Main.hs": ("main = a\n", "main = b\n")}, "", Kind.REFACTOR),
        ({"bin/deploy": ("#!/bin/sh\nls 1\n", "#!/bin/sh\nls 2\n")}, "", Kind.FIX),
        ({"README.md": ("a\n", "b\n"), "a.sql": ("select 1\n", "select 2\n")}, "", Kind.FIX),
        ({}, "", Kind.DOCS),
    ],
)  # fmt: skip
def test_the_kind_of_a_change_is_guessed(
    texts: dict[str, tuple[str | None, str | None]], message: str, kind: Kind
) -> None:
    """From files and lines first, from the message where those do not decide; always with a reason."""
    guess = guess_kind(change_of(texts).diff, message)
    assert guess.kind is kind
    assert guess.reason


def test_a_moved_file_is_a_refactoring() -> None:
    """Nothing but the place changed."""
    assert guess_kind(change_of({"b.py": (OLD, OLD)}, {"b.py": "a.py"}).diff).kind is Kind.REFACTOR


def test_only_fixes_and_features_can_be_proven() -> None:
    """The ladder never stretches a word."""
    assert {kind for kind, rung in LADDER.items() if rung is Rung.PROVEN} == {Kind.FIX, Kind.FEATURE}
    assert set(LADDER) == set(Kind)


def test_names_a_change_adds_are_known() -> None:
    """Functions, classes, parameters, attributes and modules in each language."""
    python = change_of(
        {
            "src/pkg/a.py": (OLD, FEATURE + "\n\nclass New:\n    def go(self, speed): self.x = speed\n"),
            "src/pkg/fresh.py": (None, "y = 1\n"),
        }
    )
    assert {"mean", "New", "go", "speed", "x", "pkg.fresh", "fresh", "y"} <= added_symbols(python)
    assert not {"total", "items", "result"} & added_symbols(python)
    script = change_of(
        {"a.js": ("function f(a) {}\n", "function f(a) {}\nexport const g = () => 1;\nclass H {}\n")}
    )
    assert {"g", "H"} <= added_symbols(script)
    assert "f" not in added_symbols(script)
    assert "mul" in added_symbols(
        change_of({"a.rs": ("", "pub fn mul(a: i32) {}\n"), "b.sh": ("", "mul() { :; }\n")})
    )


@given(st.text(max_size=30))
def test_any_path_has_a_kind(path: str) -> None:
    """No name is too odd, and a test file is always of the tests or a check."""
    assert not is_test_file(path) or file_kind(path) in {FileKind.TEST, FileKind.CHECK}
