"""A thousand questions that nobody has answered yet cost rows, not threads, polls or memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.faults.victim import Order
from tests.support.requirements import require

PARKED = 1000


def _measure(order: Order) -> dict[str, Any]:
    require(sys.platform == "linux", "memory is read from /proc", "Run it on Linux.")
    command = [sys.executable, "-m", "tests.faults.parked", order.database_url, order.engine_url]
    done = subprocess.run(
        [*command, str(order.root), str(PARKED)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_thousand_parked_questions_cost_next_to_nothing(order: Order) -> None:
    """No thread, no task, no poll of their own, at most 20 MB; answered ones go on."""
    found = _measure(order)
    few, many = found["few"], found["many"]
    assert many["threads"] <= few["threads"] + 8  # the pool's, which may grow a little; not one each
    assert many["tasks"] <= few["tasks"]
    assert many["statements_per_s"] <= few["statements_per_s"] * 1.5 + 5
    assert many["rss_mb"] - few["rss_mb"] <= 20
    assert found["answered"] == 20
