"""What a run of tests says: every common format read into one `TestRun`, with the reason of a failure."""

from __future__ import annotations

from proctor.proof.results.compare import newly_red, turned_green
from proctor.proof.results.model import Context, Failure, Outcome, Reason, TestRun
from proctor.proof.results.read import read_results

__all__ = ["Context", "Failure", "Outcome", "Reason", "TestRun", "newly_red", "read_results", "turned_green"]
