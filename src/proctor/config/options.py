"""The flat list of all settings, derived from the classes in `model`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from proctor.config.kinds import Kind
from proctor.config.model import Meta, Settings

__all__ = ["OPTIONS", "Option", "metas"]


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as people write it; `*` stands for a name of their own choice."""

    key: str
    kind: Kind | None
    word: str
    default: Any
    variables: tuple[str, ...]
    doc: str


def metas(section: type[Any]) -> dict[str, Meta]:
    """The settings of one class, by name."""
    return {f.name: f.metadata["setting"] for f in fields(section) if "setting" in f.metadata}


def _options(section: type[Any], prefix: str, fixed: bool) -> Iterator[Option]:
    for each in fields(section):
        meta: Meta | None = each.metadata.get("setting")
        if meta is None:
            continue
        key = f"{prefix}{each.name}"
        if meta.section is not None:
            yield from _options(
                meta.section, f"{key}.*." if meta.named else f"{key}.", fixed and not meta.named
            )
        else:
            yield _option(key, meta, each, fixed)


def _option(key: str, meta: Meta, each: Field[Any], fixed: bool) -> Option:
    if meta.kind is None:
        word = "table" if meta.raw else "text"
        return Option(f"{key}.*", None, word, None, (), meta.doc)
    names = (
        (f"PROCTOR_{key.replace('.', '_').upper()}", *meta.variables)
        if fixed and _fits_a_variable(each)
        else ()
    )
    return Option(key, meta.kind, meta.kind.word, each.default, names, meta.doc)


def _fits_a_variable(each: Field[Any]) -> bool:
    """Lists have no good form in a variable; single values do."""
    return each.default is MISSING or not isinstance(each.default, tuple)


OPTIONS: tuple[Option, ...] = tuple(_options(Settings, "", fixed=True))
