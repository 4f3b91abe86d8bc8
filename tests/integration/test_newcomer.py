"""What a newcomer types: the commands of the quickstart, in a fresh HOME and a repository of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.layers.tree import ROOT
from tests.support.console import console_blocks, reader, run_block

FILES = {
    "pyproject.toml": '[project]\nname = "calc"\nversion = "0"\n',
    "calc.py": "def add(a, b):\n    return a + b\n",
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
}


@pytest.mark.slow
def test_every_command_of_the_quickstart_works(tmp_path: Path) -> None:
    """In order, in one HOME; what the page shows comes."""
    project = tmp_path / "my-project"
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)
    env = reader(tmp_path)
    who = ["-c", "user.name=N", "-c", "user.email=n@localhost"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-qm", "Begin"]):
        subprocess.run(["git", *words], cwd=project, env=env, check=True, timeout=60)
    blocks = console_blocks(ROOT / "docs" / "quickstart.md")
    for block in blocks:
        run_block(block, tmp_path, env)
    assert len(blocks) == 2
    assert not (project / "note.txt").exists()
