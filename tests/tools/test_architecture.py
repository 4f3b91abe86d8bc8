"""Architecture rules: found the same way on both databases, changed without losing what they said."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.tools import CallState
from proctor.store.tables import architecture_rules, events
from tests.support.rows import rows_of
from tests.tools.conftest import AGENT, Desk

SEEDS = ["agent_api_endpoint", "health_monitoring", "trading_api_endpoint"]
COLUMNS = {
    *("id", "feature_type", "backend_pattern", "frontend_pattern", "integration_points"),
    *("rules_description", "examples", "created_at", "updated_at"),
}


@pytest.mark.parametrize("name", ["get_architecture_rules", "query_architecture", "get_architecture"])
async def test_all_rules_come_by_feature_type(each_desk: Desk, name: str) -> None:
    """Three names, one answer: rules with all columns, count and filter."""
    got = await each_desk.call(name)
    assert [rule["feature_type"] for rule in got["rules"]] == SEEDS
    assert (got["count"], got["filter"], got["truncated"]) == (3, None, False)
    assert set(got["rules"][0]) == COLUMNS
    one = await each_desk.call(name, feature_type="health_monitoring")
    assert (one["count"], one["filter"]) == (1, "health_monitoring")


async def test_bug_13_no_rule_is_an_empty_list(each_desk: Desk) -> None:
    """Never null."""
    assert (await each_desk.call("query_architecture", feature_type="nothing"))["rules"] == []
    assert (await each_desk.call("search_architecture_rules", keyword="zzz"))["rules"] == []


@pytest.mark.parametrize(
    ("keyword", "found"), [("AGENT_api", 1), ("Endpoint", 2), ("%", 0), ("_", 3), ("ÄÖ", 1)]
)
async def test_search_ignores_case_and_takes_every_letter_as_itself(
    each_desk: Desk, keyword: str, found: int
) -> None:
    """In feature type or description; `%` is no wildcard; umlauts have no case either."""
    if keyword == "ÄÖ":
        await each_desk.call("add_architecture_rule", feature_type="x", rules_description="mit äöü")
    got = await each_desk.call("search_architecture_rules", keyword=keyword)
    assert (got["count"], got["keyword"]) == (found, keyword)


async def test_rule_is_added_and_edited_and_its_past_kept(each_desk: Desk) -> None:
    """Only what is named changes, lists stay lists, and the trace has what was replaced."""
    added = await each_desk.call(
        "add_architecture_rule", feature_type="cli", examples=["a"], backend_pattern="old"
    )
    rule = added["rule"]
    assert (rule["integration_points"], rule["examples"]) == ([], ["a"])
    edited = (await each_desk.call("edit_architecture_rule", id=rule["id"], backend_pattern="new"))["rule"]
    assert (edited["backend_pattern"], edited["examples"]) == ("new", ["a"])
    assert edited["updated_at"] > rule["updated_at"]
    notes = rows_of(each_desk.database, sa.select(events).where(events.c.event == "note"))
    assert '"backend_pattern":"old"' in notes[0]["details"]
    with pytest.raises(NotFoundError):
        await each_desk.call("edit_architecture_rule", id=999, backend_pattern="x")
    with pytest.raises(UsageError):
        await each_desk.call("edit_architecture_rule", id=rule["id"], feature_type=None)


async def test_export_and_import_fit_each_other(each_desk: Desk) -> None:
    """Importing an export changes nothing; a changed rule is brought up to date, a new one added."""
    out = await each_desk.call("export_architecture_rules")
    same = {"format": out["format"], "rules": out["rules"]}
    again = await each_desk.call("import_architecture_rules", **same)
    assert (again["added"], again["updated"], again["unchanged"]) == ([], [], SEEDS)
    rules = [{**out["rules"][0], "backend_pattern": "other"}, {"feature_type": "fresh"}]
    done = await each_desk.call("import_architecture_rules", rules=rules)
    assert (done["added"], done["updated"]) == (["fresh"], [SEEDS[0]])
    assert (await each_desk.call("get_architecture", feature_type=SEEDS[0]))["rules"][0][
        "backend_pattern"
    ] == "other"
    with pytest.raises(UsageError):
        await each_desk.call("import_architecture_rules", rules=[], format="something else")


@pytest.mark.parametrize(
    "tool", ["add_architecture_rule", "edit_architecture_rule", "import_architecture_rules"]
)
async def test_agent_does_not_change_rules_without_a_person(desk: Desk, tool: str) -> None:
    """A rule steers every later agent, so its change asks in every profile."""
    inputs: dict[str, dict[str, Any]] = {
        "add_architecture_rule": {"feature_type": "evil"},
        "edit_architecture_rule": {"id": 1, "backend_pattern": "evil"},
        "import_architecture_rules": {"rules": [{"feature_type": "evil"}]},
    }
    done = await desk.result(tool, actor=AGENT, **inputs[tool])
    assert done.state is CallState.WAITING
    assert "evil" not in str(rows_of(desk.database, sa.select(architecture_rules)))


async def test_mock_changes_no_rule(desk: Desk) -> None:
    """Simulated rules are not stored."""
    before = rows_of(desk.database, sa.select(architecture_rules))
    got = await desk.call("add_architecture_rule", adapter="mock", feature_type="x")
    await desk.call("import_architecture_rules", adapter="mock", rules=[{"feature_type": "x"}])
    await desk.call("edit_architecture_rule", adapter="mock", id=1, backend_pattern="x")
    assert "SIMULATED" in got["message"]
    assert (await desk.call("search_architecture_rules", adapter="mock", keyword="x"))["simulated"] is True
    assert (await desk.call("export_architecture_rules", adapter="mock"))["simulated"] is True
    assert rows_of(desk.database, sa.select(architecture_rules)) == before
