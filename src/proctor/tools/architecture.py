"""Architecture rules: how features are built here. Read, searched, added, edited, carried in and out as JSON.

What an edit replaces is kept in the trace. Changing a rule steers every later agent, so an agent's change is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from proctor.gate.context import Context
from proctor.protocol.errors import NotFoundError, UsageError
from proctor.protocol.events import Draft
from proctor.protocol.tools import SideEffect, Tool
from proctor.store.database import Database
from proctor.store.tables import architecture_rules
from proctor.tools.models import MARK, Moment, NothingIn, Stored, ToolInput, ToolOutput, now
from proctor.tools.registry import declare

__all__ = ["ARCHITECTURE_TOOLS", "ImportOut", "RuleIn", "RuleOut", "RulesOut", "load_rules", "matching"]

MOST: Final = 1000
FORMAT: Final = "proctor-architecture-rules/1"
FeatureType = Annotated[str, Field(min_length=1, max_length=100), Stored]
Words = Annotated[str, Field(max_length=10_000), Stored]
Lines = Annotated[list[Annotated[str, Field(max_length=2000), Stored]], Field(max_length=100)]
_COLUMNS: Final = (
    "backend_pattern",
    "frontend_pattern",
    "integration_points",
    "rules_description",
    "examples",
)


class RuleIn(ToolInput):
    """One rule, as it is added or carried in."""

    feature_type: FeatureType = Field(description="What it is about, such as agent_api_endpoint.")
    backend_pattern: Words | None = None
    frontend_pattern: Words | None = None
    integration_points: Lines = Field(default_factory=list)
    rules_description: Words | None = None
    examples: Lines = Field(default_factory=list)


class EditIn(ToolInput):
    """Which rule, and what of it changes."""

    id: int = Field(ge=1, lt=2**31)
    feature_type: FeatureType | None = None
    backend_pattern: Words | None = None
    frontend_pattern: Words | None = None
    integration_points: Lines | None = None
    rules_description: Words | None = None
    examples: Lines | None = None


class FilterIn(ToolInput):
    """About which kind of feature; all by default."""

    feature_type: FeatureType | None = Field(default=None, description="Only rules of this feature type.")


class SearchIn(ToolInput):
    """A word to look for."""

    keyword: str = Field(min_length=1, max_length=200, description="In feature type or description.")


class ImportIn(ToolInput):
    """Rules as export gives them."""

    rules: list[RuleIn] = Field(max_length=MOST)
    format: str | None = Field(default=None, max_length=100)


class Rule(BaseModel):
    """One rule as it stands."""

    model_config = ConfigDict(frozen=True)

    id: int
    feature_type: str
    backend_pattern: str | None
    frontend_pattern: str | None
    integration_points: list[str]
    rules_description: str | None
    examples: list[str]
    created_at: Moment
    updated_at: Moment


class RuleOut(ToolOutput):
    """One rule after a change."""

    message: str
    rule: Rule


class RulesOut(ToolOutput):
    """Rules, by feature type."""

    rules: list[Rule]
    count: int
    filter: str | None = None
    keyword: str | None = None
    truncated: bool = False


class ExportOut(ToolOutput):
    """Rules for another place."""

    format: str = FORMAT
    rules: list[RuleIn]
    count: int


class ImportOut(ToolOutput):
    """What came of the import."""

    message: str
    added: list[str]
    updated: list[str]
    unchanged: list[str]


def load_rules(database: Database, feature_type: str | None = None) -> list[Rule]:
    """Read the rules, by feature type; at most one more than are ever shown."""
    query = sa.select(architecture_rules).order_by(architecture_rules.c.feature_type, architecture_rules.c.id)
    if feature_type is not None:
        query = query.where(architecture_rules.c.feature_type == feature_type)
    with database.read() as connection:
        return [_rule(row) for row in connection.execute(query.limit(MOST + 1)).mappings()]


def matching(rules: Sequence[Rule], keyword: str) -> list[Rule]:
    """Those with the word in feature type or description, whatever its case, the same on both databases."""
    wanted = keyword.casefold()
    return [
        rule
        for rule in rules
        if wanted in rule.feature_type.casefold() or wanted in (rule.rules_description or "").casefold()
    ]


def _rule(row: Mapping[Any, Any]) -> Rule:
    texts = {name: [str(one) for one in row[name] or ()] for name in ("integration_points", "examples")}
    return Rule.model_validate({**row, **texts})


def _rules_out(rules: Sequence[Rule], **said: Any) -> RulesOut:
    shown = list(rules[:MOST])
    return RulesOut(rules=shown, count=len(shown), truncated=len(rules) > MOST, **said)


async def _get(context: Context, call: FilterIn) -> RulesOut:
    rules = await asyncio.to_thread(load_rules, context.database, call.feature_type)
    return _rules_out(rules, filter=call.feature_type)


async def _search(context: Context, call: SearchIn) -> RulesOut:
    rules = await asyncio.to_thread(load_rules, context.database)
    return _rules_out(matching(rules, call.keyword), keyword=call.keyword)


async def _add(context: Context, call: RuleIn) -> RuleOut:
    def change(connection: sa.Connection) -> tuple[Rule, list[Draft]]:
        return _rule(_insert(connection, call)), []

    return RuleOut(message="Rule added", rule=await context.writer.transact_async(change))


def _insert(connection: sa.Connection, rule: RuleIn) -> Mapping[Any, Any]:
    made = sa.insert(architecture_rules).values(**rule.model_dump()).returning(architecture_rules)
    return connection.execute(made).mappings().one()


async def _edit(context: Context, call: EditIn) -> RuleOut:
    values = call.model_dump(exclude_unset=True, exclude={"id"})
    if values.get("feature_type", "") is None:
        raise UsageError(message="A rule needs a feature_type; leave it out to keep it.")

    def change(connection: sa.Connection) -> tuple[Rule, list[Draft]]:
        before = _find(connection, architecture_rules.c.id == call.id)
        if before is None:
            raise NotFoundError(kind="architecture rule", name=str(call.id), cure="See `proctor rules list`.")
        return _update(context, connection, before, values)

    return RuleOut(message="Rule changed", rule=await context.writer.transact_async(change))


def _find(connection: sa.Connection, which: sa.ColumnElement[bool]) -> Rule | None:
    query = sa.select(architecture_rules).where(which).order_by(architecture_rules.c.id).limit(1)
    row = connection.execute(query).mappings().first()
    return None if row is None else _rule(row)


def _update(
    context: Context, connection: sa.Connection, before: Rule, values: Mapping[str, Any]
) -> tuple[Rule, list[Draft]]:
    """Change a rule; what it said before goes into the trace, so that nothing is lost."""
    lists = {name: values[name] or [] for name in ("integration_points", "examples") if name in values}
    mine = architecture_rules.c.id == before.id
    new = {**values, **lists, "updated_at": now()}
    connection.execute(sa.update(architecture_rules).where(mine).values(**new))
    after = _find(connection, mine)
    assert after is not None
    call = context.call
    told = Draft(
        call.trace_id,
        "note",
        actor=call.actor.kind,
        actor_name=call.actor.name,
        session_id=call.session_id,
        task_id=call.task_id,
        details={"what": "architecture rule changed", "before": before.model_dump(mode="json")},
    )
    return after, [told]


async def _export(context: Context, _call: NothingIn) -> ExportOut:
    rules = (await asyncio.to_thread(load_rules, context.database))[:MOST]
    plain = [RuleIn(**rule.model_dump(exclude={"id", "created_at", "updated_at"})) for rule in rules]
    return ExportOut(rules=plain, count=len(plain))


async def _import(context: Context, call: ImportIn) -> ImportOut:
    if call.format not in {None, FORMAT}:
        raise UsageError(message=f"This is not a list of rules of the form {FORMAT!r}.")

    def change(connection: sa.Connection) -> tuple[ImportOut, list[Draft]]:
        done: dict[str, list[str]] = {"added": [], "updated": [], "unchanged": []}
        drafts: list[Draft] = []
        for rule in call.rules:
            what, told = _carry_in(context, connection, rule)
            done[what].append(rule.feature_type)
            drafts += told
        counts = ", ".join(f"{len(names)} {what}" for what, names in done.items())
        said = f"Rules imported: {counts}"
        return ImportOut.model_validate({"message": said, **done}), drafts

    return await context.writer.transact_async(change)


def _carry_in(context: Context, connection: sa.Connection, rule: RuleIn) -> tuple[str, list[Draft]]:
    """Add a rule or bring the one of the same feature type up to date; importing twice changes nothing."""
    before = _find(connection, architecture_rules.c.feature_type == rule.feature_type)
    if before is None:
        _insert(connection, rule)
        return "added", []
    values = rule.model_dump(exclude={"feature_type"})
    if before.model_dump(include=set(_COLUMNS)) == values:
        return "unchanged", []
    return "updated", _update(context, connection, before, values)[1]


# ── simulated ──────────────────────────────────────────────────────────────────────────────────────────────


def _mock_rule(feature_type: str) -> Rule:
    at = now()
    return Rule(
        id=1,
        feature_type=feature_type,
        backend_pattern=MARK,
        frontend_pattern=None,
        integration_points=[],
        rules_description=f"{MARK} rule",
        examples=[],
        created_at=at,
        updated_at=at,
    )


async def _get_mock(_context: Context, call: FilterIn) -> RulesOut:
    rule = _mock_rule(call.feature_type or MARK)
    return RulesOut(simulated=True, rules=[rule], count=1, filter=call.feature_type)


async def _search_mock(_context: Context, call: SearchIn) -> RulesOut:
    return RulesOut(simulated=True, rules=[_mock_rule(MARK)], count=1, keyword=call.keyword)


async def _add_mock(_context: Context, call: RuleIn) -> RuleOut:
    return RuleOut(simulated=True, message=f"{MARK}: nothing was added", rule=_mock_rule(call.feature_type))


async def _edit_mock(_context: Context, call: EditIn) -> RuleOut:
    rule = _mock_rule(call.feature_type or MARK)
    return RuleOut(simulated=True, message=f"{MARK}: nothing was changed", rule=rule)


async def _export_mock(_context: Context, _call: NothingIn) -> ExportOut:
    return ExportOut(simulated=True, rules=[], count=0)


async def _import_mock(_context: Context, call: ImportIn) -> ImportOut:
    names = [rule.feature_type for rule in call.rules]
    message = f"{MARK}: nothing was imported"
    return ImportOut(simulated=True, message=message, added=names, updated=[], unchanged=[])


ARCHITECTURE_TOOLS: tuple[Tool, ...] = (
    declare(
        name="get_architecture_rules",
        summary="Query architecture rules from the database, all or of one feature type.",
        aliases=("query_architecture", "get_architecture"),
        input=FilterIn,
        output=RulesOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_get,
        mock=_get_mock,
        seconds=60.0,
    ),
    declare(
        name="search_architecture_rules",
        summary="Search architecture rules for a keyword in feature type or description.",
        input=SearchIn,
        output=RulesOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_search,
        mock=_search_mock,
        seconds=60.0,
    ),
    declare(
        name="add_architecture_rule",
        summary="Add an architecture rule.",
        input=RuleIn,
        output=RuleOut,
        domain="database",
        side_effect=SideEffect.EXECUTE,
        handler=_add,
        mock=_add_mock,
        reversible=False,
        seconds=60.0,
    ),
    declare(
        name="edit_architecture_rule",
        summary="Change parts of an architecture rule; what it said before stays in the trace.",
        input=EditIn,
        output=RuleOut,
        domain="database",
        side_effect=SideEffect.EXECUTE,
        handler=_edit,
        mock=_edit_mock,
        reversible=False,
        seconds=60.0,
    ),
    declare(
        name="export_architecture_rules",
        summary="Give all architecture rules as JSON for another place.",
        input=NothingIn,
        output=ExportOut,
        domain="database",
        side_effect=SideEffect.READ_ONLY,
        handler=_export,
        mock=_export_mock,
        seconds=60.0,
    ),
    declare(
        name="import_architecture_rules",
        summary="Take in architecture rules as export gives them; one of the same feature type is brought up to date.",
        input=ImportIn,
        output=ImportOut,
        domain="database",
        side_effect=SideEffect.EXECUTE,
        handler=_import,
        mock=_import_mock,
        reversible=False,
        seconds=60.0,
    ),
)
