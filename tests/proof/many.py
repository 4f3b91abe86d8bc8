"""A repository with many small fixes in one file, each with a known verdict; for the test and for the benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proctor.config import load_settings
from proctor.proof.fixfile import FixDocument, parse_fix_file
from proctor.proof.runner import PermitSource
from proctor.proof.workbench import Workbench
from tests.proof.repos import PATH, commit, new_repo, permits_for_proofs

__all__ = ["bench_of", "expected", "many_fixes"]

#: By number modulo five: an honest fix, one that was not made, one that needed none, one given up, one that tests nothing.
_VERDICTS = ("proven", "refuted", "proven", "inconclusive", "inconclusive")


def expected(count: int) -> dict[int, str]:
    """The verdict each fix deserves."""
    return {number: _VERDICTS[number % 5] for number in range(count)}


def many_fixes(place: Path, count: int) -> tuple[Path, FixDocument]:
    """Make the repository (base and change) and the fix file that came back."""
    repo = new_repo(place / "repo", {f"m/{n}.txt": f"old-{n}\n" for n in range(count)})
    made = [n for n in range(count) if n % 5 in {0, 4}]
    commit(repo, "all fixes", {f"m/{n}.txt": f"new-{n}\n" for n in made})
    head = {"review_id": "001_many", "component": "many", "date": "2027-01-31", "assigned_to": "executor"}
    fixes = [_fix(n, repo) for n in range(count)]
    text = json.dumps({**head, "instructions": "Add a result to each fix.", "fixes": fixes})
    return repo, parse_fix_file(text, "001_many_fixes.json")


def _fix(number: int, repo: Path) -> dict[str, Any]:
    file, turn = f"m/{number}.txt", number % 5
    wanted = f"old-{number}" if turn == 2 else f"new-{number}"
    # Whatever another run leaves in a checkout would be seen here.
    clean = f"! ls {repo}/left-by-* 2>/dev/null && : > {repo}/left-by-{number}"
    command = f"{clean} && test $(cat {repo}/{file}) = {wanted}" if turn != 4 else f"test -d {repo}/m"
    result: dict[str, Any] = {
        "status": ("FIXED", "FIXED", "NO_CHANGE_NEEDED", "FAILED", "FIXED")[turn],
        "verification_command": command,
        "hallucination_check": f"grep -q {wanted} {repo}/{file}",
    }
    result |= (
        {"changes_made": [f"Line 1: `new-{number}`"]} if turn in {0, 1, 4} else {"finding": "It was so."}
    )
    said = {
        "issue": f"{file} says old-{number}",
        "fix": f"Write new-{number} into {file}",
        "verification": "grep",
    }
    return {"id": number, "severity": "minor", "file": file, "line": 1, **said, "result": result}


def bench_of(repo: Path, home: Path, slots: int, permits: PermitSource = permits_for_proofs) -> Workbench:
    """A workbench with so many checkouts side by side."""
    home.mkdir(parents=True, exist_ok=True)
    settings = load_settings(repo, {"HOME": str(home), "PATH": PATH})
    return Workbench(settings, repo, permits, seconds=60, slots=slots)
