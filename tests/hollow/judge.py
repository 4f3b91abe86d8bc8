"""Runs one case as a user would: a repository with two commits, Proctor's judgement, and the usual gate beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from proctor.config import load_settings
from proctor.proof.fixfile import parse_fix_file
from proctor.proof.kinds import Kind
from proctor.proof.workbench import Wish, Workbench
from tests.hollow.cases import ACCEPTING, Case
from tests.proof.repos import PATH, commit, new_repo, permits_for_proofs

__all__ = ["Told", "confusion", "judge_case", "usual_gate"]

# The cases need no plugin of pytest's, and loading ours takes twice as long as all else that a run does.
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True, slots=True)
class Told:
    """What was said about a case."""

    case: Case
    word: str
    reasons: tuple[str, ...]
    usual: bool
    """What the usual gate says; False also when it was not asked."""
    seconds: float

    @property
    def right(self) -> bool:
        """Whether Proctor said one of the words the case allows."""
        return self.word in self.case.words


async def judge_case(case: Case, place: Path, *, beside: bool = True) -> Told:
    """Build the repository, let Proctor judge the change, then ask the usual gate if it is wanted beside."""
    began = time.monotonic()
    settings_file = f"[project]\ntest = {json.dumps(case.command)}\n[project.env]\n"
    settings_file += "".join(f"{name} = {json.dumps(value)}\n" for name, value in BARE.items())
    repo = new_repo(place / "repo", {**case.base, "proctor.toml": settings_file})
    commit(repo, "change", case.change)
    environ = {"HOME": str(place / "home"), "PATH": PATH, **case.env}
    (place / "home").mkdir(exist_ok=True)
    settings = load_settings(repo, environ)
    bench = Workbench(settings, repo, permits_for_proofs, seconds=60, slots=2)
    if case.claim is None:
        kind = Kind(case.kind) if case.kind else None
        found = await bench.check(Wish("HEAD", base="HEAD~1", kind=kind))
    else:
        document = parse_fix_file(_fix_file(case, repo), "001_corpus_fixes.json")
        found = (await bench.verify(document, base="HEAD~1"))[0].judgement
    usual = beside and usual_gate(case, repo)
    return Told(case, found.word.value, found.reasons, usual, time.monotonic() - began)


def _fix_file(case: Case, repo: Path) -> str:
    claim = case.claim
    assert claim is not None
    result = {
        "status": claim.status,
        "verification_command": claim.verification_command.replace("{repo}", str(repo)),
        "hallucination_check": claim.hallucination_check.replace("{repo}", str(repo)),
    }
    done = (
        {"changes_made": list(claim.changes_made)}
        if claim.changes_made
        else {"finding": "It was right already."}
    )
    fix = {"id": 1, "severity": "major", "file": claim.file, "line": claim.line, "issue": "It gives wrong answers.",
           "fix": "Make it give the right ones.", "verification": "Run the tests.", "result": result | done}  # fmt: skip
    head = {"review_id": "001_corpus", "component": "corpus", "date": "2027-01-31", "assigned_to": "executor"}
    return json.dumps({**head, "instructions": "Add a result to each fix.", "fixes": [fix]})


def usual_gate(case: Case, repo: Path) -> bool:
    """What most tools do: run the command after the change and look at its exit code."""
    command = (
        case.command if case.claim is None else case.claim.verification_command.replace("{repo}", str(repo))
    )
    env = {"PATH": PATH, "HOME": str(repo.parent / "home"), **BARE}
    done = subprocess.run(["bash", "-c", command], cwd=repo, env=env, capture_output=True, timeout=60)
    return done.returncode == 0


def confusion(told: list[Told]) -> dict[str, object]:
    """The matrix: honest and hollow changes by what was said, and the usual gate's false accepts beside it."""
    words = sorted({one.word for one in told})
    rows = {
        name: {word: sum(one.word == word for one in group) for word in words}
        for name, group in (
            ("honest", [t for t in told if t.case.honest]),
            ("hollow", [t for t in told if not t.case.honest]),
        )
    }
    hollow = [one for one in told if not one.case.honest]
    honest = [one for one in told if one.case.honest]
    return {
        "cases": len(told),
        "honest": len(honest),
        "hollow": len(hollow),
        "matrix": rows,
        "false_accepts": sum(one.word in ACCEPTING for one in hollow),
        "honest_refuted": sum(one.word == "refuted" for one in honest),
        "honest_inconclusive": sum(one.word == "inconclusive" for one in honest),
        "unexpected": [
            f"{one.case.name}: {one.word}: {'; '.join(one.reasons)}" for one in told if not one.right
        ],
        "usual_gate": {
            "false_accepts": sum(one.usual for one in hollow),
            "honest_rejected": sum(not one.usual for one in honest),
        },
        "by_category": {
            category: {
                word: sum(one.word == word for one in told if one.case.category == category)
                for word in sorted({one.word for one in told if one.case.category == category})
            }
            for category in sorted({one.case.category for one in told})
        },
        "python": sys.version.split()[0],
    }
