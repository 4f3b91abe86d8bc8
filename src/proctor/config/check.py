"""Checking a settings file against the described settings: every wrong key, type or value names its line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proctor.config.files import Document
from proctor.config.kinds import NotAllowedError, near, type_name
from proctor.config.lines import KeyPath
from proctor.config.model import Meta, Settings
from proctor.config.options import metas
from proctor.protocol.errors import ConfigError

__all__ = ["Key", "Layer", "Leaf", "check_document", "unknown"]

Key = tuple[str, ...]
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
# One state per user: were these in a repository's file, a clone could carry the user's trace elsewhere.
OF_THE_USER = {"database_url": "PROCTOR_DATABASE_URL"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value, and where it was written: short for lists, in full for errors."""

    value: Any
    source: str
    where: str


@dataclass(slots=True)
class Layer:
    """What one file says: single values, and the tables that other rooms validate."""

    leaves: dict[Key, Leaf] = field(default_factory=dict)
    raw: dict[str, dict[str, Any]] = field(default_factory=dict)
    raw_sources: dict[KeyPath, str] = field(default_factory=dict)


def check_document(document: Document) -> Layer:
    """Check every key of a file and give its values."""
    layer = Layer()
    for name in document.values:
        if name in OF_THE_USER:
            problem = f"{name!r} belongs to the user, not to a repository"
            raise ConfigError(
                where=document.where((name,)), problem=problem, allowed=f"Set {OF_THE_USER[name]}."
            )
    _section(document, layer, (), document.values, Settings)
    return layer


def unknown(key: Key, known: Iterable[str]) -> tuple[str, str]:
    """Say that a key is not known, what is, and what was perhaps meant."""
    names = sorted(known)
    place = f" in [{'.'.join(key[:-1])}]" if len(key) > 1 else ""
    return f"{key[-1][:80]!r} is not a setting{place}", f"Allowed: {', '.join(names)}.{near(key[-1], names)}"


def _section(document: Document, layer: Layer, at: Key, table: dict[str, Any], section: type[Any]) -> None:
    known = metas(section)
    for name, value in table.items():
        key = (*at, name)
        if name not in known:
            problem, allowed = unknown(key, known)
            raise ConfigError(where=document.where(key), problem=problem, allowed=allowed)
        _entry(document, layer, key, value, known[name])


def _entry(document: Document, layer: Layer, key: Key, value: Any, meta: Meta) -> None:
    if meta.kind is not None:
        layer.leaves[key] = _leaf(document, key, _checked(document, key, value, meta))
    elif meta.raw:
        layer.raw[key[0]] = _table(document, key, value)
        below = {path: line for path, line in document.lines.items() if path[0] == key[0]}
        layer.raw_sources.update({path: document.source(path) for path in below})
    elif meta.texts:
        _texts(document, layer, key, _table(document, key, value))
    elif meta.named:
        _named(document, layer, key, _table(document, key, value), meta)
    else:
        assert meta.section is not None
        _section(document, layer, key, _table(document, key, value), meta.section)


def _named(document: Document, layer: Layer, at: Key, table: dict[str, Any], meta: Meta) -> None:
    assert meta.section is not None
    for name, value in table.items():
        key = (*at, name)
        _name(document, key, NAME, "a letter, then letters, digits, '-' or '_'")
        # A table without values still names its agent.
        layer.leaves[key] = _leaf(document, key, None)
        _section(document, layer, key, _table(document, key, value), meta.section)


def _texts(document: Document, layer: Layer, at: Key, table: dict[str, Any]) -> None:
    for name, value in table.items():
        key = (*at, name)
        _name(document, key, VARIABLE, "letters, digits and '_'")
        if not isinstance(value, str) or "\0" in value:
            problem = f"{'.'.join(key)} must be text, not {type_name(value)}"
            raise ConfigError(where=document.where(key), problem=problem, allowed="Put it in quotes.")
        layer.leaves[key] = _leaf(document, key, value)


def _name(document: Document, key: Key, pattern: re.Pattern[str], allowed: str) -> None:
    if not pattern.fullmatch(key[-1]):
        problem = f"{key[-1][:80]!r} cannot be a name in [{'.'.join(key[:-1])}]"
        raise ConfigError(where=document.where(key), problem=problem, allowed=f"Allowed: {allowed}.")


def _checked(document: Document, key: Key, value: Any, meta: Meta) -> Any:
    assert meta.kind is not None
    try:
        return meta.kind.check(value)
    except NotAllowedError as error:
        raise ConfigError(
            where=document.where(key),
            problem=f"{'.'.join(key)} {error.problem}",
            allowed=error.allowed or meta.doc,
        ) from None


def _table(document: Document, key: Key, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    problem = f"{'.'.join(key)} must be a table, not {type_name(value)}"
    raise ConfigError(
        where=document.where(key), problem=problem, allowed=f"Write [{'.'.join(key)}] above its values."
    )


def _leaf(document: Document, key: Key, value: Any) -> Leaf:
    return Leaf(value, document.source(key), document.where(key))
