"""Loading: defaults, proctor.toml, proctor.local.toml, .env, the environment; each wins over those before it.

The only place that reads the process's environment. Loading creates nothing on disk.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from proctor.config.check import Key, Layer, Leaf, check_document
from proctor.config.database import DATABASE_VARIABLE, choose_databases
from proctor.config.dotenv import Variable, read_dotenv
from proctor.config.files import read_document
from proctor.config.kinds import NotAllowedError, near
from proctor.config.model import PROFILES, Meta, RawTable, Settings
from proctor.config.options import OPTIONS
from proctor.config.paths import Paths
from proctor.config.secrets import find_secrets
from proctor.protocol.errors import ConfigError

__all__ = [
    "LOCAL_FILE",
    "SHARED_FILE",
    "current_directory",
    "environment",
    "find_workspace",
    "is_loopback",
    "load_settings",
]

SHARED_FILE = "proctor.toml"
LOCAL_FILE = "proctor.local.toml"
PREFIX = "PROCTOR_"


def environment() -> dict[str, str]:
    """A copy of the process's environment, for those who must hand it on to a child."""
    return dict(os.environ)


def load_settings(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Read all settings that hold in `start` (the current directory by default)."""
    begin = current_directory() if start is None else _resolved(start)
    real = environment() if environ is None else dict(environ)
    paths = Paths.from_environ(real)
    workspace = find_workspace(begin)
    dotenv = read_dotenv(workspace / ".env") if workspace else {}
    layer = _merged(_file_layers(workspace, begin))
    layer.leaves.update(
        _variables({name: Leaf(v.value, f".env:{v.line}", f".env:{v.line}") for name, v in dotenv.items()})
    )
    layer.leaves.update(
        _variables({name: Leaf(value, *[f"environment {name}"] * 2) for name, value in real.items()})
    )
    return _settings(paths, workspace, layer, real, dotenv)


def find_workspace(start: Path) -> Path | None:
    """The nearest directory upward with proctor.toml or .git; never a parent that anybody may write to."""
    for place in (start, *start.parents):
        marked = any(os.path.lexists(place / name) for name in (SHARED_FILE, ".git"))
        if marked and (place == start or not _open_to_all(place)):
            return place
    return None


def _open_to_all(place: Path) -> bool:
    """In /tmp and the like another user could plant settings, and settings name commands that we run."""
    try:
        return bool(place.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True


def current_directory() -> Path:
    """Where we are, links resolved; one sentence if that place is gone."""
    return _resolved(Path())


def _resolved(place: Path) -> Path:
    try:
        return place.resolve()
    except (OSError, RuntimeError, ValueError):
        where, cure = ("the current directory" if place == Path() else str(place)), "Change to one that does."
        raise ConfigError(where=where, problem="it does not exist any more", allowed=cure) from None


def _file_layers(workspace: Path | None, begin: Path) -> Iterator[Layer]:
    for name in (SHARED_FILE, LOCAL_FILE) if workspace else ():
        assert workspace is not None
        path = workspace / name
        document = read_document(path, name if workspace == begin else str(path))
        if document is not None:
            yield check_document(document)


def _merged(layers: Iterator[Layer]) -> Layer:
    whole = Layer()
    for layer in layers:
        whole.leaves.update(layer.leaves)
        whole.raw = _deep(whole.raw, layer.raw)
        whole.raw_sources.update(layer.raw_sources)
    return whole


def _deep(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Lay one table over another; only tables merge, everything else replaces."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = _deep(merged[name], value) if both else value
    return merged


def _variables(given: Mapping[str, Leaf]) -> dict[Key, Leaf]:
    """Take the settings that variables give; an empty variable is none, a misspelt one is an error."""
    _refuse_misspelt(given)
    found: dict[Key, Leaf] = {}
    for option in OPTIONS:
        for name in reversed(option.variables):
            leaf = given.get(name)
            if leaf is not None and leaf.value and option.kind is not None:
                found[tuple(option.key.split("."))] = _parsed(option.kind.parse, leaf)
    return found


def _parsed(parse: Any, leaf: Leaf) -> Leaf:
    try:
        return Leaf(parse(leaf.value), leaf.source, leaf.where)
    except NotAllowedError as error:
        raise ConfigError(
            where=leaf.where, problem=f"the value {error.problem}", allowed=error.allowed
        ) from None


def _refuse_misspelt(given: Mapping[str, Leaf]) -> None:
    """A variable that nearly names a setting would be silently without effect: a wrong profile, no limit."""
    known = {name.removeprefix(PREFIX) for option in OPTIONS for name in option.variables} | {"DATABASE_URL"}
    for name, leaf in given.items():
        rest = name.removeprefix(PREFIX)
        close = difflib.get_close_matches(rest, known, n=1, cutoff=0.85)
        if name.startswith(PREFIX) and rest not in known and close:
            allowed = f"Did you mean {PREFIX}{close[0]}?"
            raise ConfigError(where=leaf.where, problem=f"{name} is not a setting", allowed=allowed)


def _settings(
    paths: Paths, workspace: Path | None, layer: Layer, real: dict[str, str], dotenv: dict[str, Variable]
) -> Settings:
    builder = _Builder(layer)
    values = builder.build(Settings, ())
    _check_profile(layer)
    _check_addresses(layer)
    if not values["project"].name and workspace is not None:
        values["project"] = replace(values["project"], name=_printable(workspace.name))
    url, at = _database_url(real, dotenv)
    databases = choose_databases(paths, real, url, at)
    sources = {"database_url": databases.source, "engine_database_url": databases.source, **builder.sources}
    merged = {**{name: variable.value for name, variable in dotenv.items()}, **real}
    return Settings(
        paths=paths,
        workspace=workspace,
        database_url=databases.url,
        engine_database_url=databases.engine_url,
        secrets=find_secrets(
            [*real.items(), *((n, v.value) for n, v in dotenv.items()), *_tables(layer), ("", url)]
        ),
        environ=MappingProxyType(merged),
        sources=MappingProxyType(sources),
        **values,
    )


def _printable(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _tables(layer: Layer) -> Iterator[tuple[str, str]]:
    """Variables that the files give to commands and agents may be secrets too."""
    return ((key[-1], leaf.value) for key, leaf in layer.leaves.items() if "env" in key[:-1])


def _database_url(real: Mapping[str, str], dotenv: Mapping[str, Variable]) -> tuple[str, str]:
    if real.get(DATABASE_VARIABLE):
        return real[DATABASE_VARIABLE], f"environment {DATABASE_VARIABLE}"
    # In the environment the seeds' variables come before the .env, which never overrides the environment.
    if DATABASE_VARIABLE in dotenv and not real.get("DB_HOST"):
        return dotenv[DATABASE_VARIABLE].value, f".env:{dotenv[DATABASE_VARIABLE].line}"
    return "", ""


def _check_profile(layer: Layer) -> None:
    leaf = layer.leaves.get(("profile",))
    known = [*PROFILES, *layer.raw.get("profiles", {})]
    if leaf is not None and leaf.value not in known:
        allowed = f"Allowed: {', '.join(known)}.{near(leaf.value, known)}"
        raise ConfigError(
            where=leaf.where, problem=f"there is no profile {leaf.value[:80]!r}", allowed=allowed
        )


def _check_addresses(layer: Layer) -> None:
    """A repository must not decide to which machine the user's API key is sent."""
    for key, leaf in layer.leaves.items():
        shared = leaf.source.startswith(f"{SHARED_FILE}:")
        if key[-1] == "base_url" and shared and not is_loopback(str(leaf.value)):
            problem = "an API's address that is not on this machine may not come with the repository"
            allowed = f"Your key would be sent there. If you want that, move the line to {LOCAL_FILE}."
            raise ConfigError(where=leaf.where, problem=problem, allowed=allowed)


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Builder:
    """Makes the settings' classes from single values and notes where each came from."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.sources: dict[str, str] = {}

    def build(self, section: type[Any], at: Key) -> dict[str, Any]:
        described = [f for f in fields(section) if "setting" in f.metadata]
        return {f.name: self.value(f.metadata["setting"], (*at, f.name), f.default) for f in described}

    def value(self, meta: Meta, key: Key, default: Any) -> Any:
        if meta.kind is not None:
            return self.leaf(key, default)
        if meta.raw:
            return self.raw(key[0])
        if meta.texts:
            return MappingProxyType({name: self.leaf((*key, name), "") for name in self.names(key)})
        assert meta.section is not None
        if meta.named:
            return MappingProxyType(
                {name: self.agent(meta.section, (*key, name)) for name in self.names(key)}
            )
        return meta.section(**self.build(meta.section, key))

    def leaf(self, key: Key, default: Any) -> Any:
        found = self.layer.leaves.get(key)
        self.sources[".".join(key)] = found.source if found else "default"
        return found.value if found else default

    def agent(self, section: type[Any], key: Key) -> Any:
        values = self.build(section, key)
        return section(**{**values, "driver": values["driver"] or key[-1]})

    def raw(self, name: str) -> RawTable:
        sources = {path[1:]: at for path, at in self.layer.raw_sources.items() if path[0] == name}
        return RawTable(MappingProxyType(self.layer.raw.get(name, {})), MappingProxyType(sources))

    def names(self, at: Key) -> list[str]:
        depth = len(at)
        return list(dict.fromkeys(k[depth] for k in self.layer.leaves if len(k) > depth and k[:depth] == at))
