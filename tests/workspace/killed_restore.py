"""Run one restore and die at a numbered step, as kill -9 would: `python -m tests.workspace.killed_restore …`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backups
from proctor.workspace.restore import RESTORE_TOOL, restore

KILLED = 9


def main(base: str, name: str, last: int) -> int:
    """Restore; leave without any clean-up before step `last`; print the number of steps when all were done."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == last:
            os._exit(KILLED)

    backups = Backups(Path(base))
    restore(backups, backups.find(name), permit=permit_for_tests(RESTORE_TOOL), step=step)
    sys.stdout.write(str(steps))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
