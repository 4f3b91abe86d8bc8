"""The catalogue of backups: the directories in the base, their facts, names and pins. No locks, no contents."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from proctor.protocol.errors import IntegrityError, NotFoundError, RefusedError
from proctor.workspace.history import History
from proctor.workspace.journal import write_durably
from proctor.workspace.manifest import Manifest, decode, encode
from proctor.workspace.packs import fsync_dir

__all__ = ["Backup", "BackupKind", "Catalog", "file_key"]

BackupKind = Literal["backup", "auto", "safety"]

_META, _MANIFEST, _PINS = "backup.json", "manifest", "pins"
_OURS = re.compile(r"_\d{8}_\d{6}(_\d+)?$")


@dataclass(frozen=True)
class Backup:
    """One backup, without its manifest."""

    id: str
    path: Path
    workspace: Path
    created_at: datetime
    kind: BackupKind
    reason: str
    entries: int
    size: int
    stored_bytes: int
    problems: tuple[tuple[str, str], ...]  # path and why it could not be read
    excluded: tuple[str, ...] = ()
    undoes: str = ""  # the backup an undo went back to, when this was taken before that undo
    undoable: bool = False
    pinned: bool = False
    branch: str = ""
    head: str = ""
    history: str = ""  # a digest of where git's history stood, branch and commit and every ref

    @property
    def stood(self) -> History | None:
        """Where git's history stood, if there was one."""
        return History(self.branch, self.head, self.history) if self.history else None

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.path.name

    @property
    def timestamp(self) -> str:
        """`YYYY-MM-DD_HHMMSS`, with the suffix of a second one in the same second."""
        day, _, rest = self.name.removeprefix(f"{_slug(self.workspace)}_").partition("_")
        return f"{day[:4]}-{day[4:6]}-{day[6:]}_{rest}"

    @property
    def complete(self) -> bool:
        """Tell whether everything could be read."""
        return not self.problems


class Catalog:
    """The backups of one base directory."""

    def __init__(self, base: Path) -> None:
        self.base = base

    def listing(self, workspace: Path | None = None) -> list[Backup]:
        """All backups, the newest first; of one workspace when it is named."""
        place = None if workspace is None else _resolved(workspace)
        found = [backup for backup in map(self._load, self._directories()) if backup is not None]
        mine = [backup for backup in found if place is None or backup.workspace == place]
        return sorted(mine, key=lambda backup: (backup.created_at, backup.id), reverse=True)

    def find(self, name: str, workspace: Path | None = None) -> Backup:
        """Find one by path, directory name, id or timestamp; anything else is not a backup."""
        every = self.listing(workspace)
        wanted = name.rstrip("/") or name
        for backup in every:
            if wanted in {backup.id, backup.name} or _same_place(wanted, backup.path):
                return backup
        by_time = [
            backup for backup in every if wanted in {backup.timestamp, backup.timestamp.replace("-", "")}
        ]
        if len(by_time) > 1:
            names = ", ".join(backup.name for backup in by_time)
            raise RefusedError(reason=f"{name!r} fits several backups: {names}", cure="Name one of them.")
        if not by_time:
            raise NotFoundError(kind="backup", name=name, cure="`proctor backup list` shows what there is.")
        return by_time[0]

    def manifest(self, backup: Backup) -> Manifest:
        """Load and check what a backup holds."""
        try:
            manifest = decode((backup.path / _MANIFEST).read_bytes())
        except FileNotFoundError:
            raise NotFoundError(kind="backup", name=backup.name, cure="It was removed meanwhile.") from None
        except (ValueError, EOFError) as error:
            raise IntegrityError(what=f"The manifest of {backup.name}", reason=str(error)) from error
        manifest.check()
        return manifest

    def live_digests(self) -> set[bytes]:
        """Every blob that any manifest names, also of a backup whose facts are damaged; raises if one is unreadable."""
        live: set[bytes] = set()
        for path in self._directories():
            if (path / _MANIFEST).exists():
                try:
                    live |= decode((path / _MANIFEST).read_bytes()).digests()
                except (IntegrityError, ValueError, OSError) as error:
                    raise IntegrityError(
                        what=f"The manifest of {path.name}", reason=f"{error} Nothing was collected"
                    ) from error
        return live

    def remove_leftovers(self) -> int:
        """Take away what crashed creates left; only while nobody else is at work."""
        leftovers = [path for path in self._directories() if _is_leftover(path)]
        for path in leftovers:
            shutil.rmtree(path, ignore_errors=True)
        return len(leftovers)

    def discard(self, backup: Backup) -> None:
        """Take back a backup that turned out to be needless; its blobs stay until the next collection."""
        _remove(backup.path)

    def pin(self, backup: Backup, owner: str) -> None:
        """Keep a backup for as long as `owner` (an open run) needs it."""
        write_durably(backup.path / _PINS / file_key(owner), owner.encode())

    def unpin(self, backup: Backup, owner: str) -> None:
        """Let go of it again."""
        (backup.path / _PINS / file_key(owner)).unlink(missing_ok=True)

    def is_pinned_by(self, backup: Backup, owner: str) -> bool:
        """Tell whether that owner holds it."""
        return (backup.path / _PINS / file_key(owner)).exists()

    def claim(self, workspace: Path, moment: datetime) -> Path:
        """Make the directory of a new backup; a second one in the same second gets a suffix."""
        self.base.mkdir(parents=True, exist_ok=True, mode=0o700)
        stem = f"{_slug(workspace)}_{moment.astimezone().strftime('%Y%m%d_%H%M%S')}"
        number = 1
        while True:
            path = self.base / (stem if number == 1 else f"{stem}_{number}")
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
            else:
                return path

    def publish(self, backup: Backup, manifest: Manifest, pin: str) -> None:
        """Give the backup its facts, its pin and, last, the manifest that makes it one."""
        raw = encode(manifest)
        facts = asdict(backup) | {
            "workspace": str(backup.workspace),
            "created_at": backup.created_at.isoformat(),
        }
        del facts["path"], facts["pinned"]
        with (backup.path / _META).open("xb") as file:
            file.write(json.dumps(facts, indent=2).encode())
            file.flush()
            os.fsync(file.fileno())
        if pin:
            self.pin(backup, pin)
        write_durably(backup.path / _MANIFEST, raw)
        fsync_dir(self.base)

    def _directories(self) -> list[Path]:
        if not self.base.is_dir():
            return []
        with os.scandir(self.base) as listing:
            return [
                Path(item.path)
                for item in listing
                if item.name != ".store" and item.is_dir(follow_symlinks=False)
            ]

    def _load(self, path: Path) -> Backup | None:
        """Read a backup's facts; a directory without manifest and facts is not a backup."""
        if not (path / _MANIFEST).is_file():
            return None
        try:
            facts: dict[str, Any] = json.loads((path / _META).read_text())
            pins = path / _PINS
            return Backup(
                **facts
                | {
                    "path": path,
                    "workspace": Path(facts["workspace"]),
                    "created_at": datetime.fromisoformat(facts["created_at"]),
                    "problems": tuple((where, why) for where, why in facts["problems"]),
                    "excluded": tuple(facts["excluded"]),
                    "pinned": pins.is_dir() and any(pins.iterdir()),
                }
            )
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def manifests(self, backups: Sequence[Backup]) -> tuple[dict[str, Manifest], list[tuple[str, str, str]]]:
        """Load the manifests of many; say which do not read."""
        good: dict[str, Manifest] = {}
        bad: list[tuple[str, str, str]] = []
        for backup in backups:
            try:
                good[backup.name] = self.manifest(backup)
            except (IntegrityError, NotFoundError) as error:
                bad.append((backup.name, "manifest", str(error.facts.get("reason", error))))
        return good, bad


def _remove(path: Path) -> None:
    """Take the manifest's name away first: from then on it is no backup, whatever a crash leaves."""
    (path / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _is_leftover(path: Path) -> bool:
    """Tell a directory that a crashed create or removal left; never one with anything else in it."""
    if not _OURS.search(path.name) or (path / _MANIFEST).exists():
        return False
    names = {item.name.partition(".tmp")[0] for item in path.iterdir()}
    return names <= {_META, _PINS, _MANIFEST}


def _slug(workspace: Path) -> str:
    return re.sub(r"[^\w.-]", "_", workspace.name, flags=re.ASCII)[:80].lstrip(".") or "root"


def file_key(text: str) -> str:
    """Give a file name that stands for any text."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:24]


def _resolved(path: Path) -> Path:
    return path.expanduser().resolve()


def _same_place(text: str, path: Path) -> bool:
    return "/" in text and _resolved(Path(text)) == path.resolve()
