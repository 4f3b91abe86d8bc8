"""The settings as people may see them: dotted keys, plain values, no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from proctor.config.model import RawTable, Settings
from proctor.config.secrets import hide, is_secret_name

__all__ = ["Row", "show_settings"]

HIDDEN = "***"


class Row(NamedTuple):
    """One setting with the value that holds and where it comes from."""

    key: str
    value: Any
    source: str


def show_settings(settings: Settings) -> list[Row]:
    """All settings with their sources; what is secret is replaced by ***."""
    rows = [Row("workspace", _text(settings.workspace), "current directory")]
    urls = {"database_url": settings.database_url, "engine_database_url": settings.engine_database_url}
    rows += [Row(key, hide(url, settings.secrets), settings.sources[key]) for key, url in urls.items()]
    for each in fields(settings):
        if "setting" in each.metadata:
            rows += _rows(settings, each.name, getattr(settings, each.name))
    return rows


def _rows(settings: Settings, key: str, value: Any) -> Iterator[Row]:
    if isinstance(value, RawTable):
        for path, source in value.sources.items():
            found = _at(value.values, path)
            if path and not isinstance(found, dict | list):
                dotted = ".".join([key, *map(str, path)])
                yield Row(dotted, _shown(settings, dotted, found), source)
    elif isinstance(value, Mapping):
        for name, below in value.items():
            yield from _rows(settings, f"{key}.{name}", below)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _rows(settings, f"{key}.{each.name}", getattr(value, each.name))
    else:
        yield Row(key, _shown(settings, key, value), settings.sources[key])


def _at(values: Any, path: tuple[str | int, ...]) -> Any:
    """What stands at a path; a shared file's path that the local file replaced stands nowhere."""
    for step in path:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return values


def _shown(settings: Settings, key: str, value: Any) -> Any:
    parent, _, name = key.rpartition(".")
    if parent.endswith("env") and is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return hide(value, settings.secrets)
    if isinstance(value, tuple):
        return [hide(element, settings.secrets) for element in value]
    return (
        value
        if value is None or isinstance(value, bool | int | float)
        else hide(str(value), settings.secrets)
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
