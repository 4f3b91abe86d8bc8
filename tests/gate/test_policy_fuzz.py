"""The policy against real bash: what it allows runs with dangerous programs as stubs, and no stub may be reached."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from proctor.gate.policy import Effect, judge_command
from tests.gate.shell_grammar import PROGRAMS, Grammar

TOOLS = (
    "awk basename bash cat cp cut date dirname env find grep head ls mkdir nice nohup pwd sed seq setsid sh sleep sort "
    "stdbuf tail tee test timeout touch tr true uniq wc xargs"
)
DRIVER = r"""
i=0
while IFS= read -r -d '' line; do
  rm_dir=$WORK/$((i % 50)); [ -d "$rm_dir" ] || { mkdir -p "$rm_dir/d"; echo a > "$rm_dir/f"; echo a > "$rm_dir/x"; }
  cd "$rm_dir" && timeout 3 bash -c "$line" < /dev/null > /dev/null 2>&1
  if [ -s "$MARK" ]; then echo "$i"; : > "$MARK"; fi
  i=$((i + 1))
done < "$LINES"
sleep 0.2
[ -s "$MARK" ] && echo late
echo done "$i"
"""


def run_in_bash(lines: Sequence[str], folder: Path) -> set[str]:
    """Run the lines in a throw-away directory; give the numbers of those that reached a stub."""
    bins, work, mark = folder / "bin", folder / "work", folder / "mark"
    for place in (bins, work):
        place.mkdir()
    for tool in TOOLS.split():
        found = shutil.which(tool)
        if found:
            (bins / tool).symlink_to(found)
    for name in PROGRAMS:
        (bins / name).write_text(f"#!/bin/sh\necho {name} >> {mark}\n")
        (bins / name).chmod(0o755)
    mark.touch()
    (folder / "lines").write_bytes(b"".join(line.encode() + b"\0" for line in lines))
    settings = {
        "PATH": str(bins),
        "WORK": str(work),
        "MARK": str(mark),
        "LINES": str(folder / "lines"),
        "HOME": str(work),
    }
    bash = shutil.which("bash")
    assert bash is not None
    command = [*_confined(folder), bash, "--norc", "-c", DRIVER]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=110, cwd=work)
    answers = done.stdout.split("\n")
    assert f"done {len(lines)}" in answers, done.stderr[-2000:]
    return {answer for answer in answers if answer and not answer.startswith("done")}


def _confined(folder: Path) -> list[str]:
    """Inside bwrap where it works; otherwise the empty directory and the PATH of stubs must do."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return []
    base = [
        bwrap,
        "--die-with-parent",
        "--new-session",
        "--unshare-pid",
        "--unshare-net",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
    ]
    base += ["--proc", "/proc", "--bind", str(folder), str(folder)]
    works = subprocess.run([*base, "true"], capture_output=True).returncode == 0
    return base if works else []


def find_bypasses(seed: int, count: int, folder: Path) -> tuple[list[str], int]:
    """Generate lines, run those the policy allows, give those that reached a stub and how many were run."""
    grammar = Grammar(seed)
    lines = [line for line in (grammar.line() for _ in range(count)) if "\0" not in line]
    allowed = [line for line in lines if judge_command(line).effect is Effect.ALLOW]
    hits = run_in_bash(allowed, folder)
    assert "late" not in hits
    return [allowed[int(hit)] for hit in sorted(hits)], len(allowed)


def test_the_oracle_sees_dangerous_commands(tmp_path: Path) -> None:
    """The grammar's disguises really run the dangerous program, so that finding none among the allowed means something."""
    templates = Grammar(0).templates()
    hits = run_in_bash(templates, tmp_path)
    assert len(hits) > 0.6 * len(templates)


def test_every_disguise_is_kept_from_running_unasked() -> None:
    """No disguise of a dangerous command is allowed."""
    assert [line for line in Grammar(0).templates() if judge_command(line).effect is Effect.ALLOW] == []


def test_no_bypass_among_generated_commands(tmp_path: Path) -> None:
    """Nothing of what the policy allows reaches a dangerous program."""
    bypasses, ran = find_bypasses(seed=7, count=600, folder=tmp_path)
    assert bypasses == []
    assert ran > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 23, 42, 1001, 31337])
def test_no_bypass_among_five_thousand(seed: int, tmp_path: Path) -> None:
    """The same with a thousand lines from each of five seeds."""
    bypasses, ran = find_bypasses(seed=seed, count=1000, folder=tmp_path)
    assert bypasses == []
    assert ran > 20
