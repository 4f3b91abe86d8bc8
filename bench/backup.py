"""Backups and listings against cp -a, restic, borg and rg, interleaved in one run; only ratios mean something.

`python -m bench.backup [--files N] [--full] [--rounds N]`: 5,000 files by default, `--full` is 50,000 files of
1 GB with `.git` and a listing of 100,000 files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backups
from proctor.workspace.restore import RESTORE_TOOL, restore
from proctor.workspace.scan import Scanner

__all__ = ["LIMITS", "run"]

LIMITS = {
    "first_vs_cp": 0.8,
    "again_vs_cp": 0.2,
    "restore_vs_cp": 0.1,
    "list_git_vs_rg": 1.0,
    "list_walk_vs_rg": 2.5,
    "list_git_all_vs_rg": 1.0,
    "list_walk_all_vs_rg": 2.5,
}
SIZES = (500, 2_000, 8_000, 30_000, 60_000)
CHANGES = 10


def run(files: int = 5_000, rounds: int = 3, *, full: bool = False) -> dict[str, Any]:
    """Measure; best of the rounds, with the ratio of each to its rival in the same run."""
    count = 50_000 if full else files
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as name:
        place = Path(name)
        workspace = place / "workspace"
        make_workspace(workspace, count)
        times = [one_round(place, workspace, number) for number in range(rounds)]
        listing = measure_listing(place / "part", 2 * count, rounds, ignored=3)
        whole = measure_listing(place / "all", 2 * count, rounds, ignored=0)
        listing.update({f"{key}_all": value for key, value in whole.items()})
    best = {key: min(row[key] for row in times if key in row) for key in times[0]}
    result: dict[str, Any] = {"files": count, "rounds": rounds, "seconds": {**best, **listing}}
    result["ratios"] = ratios(result["seconds"])
    result["limits"] = LIMITS
    result["unmeasured"] = [key for key in LIMITS if key not in result["ratios"]]
    result["ok"] = all(ratio <= LIMITS.get(key, 1.0) for key, ratio in result["ratios"].items())
    result["missing"] = [tool for tool in ("restic", "borg", "rg") if shutil.which(tool) is None]
    return result


def ratios(seconds: dict[str, float]) -> dict[str, float]:
    """Divide each by its rival, where both were measured."""
    pairs = {
        "first_vs_cp": ("first", "cp"),
        "again_vs_cp": ("again", "cp"),
        "restore_vs_cp": ("restore", "cp"),
        "first_vs_restic": ("first", "restic_first"),
        "again_vs_restic": ("again", "restic_again"),
        "first_vs_borg": ("first", "borg_first"),
        "again_vs_borg": ("again", "borg_again"),
        "list_git_vs_rg": ("list_git", "rg"),
        "list_walk_vs_rg": ("list_walk", "rg_no_git"),
        "list_git_all_vs_rg": ("list_git_all", "rg_all"),
        "list_walk_all_vs_rg": ("list_walk_all", "rg_no_git_all"),
    }
    return {
        key: round(seconds[ours] / seconds[theirs], 3)
        for key, (ours, theirs) in pairs.items()
        if ours in seconds and theirs in seconds
    }


def make_workspace(root: Path, count: int) -> None:
    """Build text and binary files of mixed sizes, about 20 KB each, in a git repository with loose objects."""
    dice = random.Random(4)
    words = [f"word{number}" for number in range(3_000)]
    for number in range(count):
        folder = root / f"d{number % 97}" / f"e{number % 13}"
        if number < 97 * 13:
            folder.mkdir(parents=True, exist_ok=True)
        size = dice.choice(SIZES)
        text = (
            dice.randbytes(size) if number % 5 == 0 else " ".join(dice.choices(words, k=size // 8)).encode()
        )
        (folder / f"f{number}.txt").write_bytes(text)
    commands = [
        "init -q",
        "config gc.auto 0",
        "add -A",
        "-c user.name=b -c user.email=b@example.com commit -qm b",
    ]
    for words_ in commands:
        subprocess.run(["git", "-C", str(root), *words_.split()], check=True, capture_output=True)


def timed(act: Callable[[], object]) -> float:
    """Seconds of one act."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def command(argv: Sequence[str], environment: dict[str, str] | None = None) -> Callable[[], object]:
    """Make a program an act."""
    return lambda: subprocess.run(
        argv, check=True, capture_output=True, env={**os.environ, **(environment or {})}
    )


def change(workspace: Path, number: int) -> None:
    """Edit ten files."""
    for index in range(CHANGES):
        path = workspace / f"d{index}" / f"e{index}" / f"f{index}.txt"
        path.write_text(f"changed in round {number}, file {index}\n" * 50)


def one_round(place: Path, workspace: Path, number: int) -> dict[str, float]:
    """One round of everything, one after the other."""
    copy, base = place / "copy", place / f"base{number}"
    seconds = {"cp": timed(command(["cp", "-a", str(workspace), str(copy)]))}
    shutil.rmtree(copy)
    backups = Backups(base)
    seconds["first"] = timed(lambda: backups.create(workspace))
    rivals = [
        rival for rival in (Restic(place, workspace, number), Borg(place, workspace, number)) if rival.there
    ]
    for rival in rivals:
        seconds[f"{rival.name}_first"] = timed(rival.save)
    time.sleep(2.1)  # so that nothing lies in the racy window, which a user seldom meets
    backups.create(workspace)
    change(workspace, number)
    seconds["again"] = timed(lambda: backups.create(workspace))
    for rival in rivals:
        seconds[f"{rival.name}_again"] = timed(rival.save)
    saved = backups.listing(workspace)[0]
    change(workspace, number + 1_000)
    seconds["restore"] = timed(lambda: restore(backups, saved, permit=permit_for_tests(RESTORE_TOOL)))
    seconds["verify"] = timed(backups.verify)
    shutil.rmtree(base)
    for rival in rivals:
        shutil.rmtree(rival.store, ignore_errors=True)
    return seconds


class Restic:
    """restic with its default settings."""

    name = "restic"

    def __init__(self, place: Path, workspace: Path, number: int) -> None:
        self.store = place / f"restic{number}"
        self.there = shutil.which("restic") is not None
        self._workspace = workspace
        self._environment = {"RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": str(self.store)}
        self._cache = ["--cache-dir", str(place / "restic-cache")]
        if self.there:
            command(["restic", *self._cache, "init"], self._environment)()

    def save(self) -> None:
        """Take a snapshot."""
        command(["restic", *self._cache, "backup", str(self._workspace)], self._environment)()


class Borg:
    """borg with lz4, without encryption."""

    name = "borg"

    def __init__(self, place: Path, workspace: Path, number: int) -> None:
        self.store = place / f"borg{number}"
        self.there = shutil.which("borg") is not None
        self._workspace = workspace
        self._count = 0
        self._environment = {
            "BORG_BASE_DIR": str(place / "borg-home"),
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes",
        }
        if self.there:
            command(["borg", "init", "-e", "none", str(self.store)], self._environment)()

    def save(self) -> None:
        """Take an archive."""
        self._count += 1
        name = f"{self.store}::a{self._count}"
        command(["borg", "create", "-C", "lz4", name, str(self._workspace)], self._environment)()


def measure_listing(place: Path, count: int, rounds: int, *, ignored: int) -> dict[str, float]:
    """List a tree of which some fifths are ignored, with git and without, beside rg."""
    root, plain = place / "listing", place / "plain"
    for number in range(count):
        folder = root / ("node_modules" if number % 5 < ignored else "src") / f"d{number % 211}"
        if number < 5 * 211:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.js").touch()
    (root / ".gitignore").write_text("node_modules/\n*.log\n/dist\n!keep.log\n")
    (root / ".ignore").write_text("node_modules/\n")
    shutil.copytree(root, plain)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)
    acts: dict[str, Callable[[], object]] = {
        "list_git": lambda: Scanner().files(root, fresh=True),
        "list_walk": lambda: Scanner().files(plain, fresh=True),
    }
    if shutil.which("rg"):
        acts["rg"] = command(["rg", "--files", "--hidden", str(root)])
        acts["rg_no_git"] = command(["rg", "--files", "--hidden", str(plain)])
    best: dict[str, float] = {}
    for _ in range(max(rounds, 3)):
        for name, act in acts.items():
            best[name] = min(best.get(name, float("inf")), timed(act))
    return best


def main() -> int:
    """Print the numbers as JSON; exit 1 when a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    result = run(arguments.files, arguments.rounds, full=arguments.full)
    print(json.dumps(result, indent=2))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
