"""The content-addressed pack store: blobs named by SHA-256, gathered in groups, compressed, in few big files.

A pack is written under `tmp/`, ends with its own index, is fsynced and only then renamed into `packs/`; so
a pack that has its name is whole, and what a crash leaves behind lies in `tmp/`. Every read is checked.
Locking: whoever reads or adds holds the store's lock shared; whoever removes holds it alone (see gc.py).
"""

from __future__ import annotations

import hashlib
import os
import queue
import struct
import threading
from collections.abc import Container, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

import zstandard

from proctor.protocol.errors import IntegrityError
from proctor.protocol.ids import new_id
from proctor.workspace.locks import file_lock

__all__ = [
    "CHUNK_BYTES",
    "DIGEST_BYTES",
    "BlobIndex",
    "Location",
    "PackReader",
    "PackStore",
    "PackWriter",
    "fsync_dir",
]

CHUNK_BYTES = 4 << 20  # longer files are cut, so that memory stays bounded
DIGEST_BYTES = 32
GROUP_BYTES = 1 << 20
PACK_BYTES = 64 << 20
LEVEL = 1
FEW_QUESTIONS = 64

_MAGIC = b"PRPACK01"
_HEAD = struct.Struct("<BII")  # codec, raw length, stored length
_ROW = struct.Struct("<32sQII")  # digest, group offset, start in group, length
_TAIL = struct.Struct("<QQ32s8s")  # index offset, rows, SHA-256 of the index, magic
_PLAIN, _ZSTD = 0, 1
_QUEUE_GROUPS = 8


class Location(NamedTuple):
    """Where a blob lies: pack, group, and place inside the decompressed group."""

    pack: str
    offset: int
    start: int
    length: int


def fsync_dir(path: Path) -> None:
    """Make renames inside a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class PackStore:
    """A directory of packs; cheap to make, reads nothing until it is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packs = root / "packs"
        self.tmp = root / "tmp"

    def shared(self, wait_seconds: float = 60.0) -> AbstractContextManager[None]:
        """Hold off removal while reading or adding."""
        return file_lock(self.root / "lock", exclusive=False, wait_seconds=wait_seconds)

    def alone(self, wait_seconds: float = 60.0) -> AbstractContextManager[None]:
        """Hold off everybody else; for removal."""
        return file_lock(self.root / "lock", exclusive=True, wait_seconds=wait_seconds)

    def names(self) -> list[str]:
        """Name the whole packs, oldest first."""
        return sorted(path.name for path in self.packs.glob("*.pack")) if self.packs.is_dir() else []

    def rows(self, name: str) -> list[tuple[bytes, Location]]:
        """Read one pack's index; IntegrityError when it is not as it was written."""
        bad = self.damaged(name)
        rows = _ROW.iter_unpack(self.raw_index(name))
        return [(digest, Location(name, *place)) for digest, *place in rows if digest not in bad]

    def raw_index(self, name: str) -> bytes:
        """Read one pack's index as bytes; IntegrityError when it is not as it was written."""
        with (self.packs / name).open("rb") as file:
            return _index_bytes(file.fileno(), file.seek(0, os.SEEK_END), name)

    def mark_damaged(self, name: str, digests: Iterable[bytes]) -> None:
        """Remember blobs that no longer read back, so that the next backup stores them again."""
        known = self.damaged(name) | set(digests)
        beside = self.tmp / f"{new_id('damaged')}"
        self.tmp.mkdir(exist_ok=True, mode=0o700)
        beside.write_bytes(b"".join(sorted(known)))
        beside.replace(self.packs / f"{name}.damaged")

    def has_damage(self) -> bool:
        """Tell whether any blob is known not to read back."""
        return self.packs.is_dir() and any(self.packs.glob("*.damaged"))

    def damaged(self, name: str) -> set[bytes]:
        """Blobs of a pack that are known not to read back."""
        path = self.packs / f"{name}.damaged"
        if not path.exists():
            return set()
        raw = path.read_bytes()
        return {raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES)}


def _index_bytes(handle: int, size: int, name: str) -> bytes:
    tail = os.pread(handle, _TAIL.size, max(0, size - _TAIL.size))
    if len(tail) != _TAIL.size or not tail.endswith(_MAGIC):
        raise IntegrityError(what=f"The pack {name}", reason="its end is missing")
    offset, rows, check, _magic = _TAIL.unpack(tail)
    if offset + rows * _ROW.size + _TAIL.size != size:
        raise IntegrityError(what=f"The pack {name}", reason="its end does not fit its length")
    raw = os.pread(handle, rows * _ROW.size, offset)
    if hashlib.sha256(raw).digest() != check:
        raise IntegrityError(what=f"The pack {name}", reason="its index does not match its checksum")
    return raw


class BlobIndex:
    """Where every readable blob lies. Few questions are answered by searching the raw indexes, for a table of
    all blobs costs more than a small restore; a pack with a damaged index counts as absent.
    """

    def __init__(self, store: PackStore) -> None:
        self._store = store
        self._raw: dict[str, bytes] | None = None
        self._table: dict[bytes, Location] | None = None
        self._asked = 0

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, bytes) and self.get(digest) is not None

    def get(self, digest: bytes) -> Location | None:
        """Find a blob, or nothing."""
        if self._table is None:
            self._asked += 1
            if self._asked <= FEW_QUESTIONS and not self._store.has_damage():
                return self._search(digest)
            self._table = self._build()
        return self._table.get(digest)

    def _build(self) -> dict[bytes, Location]:
        table: dict[bytes, Location] = {}
        for name in self._store.names():
            try:
                table.update(self._store.rows(name))
            except IntegrityError:
                continue
        return table

    def _search(self, digest: bytes) -> Location | None:
        if self._raw is None:
            self._raw = self._load()
        for name, raw in self._raw.items():
            at = raw.find(digest)
            while at >= 0 and at % _ROW.size:
                at = raw.find(digest, at + 1)
            if at >= 0:
                _digest, *place = _ROW.unpack_from(raw, at)
                return Location(name, *place)
        return None

    def _load(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name in self._store.names():
            try:
                found[name] = self._store.raw_index(name)
            except IntegrityError:
                continue
        return found


class Places(Protocol):
    """Anything that knows where blobs lie."""

    def get(self, digest: bytes, /) -> Location | None:
        """Find a blob, or nothing."""
        ...


class PackReader:
    """Reads blobs and checks each against its name; keeps the last groups: neighbours are read together."""

    def __init__(self, store: PackStore, index: Places | None = None) -> None:
        self._store = store
        self.index: Places = BlobIndex(store) if index is None else index
        self._files: dict[str, int] = {}
        self._groups: dict[tuple[str, int], bytes] = {}
        self._zstd = zstandard.ZstdDecompressor()

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()

    def read(self, digest: bytes) -> bytes:
        """Give one blob; IntegrityError when it is missing or altered."""
        place = self.index.get(digest)
        if place is None:
            raise IntegrityError(what=f"The blob {digest.hex()[:16]}", reason="no pack holds it")
        data = self._group(place.pack, place.offset)[place.start : place.start + place.length]
        if hashlib.sha256(data).digest() != digest:
            raise IntegrityError(
                what=f"The blob {digest.hex()[:16]} in {place.pack}", reason="its bytes have changed"
            )
        return data

    def in_disk_order(self, digests: Iterable[bytes]) -> Iterator[bytes]:
        """Order blobs so that each group is decompressed once; unknown ones come first."""
        nowhere = Location("", 0, 0, 0)
        return iter(sorted(set(digests), key=lambda digest: self.index.get(digest) or nowhere))

    def _group(self, pack: str, offset: int) -> bytes:
        key = (pack, offset)
        held = self._groups.get(key)
        if held is None:
            if len(self._groups) >= _QUEUE_GROUPS:
                self._groups.pop(next(iter(self._groups)))
            held = self._groups[key] = self._load(pack, offset)
        return held

    def _load(self, pack: str, offset: int) -> bytes:
        try:
            if pack not in self._files:
                self._files[pack] = os.open(self._store.packs / pack, os.O_RDONLY | os.O_CLOEXEC)
            handle = self._files[pack]
            codec, raw, stored = _HEAD.unpack(os.pread(handle, _HEAD.size, offset))
            body = os.pread(handle, min(stored, GROUP_BYTES + 2 * CHUNK_BYTES), offset + _HEAD.size)
            if codec == _PLAIN:
                return body
            return self._zstd.decompress(body, max_output_size=min(raw, GROUP_BYTES + CHUNK_BYTES))
        except (OSError, struct.error, zstandard.ZstdError) as error:
            raise IntegrityError(what=f"The pack {pack}", reason=f"group at {offset}: {error}") from error


class PackWriter:
    """Adds blobs: the caller hashes, a thread compresses and writes; after `finish` all is durable."""

    def __init__(self, store: PackStore, known: Container[bytes] = frozenset()) -> None:
        self._store = store
        self._known = known
        self._added: set[bytes] = set()
        self._batch: list[tuple[bytes, bytes]] = []
        self._batch_bytes = 0
        self._queue: queue.Queue[list[tuple[bytes, bytes]] | None] = queue.Queue(_QUEUE_GROUPS)
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._file = _PackFile(store)
        self.stored_bytes = 0

    def __enter__(self) -> PackWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self._stop()
            self._file.discard()

    def add(self, data: bytes) -> bytes:
        """Store one blob unless it is there already; give its name."""
        digest = hashlib.sha256(data).digest()
        if digest in self._added or digest in self._known:
            return digest
        self._added.add(digest)
        self._batch.append((digest, data))
        self._batch_bytes += len(data)
        if self._batch_bytes >= GROUP_BYTES:
            self._send()
        return digest

    def finish(self) -> None:
        """Wait until every blob is on disk; raise what went wrong in the thread."""
        if self._batch:
            self._send()
        self._stop()
        if self._error is not None:
            self._file.discard()
            raise self._error
        self._file.publish()
        self.stored_bytes = self._file.total

    def _send(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="proctor-packer", daemon=True)
            self._thread.start()
        if self._error is not None:
            raise self._error
        self._queue.put(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _stop(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        """Write groups until told to stop; after an error only drain, so that the caller never blocks."""
        while (batch := self._queue.get()) is not None:
            if self._error is None:
                try:
                    self._file.append(batch)
                except (OSError, zstandard.ZstdError, MemoryError) as error:
                    self._error = error


class _PackFile:
    """The pack being written; a new one is begun when it is full."""

    def __init__(self, store: PackStore) -> None:
        self._store = store
        self._zstd = zstandard.ZstdCompressor(level=LEVEL)
        self._handle = -1
        self._name = ""
        self._at = 0
        self._rows: list[bytes] = []
        self.total = 0

    def append(self, batch: list[tuple[bytes, bytes]]) -> None:
        """Write one group."""
        if self._handle < 0:
            self._begin()
        raw = b"".join([data for _digest, data in batch])
        body = self._zstd.compress(raw)
        codec = _ZSTD
        if len(body) >= len(raw):
            codec, body = _PLAIN, raw
        start = 0
        for digest, data in batch:
            self._rows.append(_ROW.pack(digest, self._at, start, len(data)))
            start += len(data)
        self._write(_HEAD.pack(codec, len(raw), len(body)))
        self._write(body)
        if self._at >= PACK_BYTES:
            self.publish()

    def publish(self) -> None:
        """End the pack with its index, make it durable and give it its name."""
        if self._handle < 0:
            return
        rows = b"".join(self._rows)
        place = self._at
        self._write(rows)
        self._write(_TAIL.pack(place, len(self._rows), hashlib.sha256(rows).digest(), _MAGIC))
        os.fsync(self._handle)
        os.close(self._handle)
        self._handle = -1
        self._store.packs.mkdir(exist_ok=True, mode=0o700)
        (self._store.tmp / self._name).rename(self._store.packs / self._name)
        fsync_dir(self._store.packs)

    def discard(self) -> None:
        """Drop what has no name yet; packs that are whole stay and are collected when nothing needs them."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            (self._store.tmp / self._name).unlink(missing_ok=True)

    def _begin(self) -> None:
        self._store.tmp.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._name = f"{new_id('pk')}.pack"
        self._handle = os.open(
            self._store.tmp / self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        self._at, self._rows = 0, []
        self._write(_MAGIC)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            done = os.write(self._handle, view)
            view = view[done:]
            self._at += done
            self.total += done
