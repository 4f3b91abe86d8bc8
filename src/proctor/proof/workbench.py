"""Everything it takes to judge changes of one repository, put together from settings and a source of permits.

One workbench per repository and run; its checkouts and remembered base results live in the user's cache directory.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.config import Settings
from proctor.proof.change import Change
from proctor.proof.fixfile import FixDocument
from proctor.proof.hollow import HollowFinding, find_hollow
from proctor.proof.interpreter import with_python
from proctor.proof.judgement import Judgement
from proctor.proof.kinds import Guess, Kind, guess_kind, is_test_file, language_of
from proctor.proof.legs import Legs
from proctor.proof.permits import PROOF_TRACE
from proctor.proof.prove import ASKED, Prover
from proctor.proof.results import Context
from proctor.proof.runner import PermitSource, Runner
from proctor.proof.settings import commands_for, proof_settings
from proctor.proof.stale import stale_files
from proctor.proof.subject import Subject, as_text, change_between, find_subject
from proctor.proof.surroundings import surroundings_of
from proctor.proof.symbols import added_symbols
from proctor.proof.verify import FixJudgement, FixVerifier
from proctor.protocol.ids import new_id
from proctor.sandbox.spec import Level
from proctor.workspace.detect import detect, detect_base_branch
from proctor.workspace.trees import Trees
from proctor.workspace.worktree import NotARepositoryError

__all__ = ["Wish", "Workbench", "home_of"]

_TEST_FILES = 200
_TEST_BYTES = 256 << 10


def home_of(settings: Settings, root: Path) -> Path:
    """Where checkouts and results of one repository lie."""
    key = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return settings.paths.cache_dir / "proof" / f"{root.name[:40]}-{key}"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be judged."""

    ref: str | None = None
    base: str | None = None
    staged: bool = False
    uncommitted: bool = False
    kind: Kind | None = None


class Workbench:
    """Judges changes and fix files of one repository."""

    def __init__(
        self,
        settings: Settings,
        place: Path,
        permits: PermitSource,
        *,
        seconds: float | None = None,
        slots: int | None = None,
        level: Level | None = None,
        progress: Callable[[str], None] | None = None,
        trace_lines: bool = False,
    ) -> None:
        self.settings = settings
        self.proof = proof_settings(settings)
        self.trees = _trees(settings, place)
        os.utime(self.trees.home)  # when it was used last; `proctor gc` looks at it
        around = surroundings_of(settings, seconds=seconds or self.proof.seconds, disk_mb=self.proof.disk_mb)
        self.slots = slots or max(1, os.cpu_count() or 1)
        self.runner = Runner(self.trees, around, permits, slots=self.slots, level=level)
        self._progress = progress
        self._trace_lines = trace_lines

    @property
    def shadow(self) -> bool:
        """Whether the place is no git repository."""
        return self.trees.shadow

    def test_commands(self) -> tuple[str, ...]:
        """The project's own test commands: as set, else as they can be told from its files."""
        root, environ = self.trees.root, self.settings.environ
        return self.settings.project.test or with_python(detect(root, environ).test, root, environ)

    async def check(self, wish: Wish) -> Judgement:
        """Judge one change by the project's own tests."""
        subject, change, guess = await asyncio.to_thread(self._look, wish)
        paths = [file.path for file in change.diff.files]
        commands = commands_for(paths, self.proof, self.test_commands())
        findings = await asyncio.to_thread(self._findings, subject, change, commands)
        if not subject.committed:
            findings = (*findings, *await asyncio.to_thread(stale_files, self.trees.root, paths))
        self._estimate(commands)
        prover = Prover(self._legs(change), self.proof, trace_lines=self._trace_lines)
        found = await prover.prove(subject, change, guess.kind, guess.reason, commands, findings)
        await asyncio.to_thread(self._remember, found)
        return found

    def _estimate(self, commands: Sequence[str]) -> None:
        """Say what is about to be run, how long it took last time, and the cap."""
        if self._progress is None or not commands:
            return
        known = [self._durations().get(command) for command in commands]
        last = (
            f"about {sum(filter(None, known)) * 3:.0f} s by the last time"
            if all(known)
            else "never timed here"
        )
        cap = self.runner.surroundings.limits.seconds or 0
        self._progress(f"{len(commands)} command(s) in two to four legs, {last}, at most {cap:g} s each")

    def _durations(self) -> dict[str, float]:
        try:
            found = json.loads((self.trees.home / "durations.json").read_text())
        except (OSError, ValueError):
            return {}
        return {str(k): float(v) for k, v in found.items()} if isinstance(found, dict) else {}

    def _remember(self, judgement: Judgement) -> None:
        """Keep how long each command took, for the next estimate."""
        known = self._durations()
        for leg in judgement.legs:
            if not leg.cached and leg.reading.sound:
                known.update({each.command: each.seconds for each in leg.ran})
        place = self.trees.home / "durations.json"
        partly = place.with_suffix(f".{os.getpid()}")
        partly.write_text(json.dumps(dict(list(known.items())[-200:])))
        partly.replace(place)

    def _look(self, wish: Wish) -> tuple[Subject, Change, Guess]:
        branch = None if wish.base else self._base_branch()
        subject = find_subject(
            self.trees,
            wish.ref,
            base=wish.base,
            base_branch=branch,
            staged=wish.staged,
            uncommitted=wish.uncommitted,
        )
        change = change_between(self.trees, subject.base_tree, subject.tree)
        guess = Guess(wish.kind, ASKED) if wish.kind else guess_kind(change.diff, subject.message)
        return subject, change, guess

    def _base_branch(self) -> str | None:
        named = self.settings.project.base_branch
        return named or detect_base_branch(self.trees.root, self.settings.environ)

    def _legs(self, change: Change) -> Legs:
        context = Context(added_symbols(change), frozenset(file.path for file in change.diff.files))
        return Legs(self.runner, context=context, progress=self._progress)

    def _findings(
        self, subject: Subject, change: Change, commands: Sequence[str]
    ) -> tuple[HollowFinding, ...]:
        touched = {file.path for file in change.files}
        names = [
            n
            for n in self.trees.names(subject.tree)
            if is_test_file(n) and language_of(n) and n not in touched
        ]
        texts = self.trees.blobs(subject.tree, names[:_TEST_FILES], cap=_TEST_BYTES)
        return find_hollow(change, commands, {path: as_text(data) for path, data in texts.items()})

    async def verify(
        self, document: FixDocument, *, base: str | None, ignore: Sequence[str] = ()
    ) -> list[FixJudgement]:
        """Judge every fix of a file, up to the number of cores side by side; `ignore` are paths that are no work."""
        subject, has_base = await asyncio.to_thread(self._work, base, ignore)
        change = await asyncio.to_thread(change_between, self.trees, subject.base_tree, subject.tree)
        fixes = document.fixes
        commands = [fix.result.verification_command for fix in fixes if fix.result is not None]
        findings = await asyncio.to_thread(self._findings, subject, change, commands)
        verifier = FixVerifier(self._legs(change), subject, change, findings, has_base=has_base)
        claiming = any(fix.result is not None and fix.result.status == "FIXED" for fix in fixes)
        guard = await verifier.guard(self.settings.project.test if claiming else ())
        turns = asyncio.Semaphore(self.slots)
        async with asyncio.TaskGroup() as group:

            async def one(index: int) -> FixJudgement:
                async with turns:
                    PROOF_TRACE.set(new_id("trace"))
                    found = await verifier.verify(fixes[index], fixes, guard)
                    return replace(found, trace_id=PROOF_TRACE.get())

            tasks = [group.create_task(one(index)) for index in range(len(fixes))]
        return [task.result() for task in tasks]

    def _work(self, base: str | None, ignore: Sequence[str]) -> tuple[Subject, bool]:
        """The work the fixes stand for: the checkout as it is, against the base."""
        trees = self.trees
        now = trees.uncommitted()
        if trees.shadow or not trees.has_commits():
            head = trees.committed(now)
            return Subject("the directory as it is", "", now, head, now, committed=False), False
        head_tree = trees.tree("HEAD")
        ignored = [change.path for change in trees.changed(head_tree, now) if _within(change.path, ignore)]
        now = trees.overlay(now, head_tree, ignored)
        if now != head_tree:
            start = trees.commit(base or "HEAD")
            subject = Subject(
                "uncommitted work", start, trees.tree(start), trees.commit("HEAD"), now, committed=False
            )
            return subject, True
        branch = None if base else self._base_branch()
        subject = find_subject(trees, "HEAD", base=base, base_branch=branch)
        return subject, bool(subject.base)


def _within(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root.rstrip('/')}/") for root in roots)


def _trees(settings: Settings, place: Path) -> Trees:
    try:
        found = Trees(place, home_of(settings, place))
    except NotARepositoryError:
        return Trees(place, home_of(settings, place), shadow=True)
    # One home per repository, wherever inside it one stands.
    return found if found.root == place.resolve() else Trees(found.root, home_of(settings, found.root))
