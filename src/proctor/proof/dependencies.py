"""Which installed dependencies of the user's checkout a proof may borrow: only where the lock file is the same.

A directory such as `.venv` or `node_modules` is not in any commit. It is lent read-only to a leg when the files
that decide its content are equal in the leg's tree and beside it; otherwise the leg needs its own set-up.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["DEPENDENCY_FILES", "Borrowed", "borrowed", "dependency_facts"]

LOCKS = {
    ".venv": ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"),
    "node_modules": (
        *("pnpm-lock.yaml", "yarn.lock", "bun.lock", "bun.lockb", "package-lock.json", "npm-shrinkwrap.json"),
    ),
    "vendor": ("go.sum", "composer.lock", "Gemfile.lock", "Cargo.lock"),
    "deps": ("mix.lock",),
}
MANIFESTS = {
    ".venv": (
        *("pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "requirements.txt", "requirements-dev.txt"),
        *("requirements_dev.txt", "dev-requirements.txt"),
    ),
    "node_modules": ("package.json",),
    "vendor": ("go.mod", "composer.json", "Gemfile", "Cargo.toml"),
    "deps": ("mix.exs",),
}
_SAME = {".venv": (".venv", "venv")}
DEPENDENCY_FILES = frozenset(
    name for table in (LOCKS, MANIFESTS) for names in table.values() for name in names
)
_FILE_CAP = 16 << 20
_PYTHON = ("dependencies", "optional-dependencies", "requires-python", "name", "scripts", "entry-points")
_NODE = (
    *(
        "dependencies",
        "devDependencies",
        "optionalDependencies",
        "peerDependencies",
        "workspaces",
        "overrides",
    ),
    *("resolutions", "packageManager"),
)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """What is lent (paths from the repository's root), and why something is not."""

    directories: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether set-up can be left out."""
        return bool(self.directories) and not self.refused


def borrowed(root: Path, files: Mapping[str, bytes], tracked: frozenset[str] = frozenset()) -> Borrowed:
    """Decide for a leg whose tree holds these dependency files; `tracked` are directories that git has itself."""
    lent: list[str] = []
    refused: list[str] = []
    for folder in sorted({str(PurePosixPath(path).parent) for path in files} | {"."}):
        here = {
            PurePosixPath(p).name: data for p, data in files.items() if str(PurePosixPath(p).parent) == folder
        }
        for kind in LOCKS:
            for directory in _candidates(root, folder, kind):
                if directory in tracked:
                    continue
                differing = _differing(root / folder, here, kind)
                if differing:
                    refused.append(f"{directory}: {differing} differs from the one beside it")
                else:
                    lent.append(directory)
    return Borrowed(tuple(lent), tuple(refused))


def _candidates(root: Path, folder: str, kind: str) -> list[str]:
    names = [str(PurePosixPath(folder) / name) for name in _SAME.get(kind, (kind,))]
    return [name for name in names if (root / name).is_dir() and not (root / name).is_symlink()]


def _differing(place: Path, here: Mapping[str, bytes], kind: str) -> str:
    """The first file that decides this directory's content and is not the same on both sides."""
    both: Sequence[str] = [name for name in LOCKS[kind] if name in here or (place / name).is_file()]
    for name in both or [name for name in MANIFESTS[kind] if name in here or (place / name).is_file()]:
        ours, theirs = here.get(name), _read(place / name)
        if ours is None or theirs is None or dependency_facts(name, ours) != dependency_facts(name, theirs):
            return name
    return ""


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _FILE_CAP else None
    except OSError:
        return None


def dependency_facts(name: str, data: bytes) -> str:
    """What of a file decides the installed dependencies; all of it where that is not known better."""
    try:
        if name == "package.json":
            return _chosen(json.loads(data), _NODE)
        if name == "pyproject.toml":
            project = tomllib.loads(data.decode())
            tools = {tool: project.get("tool", {}).get(tool) for tool in ("poetry", "pdm", "uv", "hatch")}
            parts = [project.get(part) for part in ("build-system", "dependency-groups")]
            return _chosen(project.get("project", {}), _PYTHON) + _plain([tools, parts])
    except (ValueError, AttributeError):
        pass  # a broken file decides nothing that we could read, so all of it counts
    return data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def _chosen(table: Mapping[str, Any], keys: Sequence[str]) -> str:
    return _plain({key: table[key] for key in keys if key in table})


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
