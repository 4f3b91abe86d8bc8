"""The demonstration: real supervisor, real worktrees, real kill -9; only the agents are simulated, and say
so.

Everything lies in one temporary directory and is gone afterwards. The story is told through a callback, the
facts come back as a summary; whatever is claimed is computed from rows, files and the verified trace.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from proctor.app import App
from proctor.config import load_settings
from proctor.engine import client
from proctor.engine.tasks import NewTask, Task
from proctor.protocol.errors import UnavailableError
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import events
from proctor.trace.verify import verify

__all__ = ["Demo"]

SETTINGS = """\
[project]
name = "demo"
base_branch = "main"
test = "sh test.sh"

""" + "".join(f'[agents.{name}]\ndriver = "scripted"\n\n' for name in ("alice", "bob", "carol"))
PATIENCE = 60.0
Tell = Callable[[str], None]


class Demo:
    """One run of the demonstration below a directory of its own."""

    def __init__(self, tell: Tell, environ: Mapping[str, str]) -> None:
        self._tell = tell
        self._root = Path(tempfile.mkdtemp(prefix="proctor-demo-"))
        self._repo = self._root / "repository"
        self._ledger = self._root / "ledger"
        home = {
            f"XDG_{kind}_HOME": str(self._root / kind.lower())
            for kind in ("STATE", "DATA", "CACHE", "CONFIG")
        }
        kept = {
            name: value for name, value in environ.items() if not name.startswith(("PROCTOR_", "XDG_", "DB_"))
        }
        self._environ = {**kept, "HOME": str(self._root / "home"), **home}

    def run(self) -> dict[str, Any]:
        """Tell the story and give the facts."""
        began = time.monotonic()
        self._make_repository()
        app = App(load_settings(self._repo, self._environ))
        try:
            facts = self._story(app)
        finally:
            client.stop(app.settings.paths)
            app.close()
            shutil.rmtree(self._root, ignore_errors=True)
        return {**facts, "seconds": round(time.monotonic() - began, 1)}

    def _story(self, app: App) -> dict[str, Any]:
        tasks = self._add_tasks(app)
        first = client.ensure(app.settings)
        self._tell(
            f"The supervisor (pid {first.pid}) hands them to three simulated agents, each in its own worktree."
        )
        self._wait(self._between_steps, "the first steps")
        self._tell(
            f"kill -9 {first.pid}: the supervisor dies in the middle of {len(self._running(app, tasks))} tasks."
        )
        os.kill(first.pid, signal.SIGKILL)
        self._wait(lambda: client.greet(app.settings.paths) is None, "the supervisor's end")
        second = client.ensure(app.settings)
        self._tell(f"A new supervisor (pid {second.pid}) takes over what the dead one held and goes on.")
        self._follow(app, tasks)
        return self._facts(app, tasks, first.pid)

    def _make_repository(self) -> None:
        for directory in (self._repo, self._ledger, Path(self._environ["HOME"])):
            directory.mkdir(parents=True)
        (self._repo / "proctor.toml").write_text(SETTINGS)
        (self._repo / "README").write_text("A small repository to work on.\n")
        self._git("init", "--quiet", "--initial-branch=main")
        self._git("add", "--all")
        name = ["-c", "user.name=Demo", "-c", "user.email=demo@localhost"]
        self._git(*name, "commit", "--quiet", "--message", "Begin")

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self._repo,
            env=self._environ,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout

    def _add_tasks(self, app: App) -> dict[str, str]:
        self._tell("Four tasks go into the queue; the last two wait for what they depend on.")
        ids: dict[str, str] = {}
        for name, agent, after in (
            ("parser", "alice", ()),
            ("printer", "bob", ()),
            ("joined", "carol", ("parser", "printer")),
            ("tested", "alice", ("joined",)),
        ):
            new = NewTask(
                description=self._prompt(name),
                agent=agent,
                depends_on=[ids[earlier] for earlier in after],
                workspace=str(self._repo),
                created_by="demo",
            )
            ids[name] = app.tasks.add(new).task_id
        return ids

    def _prompt(self, name: str) -> str:
        """Three steps with an effect each, so that a step done twice or not at all is seen."""
        steps: list[dict[str, Any]] = []
        for number in (1, 2, 3):
            steps += [{"run": f"echo {name}-{number} >> '{self._ledger}/{name}'"}, {"sleep": 0.6}]
        steps += [{"write": f"{name}.txt", "content": f"{name}\n"}, {"tokens": [900, 100]}]
        return f"Make {name}.txt\nSCRIPT:{json.dumps({'steps': steps})}"

    def _effects(self) -> list[str]:
        return [line for path in sorted(self._ledger.iterdir()) for line in path.read_text().splitlines()]

    def _between_steps(self) -> bool:
        """Both first agents have done a step and rest before the next: the moment at which to kill."""
        ages = [time.time() - path.stat().st_mtime for path in self._ledger.iterdir()]
        return len(ages) >= 2 and all(0.1 < age < 0.5 for age in ages)

    def _running(self, app: App, tasks: Mapping[str, str]) -> list[str]:
        return [
            name for name, task_id in tasks.items() if app.tasks.get(task_id).status is TaskState.IN_PROGRESS
        ]

    def _follow(self, app: App, tasks: Mapping[str, str]) -> None:
        told: set[str] = set()
        ended = TASK.terminal | {TaskState.BLOCKED}

        def all_ended() -> bool:
            for name, task_id in tasks.items():
                task = app.tasks.get(task_id)
                if task.status in ended and name not in told:
                    told.add(name)
                    what = task.error or _branch(task)
                    self._tell(f"  {name}: {task.status} by {task.agent} (simulated), {what}")
            return len(told) == len(tasks)

        self._wait(all_ended, "the end of all tasks")

    def _wait(self, fact: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if time.monotonic() > deadline:
                raise UnavailableError(
                    what="The demonstration", reason=f"{what} did not come", cure="Run it again."
                )
            time.sleep(0.05)

    def _facts(self, app: App, tasks: Mapping[str, str], killed: int) -> dict[str, Any]:
        ended = [app.tasks.get(task_id) for task_id in tasks.values()]
        done = [task for task in ended if task.status is TaskState.COMPLETED]
        effects = Counter(self._effects())
        wanted = {f"{name}-{number}" for name in tasks for number in (1, 2, 3)}
        with app.database.read() as connection:
            count = connection.execute(sa.select(sa.func.count()).select_from(events)).scalar_one()
            takeovers = connection.execute(
                sa.select(sa.func.count()).select_from(events).where(events.c.event == "takeover")
            ).scalar_one()
        report = verify(app.database, app.key)
        self._tell(f"{len(done)} of {len(ended)} tasks completed; {takeovers} attempts were taken over.")
        self._tell(
            f"{len(effects)} effects, {len(wanted - set(effects))} lost, {_doubled(effects)} repeated."
        )
        self._tell(f"Trace: {count} events, {'nothing altered' if report.ok else 'ALTERED'}.")
        return {
            "ok": len(done) == len(ended)
            and not wanted - set(effects)
            and not _doubled(effects)
            and report.ok,
            "simulated": True,
            "tasks": len(ended),
            "completed": len(done),
            "killed_supervisor": killed,
            "takeovers": takeovers,
            "effects": len(effects),
            "effects_lost": len(wanted - set(effects)),
            "effects_repeated": _doubled(effects),
            "branches": [branch for task in ended if (branch := _branch(task))],
            "events": count,
            "trace_verified": report.ok,
        }


def _doubled(effects: Counter[str]) -> int:
    return sum(1 for times in effects.values() if times > 1)


def _branch(task: Task) -> str:
    return str((task.result or {}).get("branch") or "")
