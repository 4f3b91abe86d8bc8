"""The real supervisor with real agent processes: killed, upgraded, left by its terminal; nothing else executes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from proctor.agents.identity import ProcessIdentity, survivors
from proctor.app import App
from proctor.config import load_settings
from proctor.engine import client
from proctor.engine.tasks import NewTask
from proctor.protocol.states import TASK, TaskState
from proctor.store.tables import attempts, events
from proctor.trace.verify import verify
from tests.faults.conftest import until
from tests.support.rows import rows_of
from tests.support.supervisors import stop_supervisor

pytestmark = pytest.mark.slow

PYTHON = sys.executable
# Five seconds are promised; a machine that does much else besides gets more. Nobody ends by itself within ten minutes.
GONE_S = 20.0
AGENTS = "".join(f'[agents.{name}]\ndriver = "scripted"\nmax_parallel = 4\n\n' for name in ("ann", "bob"))


@pytest.fixture
def app(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """A repository with two scripted agents and a home of its own; no supervisor is left at the end."""
    repository = tmp_path / "repo"
    repository.mkdir()
    (repository / "proctor.toml").write_text(AGENTS)
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=repository, check=True, timeout=60)
    monkeypatch.chdir(repository)
    made = App(load_settings())
    yield made
    stop_supervisor()
    made.close()


def script(*steps: dict[str, Any]) -> str:
    """A prompt for the scripted agent."""
    return f"x\nSCRIPT:{json.dumps({'steps': list(steps)})}"


def add(app: App, prompt: str, agent: str = "ann") -> str:
    """Put a task for this repository into the queue."""
    return app.tasks.add(NewTask(prompt, agent=agent, workspace=str(Path.cwd()))).task_id


def ended(app: App, *tasks: str) -> bool:
    """Whether all of them have."""
    return all(app.tasks.get(task).status in TASK.terminal for task in tasks)


def identities(app: App) -> list[ProcessIdentity]:
    """Everybody who ever worked."""
    rows = rows_of(app.database, sa.select(attempts.c.identity))
    return [ProcessIdentity.decode(row["identity"]) for row in rows if row["identity"]]


def test_kill_9_of_the_supervisor_leaves_no_process_and_repeats_no_step(app: App, tmp_path: Path) -> None:
    """Agents that ignore SIGTERM and left daemons behind are gone within five seconds; finished steps stay finished."""
    ledger = tmp_path / "ledger"
    tasks = [
        add(
            app,
            script(
                {"ignore_sigterm": True},
                {"run": f"echo {name}-1 >> '{ledger}'"},
                {"spawn_grandchild": 600},
                {"say": "rest"},
                {"sleep": 2.0},
                {"run": f"echo {name}-2 >> '{ledger}'"},
                {"write": f"{name}.txt", "content": name},
            ),
            agent,
        )
        for name, agent in (("one", "ann"), ("two", "bob"), ("three", "ann"))
    ]
    first = client.ensure(app.settings)
    until(lambda: _said(app, "rest") >= 3)
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not any(survivors(identity) for identity in identities(app)), GONE_S)
    client.ensure(app.settings)
    until(lambda: ended(app, *tasks))
    assert {app.tasks.get(task).status for task in tasks} == {TaskState.COMPLETED}
    steps = Counter(ledger.read_text().split())
    assert steps == dict.fromkeys([f"{n}-{k}" for n in ("one", "two", "three") for k in (1, 2)], 1)
    assert client.stop(app.settings.paths)
    until(lambda: not any(survivors(identity) for identity in identities(app)), GONE_S)
    assert verify(app.database, app.key).ok


def _said(app: App, text: str) -> int:
    rows = rows_of(app.database, sa.select(events.c.details).where(events.c.event == "message"))
    return sum(text in row["details"] for row in rows)


def test_a_task_goes_on_when_its_terminal_is_gone(app: App) -> None:
    """`proctor tasks add` in a session of its own, then SIGHUP and SIGKILL for everything in that session."""
    prompt = script({"sleep": 1.5}, {"write": "late.txt", "content": "late"})
    shell = ["sh", "-c", '"$0" -m proctor tasks add "$1" --agent ann --json; sleep 600', PYTHON, prompt]
    terminal = subprocess.Popen(shell, stdout=subprocess.PIPE, start_new_session=True, text=True)
    try:
        assert terminal.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = terminal.stdout.readline()
            assert line, text
            text += line
        task = json.loads(text)["task_id"]
    finally:
        for number in (signal.SIGHUP, signal.SIGKILL):
            os.killpg(terminal.pid, number)
        terminal.communicate()
    until(lambda: ended(app, task))
    done = app.tasks.get(task)
    assert (done.status, done.attempt) == (TaskState.COMPLETED, 1)
    assert (done.result or {})["files"] == ["late.txt"]


OLD_BUILD = """
import sys, types
import proctor
proctor.__version__ = "0.0.1"
from pathlib import Path
import importlib.util
spec = importlib.util.find_spec("proctor.engine.runtime")
text = Path(spec.origin).read_text()
new = text.replace(
    "    return await _handler[0](task_id, attempt)",
    "    said = [task_id, attempt]\\n    assert said\\n    return await _handler[0](*said)",
)
assert new != text
module = types.ModuleType("proctor.engine.runtime")
module.__file__ = spec.origin
module.__spec__ = spec
sys.modules["proctor.engine.runtime"] = module
exec(compile(new, spec.origin, "exec"), module.__dict__)
from proctor.cli.main import main
raise SystemExit(main(["supervisor"]))
"""


def test_runs_of_an_older_build_are_finished_by_the_new_one(app: App, tmp_path: Path) -> None:
    """Running, queued and parked tasks of a build with another workflow source and version: none is stranded."""
    ledger = tmp_path / "ledger"
    running = add(app, script({"run": f"echo 1 >> '{ledger}'"}, {"say": "rest"}, {"sleep": 2.0}))
    question = {"tool": "run", "input": {"command": "x"}}
    asking = script({"ask": question, "then": [{"run": f"echo 2 >> '{ledger}'"}]})
    held = add(app, asking, "bob")
    waiting = app.tasks.add(
        NewTask(script({"say": "3"}), agent="ann", depends_on=[running], workspace=str(Path.cwd()))
    ).task_id
    old = subprocess.Popen([PYTHON, "-c", OLD_BUILD])
    try:
        until(lambda: _said(app, "rest") == 1 and _questions(app) == 1)
        hello = client.greet(app.settings.paths)
        assert hello is not None
        assert hello.version == "0.0.1"
    finally:
        old.kill()
        old.wait(20)
    client.ensure(app.settings)
    until(lambda: ended(app, running, waiting))
    _approve(app)
    client.wake(app.settings.paths)
    until(lambda: ended(app, held))
    assert {app.tasks.get(task).status for task in (running, waiting, held)} == {TaskState.COMPLETED}
    assert sorted(ledger.read_text().split()) == ["1", "2"]


def _questions(app: App) -> int:
    with app.database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM approvals").scalar_one())


def _approve(app: App) -> None:
    from datetime import UTC, datetime

    from proctor.gate.approvals import answer_approval
    from proctor.store.tables import approvals

    (row,) = rows_of(app.database, sa.select(approvals))
    now = datetime.now(UTC)
    assert app.writer.transact(
        lambda c: answer_approval(c, row["approval_id"], approved=True, by="ann", reason="", now=now)
    )


CLIENT = """
import sys, time
from dbos import DBOSClient
client = DBOSClient(system_database_url=sys.argv[1])
time.sleep(2)
print(len(client.list_workflows(status="ENQUEUED")), len(client.list_workflows(status="PENDING")))
"""


def test_no_other_process_executes(app: App) -> None:
    """Commands and a DBOS client on the same files look and write, but the queue stands until a supervisor comes."""
    task = add(app, script({"say": "hi"}))
    client.ensure(app.settings)
    until(lambda: ended(app, task))
    assert client.stop(app.settings.paths)
    url = app.settings.engine_database_url
    _enqueue(url)
    looked = subprocess.run(
        [PYTHON, "-c", CLIENT, url], capture_output=True, text=True, timeout=60, check=True
    )
    assert looked.stdout.split() == ["1", "0"]
    for words in (["tasks", "list", "--all"], ["status"]):
        program = "import sys; from proctor.cli.main import main; main(sys.argv[1:]); assert 'dbos' not in sys.modules"
        done = subprocess.run([PYTHON, "-c", program, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    assert client.greet(app.settings.paths) is None


def _enqueue(url: str) -> None:
    """Put a job into DBOS's queue as another process might."""
    program = (
        "import sys; from dbos import DBOSClient, DBOSPortableJSONSerializer as J\n"
        "c = DBOSClient(system_database_url=sys.argv[1], serializer=J())\n"
        "c.enqueue({'queue_name': 'tasks', 'workflow_name': 'proctor_attempt', 'priority': 1,"
        " 'workflow_id': 'ghost:1', 'app_version': 'proctor-1'}, 'ghost', 1)"
    )
    subprocess.run([PYTHON, "-c", program, url], timeout=60, check=True)
