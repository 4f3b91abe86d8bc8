"""Takes out of the pack store what no manifest needs, and checks what is left. Removal needs the lock alone.

Order: new packs are durable before old ones go, so a crash leaves at most a blob twice.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from proctor.protocol.errors import IntegrityError
from proctor.workspace.packs import Location, PackReader, PackStore, PackWriter, fsync_dir
from proctor.workspace.tree import Progress, ProgressCallback

__all__ = ["Collected", "collect", "find_damage"]

MIN_LIVE = 0.5  # a pack with less than this in use is written anew
SMALL_BYTES = 8 << 20
MANY_SMALL = 16


@dataclass(frozen=True)
class Collected:
    """What a collection did."""

    packs_removed: int
    packs_rewritten: int
    bytes_freed: int


def collect(store: PackStore, live: Collection[bytes]) -> Collected:
    """Drop dead packs, rewrite thin ones, clear what crashed writers left; under the lock held alone."""
    before = _size(store)
    shutil.rmtree(store.tmp, ignore_errors=True)
    dead, thin = _sort_packs(store, live)
    for name in dead:
        _drop(store, name)
    rewritten = _rewrite(store, thin)
    if store.packs.is_dir():
        fsync_dir(store.packs)
    return Collected(len(dead), rewritten, max(0, before - _size(store)))


def _sort_packs(store: PackStore, live: Collection[bytes]) -> tuple[list[str], dict[str, list[bytes]]]:
    """Tell packs nobody needs from those worth rewriting; a pack that cannot be read is never touched."""
    dead: list[str] = []
    needed: dict[str, list[bytes]] = {}
    thin: dict[str, list[bytes]] = {}
    kept: set[bytes] = set()
    for name in reversed(store.names()):  # the newest copy of a blob that is there twice stays
        try:
            rows = store.rows(name)
        except IntegrityError:
            continue
        use = [(digest, place) for digest, place in rows if digest in live and digest not in kept]
        kept.update(digest for digest, _place in use)
        if any(digest in live and digest not in kept for digest in store.damaged(name)):
            continue  # the only copy, though damaged, is not ours to throw away
        if not use:
            dead.append(name)
            continue
        needed[name] = [digest for digest, _place in use]
        if _weight(use) < MIN_LIVE * _weight(rows):
            thin[name] = needed[name]
    small = [name for name in needed if (store.packs / name).stat().st_size < SMALL_BYTES]
    if len(small) > MANY_SMALL:
        thin.update({name: needed[name] for name in small})
    return dead, thin


def _weight(rows: Iterable[tuple[bytes, Location]]) -> int:
    return sum(place.length for _digest, place in rows)


def _rewrite(store: PackStore, thin: dict[str, list[bytes]]) -> int:
    """Carry live blobs into new packs; a pack whose blobs do not read back stays for the curious."""
    done: list[str] = []
    with PackWriter(store) as writer:
        for name, digests in thin.items():
            places = dict(store.rows(name))
            try:
                with PackReader(store, places) as reader:
                    for digest in reader.in_disk_order(digests):
                        writer.add(reader.read(digest))
            except IntegrityError:
                continue
            done.append(name)
    for name in done:
        _drop(store, name)
    return len(done)


def _drop(store: PackStore, name: str) -> None:
    (store.packs / name).unlink(missing_ok=True)
    (store.packs / f"{name}.damaged").unlink(missing_ok=True)


def _size(store: PackStore) -> int:
    places: list[Path] = [*store.packs.glob("*"), *store.tmp.glob("*")]
    return sum(path.stat().st_size for path in places)


def find_damage(
    store: PackStore, digests: Iterable[bytes], *, progress: ProgressCallback | None = None
) -> dict[bytes, str]:
    """Read every named blob back; say what is wrong with the bad ones and mark them to be stored anew."""
    damage: dict[bytes, str] = {}
    marks: dict[str, list[bytes]] = {}
    done = 0
    with PackReader(store) as reader:
        for number, digest in enumerate(reader.in_disk_order(digests)):
            place = reader.index.get(digest)
            try:
                done += len(reader.read(digest))
            except IntegrityError as error:
                damage[digest] = str(error.facts.get("reason", error))
                if place is not None:
                    marks.setdefault(place.pack, []).append(digest)
            if progress is not None and number % 1000 == 0:
                progress(Progress("verify", number, done))
    for name, bad in marks.items():
        store.mark_damaged(name, bad)
    return damage
