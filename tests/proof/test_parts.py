"""The small parts of a proof: chance, comparable outputs, canaries, selections, lent dependencies, coverage, documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.canary import broken
from proctor.proof.chance import chance_in
from proctor.proof.cover import Coverage, cover_environment, prepare_tracer, read_coverage
from proctor.proof.dependencies import borrowed, dependency_facts
from proctor.proof.plain import digest_text, head_of, plain_text
from proctor.proof.report import as_junit, as_markdown
from proctor.proof.screen import as_text
from proctor.proof.selection import select
from proctor.proof.subject import judges_in
from proctor.proof.surroundings import Surroundings, with_services


@pytest.mark.parametrize(
    "text",
    ["random.random()", "Math.random()", "$((RANDOM % 2))", "time.sleep(1)", "Date.now()", "uuid4()",
     "threading.Thread()", "echo $$"],
)  # fmt: skip
def test_what_lets_chance_in_is_seen(text: str) -> None:
    """Each source of chance is found, and plain code is not suspected."""
    assert chance_in(["x = 1", text])
    assert not chance_in(["def double(n):\n    return n + n\n", "echo $1"])


def test_equal_runs_have_equal_digests() -> None:
    """Times, addresses and temporary names do not count; everything else does."""
    one = "2 passed in 0.03s at 0x7f00aa11bb22 2027-01-01T10:00:00Z /tmp/pytest-1/x duration_ms 1.5"
    two = "2 passed in 1.20s at 0x7f00aa11bb99 2027-02-01T11:00:00Z /tmp/pytest-9/x duration_ms 22.1"
    assert digest_text(one) == digest_text(two)
    assert digest_text(one) != digest_text(one.replace("2 passed", "3 passed"))


@given(st.text())
def test_plain_text_is_stable_and_heads_are_bounded(text: str) -> None:
    """Making a text comparable twice changes nothing more that matters, and no head grows beyond its cap."""
    assert len(head_of(text * 50, 1000)) <= 1100
    assert isinstance(plain_text(text), str)


@pytest.mark.parametrize(
    ("name", "text", "run"),
    [
        ("a.py", "x = 1\n", [sys.executable]),
        ("a.js", "const x = 1;\n", ["node"]),
        ("a.sh", "#!/bin/bash\necho fine\n", ["bash"]),
        ("tool", "#!/bin/sh\necho fine\n", ["sh"]),
    ],
)
def test_a_canary_stops_whoever_reads_the_file(tmp_path: Path, name: str, text: str, run: list[str]) -> None:
    """The file works before and fails after, at its first line."""
    place = tmp_path / name
    place.write_text(text)
    assert subprocess.run([*run, str(place)], capture_output=True).returncode == 0
    place.write_bytes(broken(name, text.encode()))
    done = subprocess.run([*run, str(place)], capture_output=True)
    assert done.returncode != 0
    assert b"fine" not in done.stdout


@pytest.mark.parametrize(
    ("command", "chosen"),
    [
        ("pytest -q", "pytest -q tests/test_a.py"),
        ("uv run pytest", "uv run pytest tests/test_a.py"),
        (".venv/bin/python -m pytest", ".venv/bin/python -m pytest tests/test_a.py"),
        ("pytest tests", None),
        ("pytest && ruff check", None),
        ("make test", None),
        ("node --test", None),
    ],
)
def test_only_a_runner_that_can_tell_is_narrowed(command: str, chosen: str | None) -> None:
    """Known runners get the files; everything else runs whole."""
    assert select(command, ["tests/test_a.py", "tests/conftest.py"]) == chosen


def test_only_scripts_that_judge_are_taken_from_the_base() -> None:
    """The code that is tried is never mistaken for its judge."""
    paths = ["verify.sh", "Makefile", "calc.py", "tests/test_all.sh", "scripts/check.py"]
    assert judges_in(["bash verify.sh", "make test"], paths) == ("verify.sh", "Makefile")
    assert judges_in(["python calc.py --self-test", "bash tests/test_all.sh"], paths) == ()
    assert judges_in(["python /repo/scripts/check.py"], paths) == ("scripts/check.py",)


def test_dependencies_are_lent_by_what_decides_them(tmp_path: Path) -> None:
    """A version number is not a dependency, a new package is; tracked directories are never lent."""
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "package.json").write_text('{"version": "1.0.0", "dependencies": {"a": "1"}}')
    same = {"package.json": b'{"version": "2.0.0", "dependencies": {"a": "1"}}'}
    other = {"package.json": b'{"version": "1.0.0", "dependencies": {"a": "2"}}'}
    assert borrowed(tmp_path, same).directories == ("node_modules",)
    assert borrowed(tmp_path, other).refused
    assert not borrowed(tmp_path, same, frozenset({"node_modules"})).directories
    assert dependency_facts("pyproject.toml", b'[project]\nversion="1"\n') == dependency_facts(
        "pyproject.toml", b'[project]\nversion="2"\n'
    )
    assert dependency_facts("uv.lock", b"a\r\n") == dependency_facts("uv.lock", b"a\n")


def test_executed_lines_are_told_from_missed_ones(tmp_path: Path) -> None:
    """Python by our tracer and JavaScript by V8: the branch not taken is missed, comments do not count."""
    tracer = prepare_tracer(tmp_path / "cache")
    (tmp_path / "a.py").write_text(
        "# words\nimport sys\nif len(sys.argv) > 5:\n    print('never')\nprint('always')\n"
    )
    (tmp_path / "b.js").write_text(
        "// words\nfunction f(n) {\n  if (n > 5) {\n    return 1;\n  }\n  return 2;\n}\nf(1);\n"
    )
    env = cover_environment(tmp_path, ["a.py", "b.js"], str(tracer), "", trace=True)
    out = tmp_path / "out"
    out.mkdir()
    filled = {name: value.replace("{out}", str(out)) for name, value in env.items()}
    base = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    for words in ([sys.executable, "a.py"], ["node", "b.js"]):
        subprocess.run(words, cwd=tmp_path, env={**base, **filled}, check=True, capture_output=True)
    files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    contents = {
        name: (tmp_path / name).read_bytes()
        for name in ("a.py", "b.js", "c.rb")
        if (tmp_path / name).exists()
    }
    changed = {"a.py": range(1, 6), "b.js": range(1, 9), "c.rb": [1]}
    found = read_coverage(files, changed, contents, str(tmp_path))
    assert found.missed == {"a.py": (4,), "b.js": (4,)}
    assert found.unknown == ("c.rb",)
    assert not found.complete
    assert Coverage({"a": (1,)}).complete


def test_forged_coverage_and_reports_do_no_harm() -> None:
    """What a command writes itself may be anything."""
    forged = {
        "python-lines": b"\xff\nx\ty\n99999999999\t/r/a.py\n",
        "v8/a": b"{",
        "v8/b": b'{"result": [{"url": 3}]}',
        "bash-lines": b"+",
    }
    found = read_coverage(
        forged, {"a.py": [1], "b.js": [1], "c.sh": [1]}, {"a.py": b"(", "b.js": b"x", "c.sh": b"ls"}, "/r"
    )
    assert not found.complete


def test_the_environments_digest_keeps_machines_apart_only_where_it_matters() -> None:
    """Home and terminal do not count; variables, set-up and lent directories do."""
    one = Surroundings(env={"HOME": "/a", "X": "1"})
    assert one.digest() == Surroundings(env={"HOME": "/b", "X": "1"}).digest()
    assert one.digest() != Surroundings(env={"HOME": "/a", "X": "2"}).digest()
    assert one.digest() != one.digest((".venv",))
    assert with_services("x", {}) == "x"


def test_reports_survive_hostile_words() -> None:
    """Markup, control characters and pipes in reasons stay text."""
    receipt: dict[str, Any] = {
        "verdict": "refuted", "reasons": ["<script>|\x00 ``` ]]>"], "kind": "fix", "kind_reason": "x", "legs": [],
        "findings": [], "notes": [], "coverage": None, "sandbox": {"rerooted": False}, "change": {"label": "a|<b>"},
        "recorded": {"seconds": {}},
    }  # fmt: skip
    from xml.etree import ElementTree as Xml

    parsed = Xml.fromstring(as_junit([receipt]))
    assert parsed.get("failures") == "1"
    assert "<script>" not in as_markdown([receipt]).split("<details>")[0]
    assert "refuted" in as_text(receipt)
    assert "\x00" not in as_text(receipt)
