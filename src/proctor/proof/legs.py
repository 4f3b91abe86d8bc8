"""The legs of a proof: one tree, the commands that judge it, what came of them; base results are remembered.

A leg is identified by its tree, so that two legs with the same tree are one leg and count once. Only results of trees
that the change did not make are kept on disk, under a key of tree, commands and environment; never a time-out or a
broken environment, and never where a command could reach them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor import __version__
from proctor.proof.plain import digest_text, head_of
from proctor.proof.reading import Reading, merge_readings, read_run
from proctor.proof.results import Context
from proctor.proof.runner import Run, Runner

__all__ = ["Leg", "Legs", "Ran"]

Progress = Callable[[str], None]
#: pytest writes this beside its output; other runners are read from what they print.
RESULTS = {"PYTEST_ADDOPTS": "--junitxml={out}/junit.xml"}


@dataclass(frozen=True, slots=True)
class Ran:
    """One command of a leg as a receipt keeps it."""

    command: str
    exit_code: int
    killed_for: str | None
    stage: str
    seconds: float
    output_sha256: str
    output_head: str
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Leg:
    """One tree and what the commands said about it."""

    name: str
    tree: str
    head: str
    ran: tuple[Ran, ...]
    reading: Reading
    level: int
    missing: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()
    rerooted: bool = False
    cached: bool = False
    repeats: int = 0
    unsteady: tuple[str, ...] = ()  # tests that two runs of this very tree judged differently
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    place: str = ""  # the repository's root as the commands saw it

    @property
    def seconds(self) -> float:
        """How long its commands took."""
        return sum(each.seconds for each in self.ran)

    @property
    def passed(self) -> bool:
        """Every command ended with 0."""
        return all(
            each.exit_code == 0 and each.killed_for is None and each.stage == "command" for each in self.ran
        )


class Legs:
    """Runs legs for one repository; the same tree and commands run once per proof."""

    def __init__(
        self, runner: Runner, *, context: Context | None = None, progress: Progress | None = None
    ) -> None:
        self.runner = runner
        self.context = context or Context()
        self._say: Progress = progress or (lambda _text: None)
        self._known: dict[str, Leg] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def run(
        self, name: str, tree: str, head: str, commands: Sequence[str], *, extra: Mapping[str, str] | None = None,
        keep: bool = False,
    ) -> Leg:  # fmt: skip
        """Run the commands on a tree, or take what an equal run gave; `keep` remembers it for later proofs."""
        key = await asyncio.to_thread(self._key, tree, commands, extra or {})
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self._once(key, name, tree, head, commands, extra=extra, keep=keep)

    async def _once(
        self, key: str, name: str, tree: str, head: str, commands: Sequence[str], *,
        extra: Mapping[str, str] | None, keep: bool,
    ) -> Leg:  # fmt: skip
        if key in self._known:
            return replace(self._known[key], name=name)
        stored = await asyncio.to_thread(self._stored, key) if keep else None
        if stored is not None:
            leg = replace(stored, name=name, head=head, cached=True)
        else:
            leg = await self.fresh(name, tree, head, commands, extra=extra)
            if keep and leg.reading.sound:
                await asyncio.to_thread(self._store, key, leg)
        self._known[key] = leg
        return leg

    async def fresh(
        self,
        name: str,
        tree: str,
        head: str,
        commands: Sequence[str],
        *,
        extra: Mapping[str, str] | None = None,
    ) -> Leg:
        """Run the commands whatever is known already."""
        runs: list[Run] = []
        for command in commands:
            self._say(f"{name}: {command}")
            runs.append(await self.runner.run(tree, head, command, extra=self._extra(extra or {})))
            if runs[-1].stage == "setup":
                break
        reading = await asyncio.to_thread(
            lambda: merge_readings([read_run(run, self.context) for run in runs])
        )
        files = {file: data for run in runs for file, data in run.files.items()}
        return Leg(
            name=name,
            tree=tree,
            head=head,
            ran=tuple(_ran(run) for run in runs),
            reading=reading,
            level=min((run.level for run in runs), default=0),
            missing=tuple(sorted({words for run in runs for words in run.missing})),
            lent=runs[0].lent if runs else (),
            rerooted=any(run.rerooted for run in runs),
            files=files,
            place=runs[0].place if runs else "",
        )

    async def repeated(
        self, leg: Leg, commands: Sequence[str], times: int, *, extra: Mapping[str, str] | None = None
    ) -> Leg:
        """Run the leg again until it disagrees with itself or was confirmed so often."""
        unsteady: set[str] = set(leg.unsteady)
        done = 0
        for _ in range(times):
            again = await self.fresh(f"{leg.name} again", leg.tree, leg.head, commands, extra=extra)
            done += 1
            unsteady |= leg.reading.disagreements(again.reading)
            if unsteady:
                break
        return replace(leg, repeats=leg.repeats + done, unsteady=tuple(sorted(unsteady)))

    def _extra(self, extra: Mapping[str, str]) -> dict[str, str]:
        mine = dict(RESULTS)
        if given := self.runner.surroundings.env.get("PYTEST_ADDOPTS"):
            mine["PYTEST_ADDOPTS"] = f"{given} {mine['PYTEST_ADDOPTS']}"
        return mine | dict(extra)

    def environment(self, tree: str) -> str:
        """The digest of everything a run of this tree depends on besides tree and command."""
        return self.runner.surroundings.digest(self.runner.lent(tree).directories)

    def _key(self, tree: str, commands: Sequence[str], extra: Mapping[str, str]) -> str:
        facts = [
            __version__,
            tree,
            list(commands),
            sorted(extra.items()),
            self.environment(tree),
            str(self.runner.trees.root),
        ]
        return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogateescape")).hexdigest()

    # What is remembered

    def _place(self, key: str) -> Path:
        return self.runner.trees.home / "results" / f"{key}.json"

    def _stored(self, key: str) -> Leg | None:
        try:
            data = json.loads(self._place(key).read_text())
            ran = tuple(Ran(**each) for each in data.pop("ran"))
            reading = Reading.from_dict(data.pop("reading"))
            lists: dict[str, Any] = {name: tuple(data.pop(name)) for name in ("missing", "lent", "unsteady")}
            return Leg(ran=ran, reading=reading, **lists, **data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None  # what cannot be read is run again

    def _store(self, key: str, leg: Leg) -> None:
        place = self._place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, Any] = {
            **{name: getattr(leg, name) for name in ("name", "tree", "head", "level", "missing", "lent")},
            **{name: getattr(leg, name) for name in ("rerooted", "repeats", "unsteady")},
            "ran": [asdict(each) for each in leg.ran],
            "reading": leg.reading.as_dict(),
        }
        with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
            json.dump(data, file)
        os.replace(file.name, place)  # noqa: PTH105 - a name, not a path


def _ran(run: Run) -> Ran:
    output = run.stdout.text + run.stderr.text
    # Where the checkout lay is no part of what was said.
    output = output.replace(run.place, "<repository>") if run.place else output
    return Ran(
        command=run.command,
        exit_code=run.exit_code,
        killed_for=run.killed_for,
        stage=run.stage,
        seconds=round(run.duration, 3),
        output_sha256=digest_text(output),
        output_head=head_of(output),
        output_bytes=run.stdout.total_bytes + run.stderr.total_bytes,
    )
