"""The chain that makes an alteration visible: one SHA-256 chain per trace, and heads sealed with a key.

An event's hash covers the hash before it and every stored column. A head (the last hash and the count of its
trace) carries an HMAC made with a key that lies outside the database, and the log's own head carries the sum
of all heads' seals; so a dropped tail, a dropped trace and a head put back from a copy all show.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from proctor.protocol.errors import ConfigError, IntegrityError, NotFoundError

__all__ = ["GENESIS", "LOG", "Head", "SealError", "Tombstone", "link", "load_key", "sum_seals"]

GENESIS = bytes(32)
LOG = ""  # the name of the head that stands for the whole log
KEY_BYTES = 32
_WRAP = 1 << 256


class SealError(IntegrityError):
    """The head of {name} in the trace does not carry our seal: altered, or sealed with another key file.
    Put the key file that belongs to this database back, then run `proctor trace verify`.
    """

    code = "seal"


def link(previous: bytes, facts: Sequence[Any], details: bytes) -> bytes:
    """Hash one event (its columns from seq to duration_ms, and its details) onto the hash before it."""
    return hashlib.sha256(previous + to_json(facts) + b"\n" + details).digest()


@dataclass(slots=True)
class Head:
    """Where a trace (or, with the empty name, the whole log) stands."""

    trace_id: str
    first_seq: int
    last_seq: int
    count: int
    hash: bytes
    mac: bytes
    started: int

    def row(self) -> tuple[str, int, int, int, bytes, bytes, int]:
        """Its columns, in order."""
        return self.trace_id, self.first_seq, self.last_seq, self.count, self.hash, self.mac, self.started

    def copy(self) -> Head:
        """Another one that can be moved on."""
        return Head(*self.row())

    def seal(self, key: bytes) -> bytes:
        """The MAC this head must carry."""
        name, numbers = self.trace_id.encode(), (self.first_seq, self.last_seq, self.count, self.started)
        return hmac.digest(key, b"head\n%b\n%d %d %d %d\n%b" % (name, *numbers, self.hash), "sha256")

    def sealed(self, key: bytes) -> bool:
        """Whether it carries it."""
        return hmac.compare_digest(self.seal(key), bytes(self.mac))

    def check(self, key: bytes) -> None:
        """Refuse to build on a head that is not ours: a new seal would hide what was done to it."""
        if not self.sealed(key):
            raise SealError(name=f"trace {self.trace_id!r}" if self.trace_id else "the whole log")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What retention took from the front of a trace, so that the rest still verifies."""

    trace_id: str
    through_trace_seq: int
    through_hash: bytes
    removed: int
    mac: bytes = b""

    def seal(self, key: bytes) -> bytes:
        """The MAC this tombstone must carry."""
        name, numbers = self.trace_id.encode(), (self.through_trace_seq, self.removed)
        return hmac.digest(key, b"tombstone\n%b\n%d %d\n%b" % (name, *numbers, self.through_hash), "sha256")

    def sealed(self, key: bytes) -> bool:
        """Whether it carries it."""
        return hmac.compare_digest(self.seal(key), bytes(self.mac))


def sum_seals(total: bytes, *, minus: bytes | None = None, plus: bytes | None = None) -> bytes:
    """Take one seal out of the log's sum and put another in; the order of traces does not matter."""
    value = int.from_bytes(total)
    value -= int.from_bytes(minus) if minus else 0
    value += int.from_bytes(plus) if plus else 0
    return (value % _WRAP).to_bytes(32)


def load_key(path: Path, *, create: bool = True) -> bytes:
    """Read the key that seals the trace, or make it: 0600, whole from its first moment, one winner."""
    try:
        return _read_key(path)
    except FileNotFoundError:
        if not create:
            cure = "Put it back from a backup; without it nobody can tell whether the trace was altered."
            raise NotFoundError(kind="key of the trace", name=str(path), cure=cure) from None
        _make_key(path)
        return _read_key(path)


def _read_key(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        text = file.read(4096).strip()
    if mode & 0o077:
        cure = f"Run `chmod 600 {path}`."
        raise ConfigError(where=path, problem="others may read the key of the trace", allowed=cure)
    try:
        key = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            where=path, problem="this is not a key of the trace", allowed="Put the right file back."
        )
    return key


def _make_key(path: Path) -> None:
    """Write aside, then link into place: a link never overwrites, and nobody sees a half-written key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        _link_first(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _link_first(aside: Path, path: Path) -> None:
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        return  # another process was first; its key is the key
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
