"""Schemathesis over our own OpenAPI document, against a live server: whatever is sent, no answer is a defect and none hangs.

What would reach beyond the test's workspace is put back into it: commands are harmless, other places are this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from proctor.server.app import TAGS
from tests.conftest import TEMPLATE
from tests.server.conftest import Door, served
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.slow
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
# Streams have no end: test_traces holds them.
ENDLESS = {"/api/events"}
EXAMPLES = 8
BODIES = 24
SECONDS = 30


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server of its own: what is sent here changes its profile, pauses it and fills its tables."""
    place = tmp_path_factory.mktemp("fuzzed")
    if request.param == "sqlite":
        with served(place) as made:
            yield made
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with server.fresh(TEMPLATE) as url, served(place, database_url=url) as made:
        yield made


def _operations(door: Door, tag: str) -> list[APIOperation[Any, Any, Any, Any]]:
    document = door.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    found = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    return [one for one in found if tag in (one.tags or ()) and one.path not in ENDLESS]


def _tamed(value: Any, workspace: Path) -> Any:
    """Keep commands and places inside the test."""
    fixed = {
        "workspace": str(workspace),
        "workspace_path": str(workspace),
        "command": "true",
        "cwd": ".",
        "hold": 0,
    }
    if isinstance(value, dict):
        return {name: fixed.get(name, _tamed(one, workspace)) for name, one in value.items()}
    return [_tamed(one, workspace) for one in value] if isinstance(value, list) else value


def _send(door: Door, case: Case[Any]) -> None:
    case.query = _tamed(case.query, door.workspace)
    case.body = _tamed(case.body, door.workspace)
    for name in [name for name in case.headers if name.lower() in {"x-solace-api-key", "authorization"}]:
        del case.headers[name]  # who is asking is tested elsewhere; here everything is to be let in
    answer = case.call(base_url=door.http, headers=door.headers, timeout=SECONDS)
    assert answer.status_code != 500, (case.as_curl_command(), answer.text)
    case.validate_response(answer, checks=CHECKS)


@pytest.mark.parametrize("tag", [tag["name"] for tag in TAGS])
def test_no_request_is_a_defect(fuzzed: Door, tag: str) -> None:
    """Every operation, with inputs that fit and inputs that do not: documented statuses and bodies, never a 500."""
    operations = _operations(fuzzed, tag)
    assert operations or tag == "traces"
    for operation in operations:
        fitting = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        wrong = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)
        both = st.one_of(fitting, wrong) if _can_be_wrong(operation) else fitting

        @settings(
            max_examples=EXAMPLES,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=both)
        def one(case: Case[Any]) -> None:
            _send(fuzzed, case)

        one()
    assert fuzzed.get("/health").status_code == 200


NASTY: tuple[Any, ...] = (
    "\ud800",
    "a\0b",
    "x" * 70_000,
    10**400,
    -(2**63) - 1,
    1e308,
    [[]] * 50,
    {"\ud800\0": "\udfff"},
)


def _replaced(value: Any, nasty: Any) -> Iterator[Any]:
    """The same with one leaf after the other made nasty."""
    if isinstance(value, dict):
        for name in value:
            yield from ({**value, name: one} for one in _replaced(value[name], nasty))
    elif isinstance(value, list) and value:
        yield from ([one, *value[1:]] for one in _replaced(value[0], nasty))
    else:
        yield nasty


@pytest.mark.parametrize("tag", [tag["name"] for tag in TAGS])
def test_values_nobody_can_keep_are_refused(fuzzed: Door, tag: str) -> None:
    """Half characters, NUL, endless texts and numbers in any field of a body that fits: an answer, never a 500."""
    sent = 0
    failed: list[tuple[str, str, str]] = []
    for operation in _operations(fuzzed, tag):
        if not list(operation.body):
            continue

        @settings(
            max_examples=1, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def one(case: Case[Any]) -> None:
            nonlocal sent
            path = case.formatted_path
            bodies = [
                body
                for pair in zip(*(_replaced(case.body, nasty) for nasty in NASTY), strict=True)
                for body in pair
            ][:BODIES]
            for body in bodies:
                raw = json.dumps(_tamed(body, fuzzed.workspace))
                headers = {**fuzzed.headers, "Content-Type": "application/json"}
                answer = fuzzed.request(case.method, path, content=raw, headers=headers)
                if answer.status_code == 500:
                    failed.append((path, raw[:300], answer.text[-300:]))
                answer.json()
                sent += 1

        one()
    assert failed == []
    assert sent or tag in {"calls", "plans", "traces", "cost", "backups", "health"}


FRAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("read_file", ("path",)),
    ("write_file", ("path", "content")),
    ("list_directory", ("path", "max_depth")),
    ("get_architecture", ("feature_type",)),
    ("query_schema", ("table_name",)),
    ("restore_backup", ("backup_path",)),
    ("command_status", ("job_id",)),
    ("search_architecture_rules", ("keyword",)),
    ("show_task", ("task",)),
)


def test_frames_with_values_nobody_can_keep_are_answered(fuzzed: Door) -> None:
    """The same over the WebSocket: one answer each that is no defect, and the connection stays."""
    place = {"workspace_path": str(fuzzed.workspace)}
    with fuzzed.socket() as line:
        for kind, names in FRAMES:
            for nasty in NASTY:
                usual = dict.fromkeys(names, "a") | (place if kind == "restore_backup" else {})
                for name in (*names, "id", "trace_id"):
                    top = {name: nasty} if name in {"id", "trace_id"} else {}
                    frame = line.ask({"type": kind, "data": usual | ({} if top else {name: nasty}), **top})
                    assert "defect" not in str(frame.get("message", "")).lower(), (kind, name, nasty, frame)
        assert line.ask({"type": "ping"})["type"] == "pong"


def _can_be_wrong(operation: APIOperation[Any, Any, Any, Any]) -> bool:
    """Whether it takes anything at all that could be wrong."""
    return bool(list(operation.body) or list(operation.query) or list(operation.path_parameters))
