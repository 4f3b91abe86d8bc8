"""What the proof commands share: a workbench with permits from the gate, progress on the terminal, receipts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proctor.app import App
    from proctor.proof.record import Recorder
    from proctor.proof.workbench import Workbench

__all__ = ["Bench", "Progress", "open_bench"]


class Progress:
    """One line on the terminal that tells what is being run; nothing where nobody watches."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        """Show a text in place of the last one."""
        line = " ".join(text.split())[:100]
        if self._live:
            click.echo(f"\r\x1b[2K{line}", nl=False, err=True)

    def done(self) -> None:
        """Take the line away again."""
        if self._live:
            click.echo("\r\x1b[2K", nl=False, err=True)


@dataclass(frozen=True, slots=True)
class Bench:
    """A workbench and who keeps its receipts."""

    app: App
    work: Workbench
    recorder: Recorder
    trace_id: str


@contextlib.asynccontextmanager
async def open_bench(
    place: Path | None = None, *, seconds: float | None = None, quiet: bool = False, trace_lines: bool = False
) -> AsyncIterator[Bench]:
    """Open everything to judge changes of the repository here; all is given back at the end."""
    from proctor.app import open_app
    from proctor.config import current_directory
    from proctor.proof.permits import GatePermits
    from proctor.proof.record import Recorder
    from proctor.proof.settings import proof_settings
    from proctor.proof.workbench import Workbench
    from proctor.sandbox import process

    app = open_app(place)
    progress = Progress()
    try:
        settings = app.settings
        limit = seconds or proof_settings(settings).seconds
        permits = GatePermits(app.proof_gate(limit), profile=settings.profile)
        work = Workbench(
            settings,
            place or settings.workspace or current_directory(),
            permits,
            seconds=limit,
            progress=None if quiet else progress,
            trace_lines=trace_lines,
        )
        folder = settings.paths.data_dir / "receipts"
        recorder = Recorder(app.writer, folder, work.trees, app.redactor.text)
        yield Bench(app, work, recorder, permits.trace_id)
    finally:
        progress.done()
        process.close_idle_keepers()
        app.close()
