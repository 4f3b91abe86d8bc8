"""docs/reference/seed-names.md says what is so: each row is imported, found or called; what comes later is not there."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from proctor.agents.model_spec import KEYS
from proctor.agents.roster import Roster
from proctor.cli.main import COMMANDS, cli
from proctor.compat import orchestrator
from proctor.config import OPTIONS
from proctor.config.database import DB_VARIABLES
from proctor.gate.policy import judge_command
from proctor.gate.profiles import find_profile
from proctor.protocol.events import CANONICAL, WORKER
from proctor.server.app import create_app
from proctor.store.columns import metadata
from proctor.testing.model_server import ModelServer
from proctor.tools.catalog import standard_registry
from tests.layers.tree import PACKAGE, ROOT
from tests.server.conftest import Door, served

PAGE = ROOT / "docs" / "reference" / "seed-names.md"
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (?:(later) )?(?:(\w+) )?`([^`|]+)` \|$", re.MULTILINE)
ROWS: list[tuple[str, str, str, str, str]] = ROW.findall(PAGE.read_text())
SEEDS = ("Seeds 000 and 001", "Seed 002", "Seed 003", "Seed 004")


# ── what there is ─────────────────────────────────────────────────────────────────────────────────────────────────


def _object(place: str) -> Any:
    module, _, names = place.partition(":")
    return reduce(getattr, names.split("."), importlib.import_module(module))


def _imported(place: str) -> bool:
    try:
        return _object(place) is not None
    except (ImportError, AttributeError):
        return False


def _module(name: str) -> bool:
    """Façades lie under their bare names, everything else in the package."""
    bare = PACKAGE / "compat" / "path" / Path(*name.split("."))
    if name.startswith("proctor."):
        return importlib.util.find_spec(name) is not None
    return bare.with_suffix(".py").exists() or (bare / "__init__.py").exists()


def _command(words: str) -> click.Command | None:
    first, *rest = words.split()
    found = cli.get_command(click.Context(cli), first) if first in COMMANDS else None
    for word in rest:
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found


def _option(words: str) -> bool:
    command, _, option = words.rpartition(" ")
    found = _command(command)
    return found is not None and any(option in one.opts for one in found.params)


def _listed(place: str) -> tuple[str, set[str]]:
    what, _, names = place.rpartition(": ")
    return what, set(names.split(", "))


def _columns(place: str) -> bool:
    table, wanted = _listed(place)
    return wanted <= {one.name for one in _tables()[table].columns}


@cache
def _tables() -> dict[str, Any]:
    tables = importlib.import_module("proctor.store.tables")
    return {**metadata.tables, "agent_status": tables.agent_status}


def _fields(place: str) -> bool:
    what, wanted = _listed(place)
    kind = _object(what)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return wanted <= {one.alias or name for name, one in kind.model_fields.items()}
    return wanted <= {one.name for one in dataclasses.fields(kind)}


def _inputs(place: str) -> bool:
    name, wanted = _listed(place)
    tool = standard_registry().find(name)
    return wanted <= {*tool.input.model_fields, *tool.parameter_aliases}


def _shaped(place: str, heard: Mapping[str, list[dict[str, Any]]]) -> bool:
    kind, wanted = _listed(place)
    found = [one for some in heard.values() for one in some if one["type"] == kind]
    return bool(found) and all(wanted <= set(one) for one in found)


def _values(place: str) -> bool:
    what, wanted = _listed(place)
    return wanted <= {one.value for one in _object(what)}


def _statuses(place: str) -> bool:
    module, wanted = _listed(place)
    status = importlib.import_module(module).Result.model_fields["status"].annotation
    return set(get_args(status)) == wanted


def _variable(name: str) -> bool:
    known = {variable for option in OPTIONS for variable in option.variables}
    return name in known | set(DB_VARIABLES) | {key for keys in KEYS.values() for key in keys}


def _policy(text: str) -> bool:
    """The page cannot hold a bar, so it holds one that looks like it."""
    return not judge_command(text.replace("│", "|")).allowed


def _test(place: str) -> bool:
    return callable(_object(place))


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server whose chat has a scripted model."""
    place = tmp_path_factory.mktemp("served")
    work = place / "work"
    work.mkdir()
    with ModelServer() as model:
        (work / ".env").write_text("OPENAI_API_KEY=sk-test\n")
        (work / "proctor.toml").write_text(f'[agents.SOLACE.api]\nbase_url = "{model.url}/v1"\n')
        with served(place) as made:
            yield made


@pytest.fixture(scope="module")
def routes(door: Door) -> set[str]:
    """Every route with its method."""
    web = create_app(door.app, door.front)
    found = {f"{method.upper()} {path}" for path, ops in web.openapi()["paths"].items() for method in ops}
    sockets = {
        f"WS {one.path}"
        for one in web.routes
        if hasattr(one, "path") and type(one).__name__.startswith("WebS")
    }
    return found | sockets


def _conversation(door: Door) -> dict[str, dict[str, Any]]:
    """One right message of each request."""
    place = str(door.workspace)
    (door.workspace / "a.txt").write_text("x")
    with door.socket() as line:
        saved = line.ask({"type": "create_backup", "data": {"workspace_path": place}})
    assert saved["type"] == "backup_created", saved
    return {
        "ping": {},
        "read_file": {"path": "a.txt"},
        "write_file": {"path": "b.txt", "content": "x"},
        "list_directory": {"path": ".", "progress": True},
        "chat": {"message": 'Hi FAKE:{"steps":[{"text":"hello"}]}'},
        "get_architecture": {},
        "query_schema": {"table_name": "task_queue"},
        "create_backup": {"workspace_path": place},
        "restore_backup": {"backup_path": saved["backup_path"], "workspace_path": place},
        "execute_command": {"command": "true"},
        "dance": {},
    }


@pytest.fixture(scope="module")
def heard(door: Door) -> Mapping[str, list[dict[str, Any]]]:
    """The frames each request was answered with."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, data in _conversation(door).items():
        with door.socket() as line:
            line.send({"type": kind, "data": data})
            frames = found.setdefault(kind, [])
            while not frames or frames[-1]["type"] == "status":
                frames.append(line.receive())
    return found


CHECKS: Mapping[str, Callable[[str], bool]] = {
    "": _imported,
    "module": _module,
    "tool": lambda name: name in standard_registry(),
    "event": lambda name: name in CANONICAL,
    "worker": lambda name: name in WORKER,
    "profile": lambda name: find_profile(name).name == name,
    "agent": lambda name: Roster({}).get(name).name == name,
    "table": lambda name: name in _tables(),
    "columns": _columns,
    "fields": _fields,
    "inputs": _inputs,
    "values": _values,
    "words": _statuses,
    "command": lambda words: _command(words) is not None,
    "option": _option,
    "file": lambda name: (ROOT / name).exists(),
    "variable": _variable,
    "setting": lambda key: f"`{key}`" in (ROOT / "docs" / "reference" / "settings.md").read_text(),
    "policy": _policy,
    "test": _test,
}


@pytest.mark.parametrize(
    ("seed", "ours", "when", "kind", "place"), ROWS, ids=[f"{n}-{row[0][:40]}" for n, row in enumerate(ROWS)]
)
def test_every_row_says_what_is_so(
    seed: str, ours: str, when: str, kind: str, place: str, request: pytest.FixtureRequest
) -> None:
    """What the page names is there under that name; what comes later is not."""
    if kind == "route":
        there = place in request.getfixturevalue("routes")
    elif kind == "request":
        last = request.getfixturevalue("heard")[place][-1]
        there = not str(last.get("message", "")).startswith("Unknown message type")
    elif kind == "frame":
        frames = [one for some in request.getfixturevalue("heard").values() for one in some]
        there = place in {frame["type"] for frame in frames}
    elif kind == "shape":
        there = _shaped(place, request.getfixturevalue("heard"))
    else:
        there = CHECKS[kind](place)
    assert there is (when == ""), f"{seed}: {place} is {'not ' if when == '' else ''}there"


def test_page_has_no_row_the_check_does_not_see() -> None:
    """A row in another form would not be checked; and all five seeds have rows, each name once."""
    text = PAGE.read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) - text.count("| seed name |") == len(ROWS)
    assert all(f"## {seed}" in text for seed in SEEDS)
    assert len({(row[0], row[4]) for row in ROWS}) == len(ROWS)
    assert all(row[0].strip() and row[1].strip() for row in ROWS)


def test_every_export_of_the_facades_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every name that imports under a seed's own name, every canonical event, every public method of the coordinator."""
    text = PAGE.read_text()
    families = {"FailureCategory", "FailureSeverity"}  # properties of FailureMode
    bare = PACKAGE / "compat" / "path"
    monkeypatch.setattr(sys, "path", [str(bare), *sys.path])
    names = [*orchestrator.__all__]
    for module in ("coordinator", "file_operations"):
        spec = importlib.util.spec_from_file_location(f"seed_{module}", bare / f"{module}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        names += made.__all__
    missing = [one for one in names if f"`{one}" not in text and f".{one}`" not in text]
    assert set(missing) <= families
    assert [name for name in CANONICAL if f"event `{name}`" not in text] == []
