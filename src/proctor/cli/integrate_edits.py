"""Edits of other programs' settings that touch nothing else: one entry put into JSON or TOML, or taken out. No I/O.

Invariants: every byte outside the entry stays as it was; what was put in comes out again without a trace; a text that cannot
be edited so for certain is refused with what to write by hand.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from proctor.proof.jsontext import JsonText, JsonTextError, scan_json
from proctor.protocol.errors import RefusedError

__all__ = ["EditError", "json_with", "json_without", "toml_table", "toml_with", "toml_without"]

_HEADER: Final = re.compile(r"^[ \t]*\[\[?([^\]\n]+)\]\]?[ \t]*(?:#[^\n]*)?$", re.MULTILINE)


class EditError(RefusedError):
    """Refused: {where} cannot be edited without touching the rest ({reason}). Put this in by hand: {entry}"""

    code = "cannot_edit"


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def json_with(text: str, group: str, name: str, entry: Mapping[str, Any], where: str) -> str:
    """The text with `group.name` set to the entry; unchanged when it says so already."""
    if not text.strip():
        return json.dumps({group: {name: entry}}, indent=2) + "\n"
    document = _scanned(text, group, name, entry, where)
    if group not in document.value:
        return document.with_member((), group, {name: dict(entry)})
    if document.value[group].get(name) == entry:
        return text
    return document.with_member((group,), name, dict(entry))


def json_without(text: str, group: str, name: str, where: str) -> str:
    """The text without `group.name`, and without the group when nothing else is in it."""
    if not text.strip():
        return text
    document = _scanned(text, group, name, {}, where)
    if name not in document.value.get(group, {}):
        return text
    whole = (group,) if len(document.value[group]) == 1 else (group, name)
    return _cut(document, whole)


def _scanned(text: str, group: str, name: str, entry: Mapping[str, Any], where: str) -> JsonText:
    by_hand = json.dumps({group: {name: entry}})
    try:
        document = scan_json(text, where)
    except JsonTextError as error:
        raise EditError(where=where, reason=str(error), entry=by_hand) from error
    if not isinstance(document.value, dict) or not isinstance(document.value.get(group, {}), dict):
        raise EditError(where=where, reason=f"{group} is no object", entry=by_hand)
    return document


def _cut(document: JsonText, path: tuple[str, ...]) -> str:
    """Take a member out with the comma and the blanks that came with it."""
    beside = sorted(
        (span for at, span in document.spans.items() if len(at) == len(path) and at[:-1] == path[:-1]),
        key=lambda span: span.begin,
    )
    mine = document.spans[path]
    place = beside.index(mine)
    text = document.text
    if place > 0:
        return text[: beside[place - 1].end] + text[mine.end :]
    if len(beside) > 1:
        return text[: mine.begin] + text[beside[1].begin :]
    around = document.spans[path[:-1]]
    return text[: around.start] + "{}" + text[around.end :]


# ── TOML ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def toml_table(name: str, entry: Mapping[str, Any]) -> str:
    """A table of texts, numbers and lists of texts, as it is written."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def toml_with(text: str, name: str, entry: Mapping[str, Any], where: str) -> str:
    """The text with the table set: replaced where it stands, else added at the end."""
    table = toml_table(name, entry)
    before = _parsed(text, name, table, where)
    if _found(before, name) == entry:
        return text
    place = _block(text, name)
    if place is not None:
        tail = text[place[1] :]
        edited = text[: place[0]] + table + ("\n" if tail else "") + tail
    elif _found(before, name) is not None:
        raise EditError(where=where, reason=f"{name} is not a table of its own", entry=table)
    else:
        edited = text + _gap(text) + table
    return _checked(text, edited, name, table, where)


def toml_without(text: str, name: str, where: str) -> str:
    """The text without the table and what is below it."""
    before = _parsed(text, name, "", where)
    if _found(before, name) is None:
        return text
    place = _block(text, name)
    if place is None:
        raise EditError(where=where, reason=f"{name} is not a table of its own", entry="(take it out)")
    head, tail = text[: place[0]], text[place[1] :]
    if not tail:
        head = head[:-1] if head.endswith("\n\n") else head  # the blank line that came with it
    return _checked(text, head + tail, name, "(take it out)", where)


def _gap(text: str) -> str:
    if not text:
        return ""
    return "\n" if text.endswith("\n") else "\n\n"


def _block(text: str, name: str) -> tuple[int, int] | None:
    """Where the table and the tables below it stand; only when they are together."""
    headers = [(found.start(), found[1].replace(" ", "")) for found in _HEADER.finditer(text)]
    mine = [number for number, (_, title) in enumerate(headers) if _below(title, name)]
    if not mine or mine != list(range(mine[0], mine[-1] + 1)) or headers[mine[0]][1] != name:
        return None
    end = headers[mine[-1] + 1][0] if mine[-1] + 1 < len(headers) else len(text)
    start = headers[mine[0]][0]
    # Comments right above the next header belong to that header.
    while end < len(text) and (above := text.rfind("\n", 0, end - 1) + 1) > start:
        if not text[above:end].lstrip().startswith("#"):
            break
        end = above
    return start, end


def _below(title: str, name: str) -> bool:
    return title == name or title.startswith(f"{name}.")


def _parsed(text: str, name: str, table: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise EditError(where=where, reason=f"it is not TOML: {error}", entry=table) from error


def _found(document: Any, name: str) -> Any:
    for part in name.split("."):
        document = document.get(part) if isinstance(document, Mapping) else None
    return document


def _checked(before: str, after: str, name: str, table: str, where: str) -> str:
    """What else the file says must be the same, or nothing is written."""
    if _without(_parsed(before, name, table, where), name) != _without(
        _parsed(after, name, table, where), name
    ):
        raise EditError(where=where, reason="the rest would change", entry=table)
    return after


def _without(document: dict[str, Any], name: str) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    if not rest:
        return {key: value for key, value in document.items() if key != first}
    inner = document.get(first)
    left = _without(inner, rest) if isinstance(inner, dict) else inner
    others = {key: value for key, value in document.items() if key != first}
    return {**others, first: left} if left else others
