"""The demonstration holds what it tells, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_demo_survives_its_own_kill_and_leaves_nothing(tmp_path: Path) -> None:
    """Exit code 0, a summary on the last line in which nothing was lost or repeated, and an empty TMPDIR and HOME."""
    tmp, home = tmp_path / "tmp", tmp_path / "home"
    tmp.mkdir()
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "proctor", "demo", "--json"],
        capture_output=True,
        text=True,
        timeout=110,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(tmp)},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["ok"]
    assert (facts["completed"], facts["effects_lost"], facts["effects_repeated"]) == (4, 0, 0)
    assert facts["takeovers"] >= 1
    assert facts["trace_verified"]
    assert facts["simulated"]
    assert list(tmp.iterdir()) == []
    assert list(home.iterdir()) == []
