"""What a snapshot holds: one entry per path, kept as columns so that 100,000 entries load fast.

File: magic, SHA-256 of the rest, one zstd frame with a JSON head, the columns, and the rare parts as JSON.
Invariant of a checked manifest: the root comes first, parents before children, no path twice or outside.
"""

from __future__ import annotations

import base64
import gc
import hashlib
import json
import os
import stat
import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import zstandard

from proctor.protocol.errors import IntegrityError
from proctor.workspace.packs import CHUNK_BYTES, DIGEST_BYTES

__all__ = ["Entry", "Extra", "Manifest", "decode", "encode"]

_MAGIC = b"PRMANIF1"
_MAX_BYTES = 4 << 30
_NO_NAMES = frozenset({"", ".", ".."})
# The numbers of an entry, in the order of Entry's fields, and how each is stored.
_NUMBERS = (("mode", "I"), ("uid", "I"), ("gid", "I"), ("size", "Q"), ("mtime_ns", "q"))
_KEYS = (("ctime_ns", "q"), ("ino", "Q"), ("dev", "Q"), ("nlink", "I"))


@dataclass(frozen=True, slots=True)
class Extra:
    """What few entries have."""

    xattrs: tuple[tuple[str, bytes], ...] = ()
    segments: tuple[tuple[int, int], ...] | None = None  # where a sparse file has data
    rdev: int = 0
    problem: str = ""  # why the content could not be read; such an entry is left alone by a restore


class Entry(NamedTuple):
    """One path of the tree; `mode` carries the type too. ctime 0 = too fresh to be trusted next time."""

    path: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    ctime_ns: int
    ino: int
    dev: int
    nlink: int
    content: bytes = b""  # digests of the chunks, one after the other
    target: str = ""
    extra: Extra | None = None

    @property
    def is_dir(self) -> bool:
        """Tell a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Tell a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def problem(self) -> str:
        """Say why the content is not here, or nothing."""
        return self.extra.problem if self.extra else ""

    def digests(self) -> list[bytes]:
        """Name the chunks in order."""
        return [self.content[at : at + DIGEST_BYTES] for at in range(0, len(self.content), DIGEST_BYTES)]

    def chunks(self) -> list[tuple[int, bytes]]:
        """Pair each chunk with its offset; what no chunk covers is a hole."""
        segments = (
            self.extra.segments if self.extra and self.extra.segments is not None else ((0, self.size),)
        )
        offsets = [at for start, length in segments for at in range(start, start + length, CHUNK_BYTES)]
        return list(zip(offsets, self.digests(), strict=True))


@dataclass(frozen=True)
class Manifest:
    """All entries of one snapshot, the root first."""

    entries: list[Entry]

    @cached_property
    def by_path(self) -> dict[str, Entry]:
        """Look an entry up by its path."""
        return {entry.path: entry for entry in self.entries}

    @cached_property
    def problems(self) -> list[Entry]:
        """Entries whose content could not be read."""
        return [entry for entry in self.entries if entry.extra is not None and entry.extra.problem]

    @cached_property
    def size(self) -> int:
        """Bytes of all regular files, holes included."""
        return sum(entry.size for entry in self.entries if entry.is_file)

    def digests(self) -> set[bytes]:
        """Every blob the snapshot needs."""
        return {digest for entry in self.entries if entry.content for digest in entry.digests()}

    def check(self) -> None:
        """Refuse what no walk of ours could have written: a forged path must not lead a restore outside."""
        if not self.entries or self.entries[0].path or not self.entries[0].is_dir:
            raise IntegrityError(what="The manifest", reason="it does not begin with its root")
        folders = {""}
        for number, entry in enumerate(self.entries[1:], 1):
            path, mode = entry[0], entry[1]
            parent, _, name = path.rpartition("/")
            if name in _NO_NAMES or parent not in folders or "\0" in path:
                raise IntegrityError(what="The manifest", reason=f"entry {number} has the path {path!r}")
            if stat.S_IFMT(mode) == stat.S_IFDIR:
                folders.add(path)
        if len(self.by_path) != len(self.entries):
            raise IntegrityError(what="The manifest", reason="it names a path twice")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the collector from going through the same 100,000 entries again and again while they are made."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@_uncollected()
def encode(manifest: Manifest) -> bytes:
    """Write a manifest as bytes."""
    entries = manifest.entries
    paths, *numbers = list(zip(*entries, strict=True))[:10]
    blobs = [os.fsencode("\0".join(paths))]
    blobs += [_pack(code, column) for (_name, code), column in zip(_NUMBERS + _KEYS, numbers, strict=True)]
    blobs.append(_pack("I", [len(entry.content) // DIGEST_BYTES for entry in entries]))
    blobs.append(b"".join([entry.content for entry in entries]))
    blobs.append(os.fsencode("\0".join([entry.target for entry in entries])))
    blobs.append(json.dumps(_rare(entries)).encode())
    head = json.dumps({"entries": len(entries), "parts": [len(blob) for blob in blobs]}).encode()
    body = zstandard.ZstdCompressor(level=1).compress(
        b"".join([len(head).to_bytes(4, "little"), head, *blobs])
    )
    return _MAGIC + hashlib.sha256(body).digest() + body


@_uncollected()
def decode(raw: bytes) -> Manifest:
    """Read a manifest back; IntegrityError when a single bit is not as it was written."""
    body = raw[len(_MAGIC) + 32 :]
    if not raw.startswith(_MAGIC) or hashlib.sha256(body).digest() != raw[len(_MAGIC) : len(_MAGIC) + 32]:
        raise IntegrityError(what="The manifest", reason="it does not match its checksum")
    data = zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BYTES)
    blobs = _split(data)
    paths = os.fsdecode(blobs[0]).split("\0")
    codes = [code for _name, code in _NUMBERS + _KEYS]
    columns: list[Iterable[Any]] = [
        _unpack(code, blob) for code, blob in zip(codes, blobs[1:10], strict=True)
    ]
    contents = _cut(blobs[11], _unpack("I", blobs[10]))
    targets = os.fsdecode(blobs[12]).split("\0")
    extras = _extras(json.loads(blobs[13]), len(paths))
    rows = zip(paths, *columns, contents, targets, extras, strict=True)
    new = tuple.__new__  # what Entry._make does, at half the cost; there may be 100,000 of them
    return Manifest([new(Entry, row) for row in rows])


def _split(data: bytes) -> list[bytes]:
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    at, blobs = 4 + length, []
    for size in head["parts"]:
        blobs.append(data[at : at + size])
        at += size
    return blobs


def _pack(code: str, numbers: Iterable[int]) -> bytes:
    column = array(code, numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _unpack(code: str, raw: bytes) -> array[int]:
    column = array(code)
    column.frombytes(raw)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _cut(joined: bytes, counts: Iterable[int]) -> list[bytes]:
    contents, at = [], 0
    for count in counts:
        end = at + count * DIGEST_BYTES
        contents.append(joined[at:end])
        at = end
    return contents


def _rare(entries: list[Entry]) -> dict[str, dict[str, Any]]:
    rows = ((number, entry.extra) for number, entry in enumerate(entries) if entry.extra is not None)
    return {
        str(number): {
            "xattrs": [[name, base64.b64encode(value).decode()] for name, value in extra.xattrs],
            "segments": extra.segments,
            "rdev": extra.rdev,
            "problem": extra.problem,
        }
        for number, extra in rows
    }


def _extras(rare: dict[str, dict[str, Any]], count: int) -> list[Extra | None]:
    extras: list[Extra | None] = [None] * count
    for number, part in rare.items():
        segments = part["segments"]
        extras[int(number)] = Extra(
            xattrs=tuple((name, base64.b64decode(value)) for name, value in part["xattrs"]),
            segments=None if segments is None else tuple((start, length) for start, length in segments),
            rdev=part["rdev"],
            problem=part["problem"],
        )
    return extras
