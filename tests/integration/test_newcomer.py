"""What a newcomer types: quickstart and how-to pages, in a fresh HOME and a repository of their own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.layers.tree import ROOT
from tests.support.console import console_blocks, reader, run_block

FILES = {
    "pyproject.toml": '[project]\nname = "calc"\nversion = "0"\n',
    "calc.py": "def add(a, b):\n    return a + b\n",
    "README.md": "# A project\n",
    "app.py": "VALUE = 1\n",
    "new_app.py": "VALUE = 2\n",
    "src/one/two.py": "",
    "backend/test_it.py": "def test_it():\n    assert True\n",
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A reader's repository, in a HOME of its own."""
    place = tmp_path / "my-project"
    for name, text in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    env = reader(tmp_path)
    who = ["-c", "user.name=N", "-c", "user.email=n@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=place, env=env, check=True, timeout=60)
    return place


@pytest.mark.slow
def test_every_command_of_the_quickstart_works(project: Path) -> None:
    """In order, in one HOME; what the page shows comes."""
    blocks = console_blocks(ROOT / "docs" / "quickstart.md")
    for block in blocks:
        run_block(block, project.parent, reader(project.parent))
    assert len(blocks) == 2
    assert not (project / "note.txt").exists()


# Lines of the how-to pages that a test does not type, and why.
NOT_TYPED = {
    "proctor service install": "it would write a unit of the user's own systemd",
    "proctor service uninstall": "the same",
    "proctor backup restore project_20261115_120000": "a name that only the page has",
    "proctor tools call execute_command command='curl -sS https://example.org/' hosts='[\"example.org\"]'": (
        "it needs the internet; tests/sandbox/test_hosts.py does the same with a host of its own"
    ),
    "proctor rules edit 4 --backend-pattern '…'": "the number depends on the rules there are",
}
ENDS = {"proctor tools call execute_command command='git push' --as-agent forge --profile careful": "3"}
PAGES = ("tools.md", "look-after.md")


def _typed(page: str) -> list[str]:
    text = (ROOT / "docs" / "howto" / page).read_text()
    lines = re.findall(r"^    (proctor\b.*)$", text, re.MULTILINE)
    return [re.sub(r"\s+# .*$", "", line) for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_the_page_does_what_it_says(page: str, project: Path) -> None:
    """In order, in one HOME; each ends as the page says, which is with 0 where it says nothing."""
    env = reader(project.parent)
    lines = [line for line in _typed(page) if line not in NOT_TYPED]
    told = [f"{{ {line}; }} > ../out 2>&1; echo $?; cat ../out >> ../all" for line in lines]
    try:
        done = subprocess.run(
            ["bash", "-c", "\n".join(told)], cwd=project, env=env, capture_output=True, text=True, timeout=280
        )
    finally:
        subprocess.run(["bash", "-c", "proctor supervisor stop"], cwd=project, env=env, timeout=60)
    ended = list(zip(lines, done.stdout.split(), strict=True))
    said = (project.parent / "all").read_text()
    assert ended == [(line, ENDS.get(line, "0")) for line in lines], said


def test_lines_that_are_not_typed_are_on_the_pages() -> None:
    """An exception for a line that is gone would hide the next one."""
    assert set(NOT_TYPED) | set(ENDS) <= {line for page in PAGES for line in _typed(page)}
