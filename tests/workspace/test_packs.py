"""The pack store keeps blobs exactly, writes them whole or not at all, and its locks die with their holder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import IntegrityError, UnavailableError
from proctor.workspace import packs
from proctor.workspace.backups import Backups
from proctor.workspace.locks import file_lock
from proctor.workspace.manifest import Entry, Extra, Manifest, decode, encode
from proctor.workspace.packs import BlobIndex, PackReader, PackStore, PackWriter


def store_all(store: PackStore, blobs: list[bytes]) -> list[bytes]:
    """Write blobs and give their names."""
    with PackWriter(store) as writer:
        return [writer.add(blob) for blob in blobs]


@settings(max_examples=25, deadline=None)
@given(blobs=st.lists(st.binary(max_size=2_000), max_size=20))
def test_every_blob_reads_back(tmp_path_factory: pytest.TempPathFactory, blobs: list[bytes]) -> None:
    """Whatever is put in comes out, under the name of its content."""
    store = PackStore(tmp_path_factory.mktemp("store"))
    names = store_all(store, blobs)
    assert names == [hashlib.sha256(blob).digest() for blob in blobs]
    with PackReader(store) as reader:
        assert [reader.read(name) for name in names] == blobs


def test_searching_and_the_table_give_the_same_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick way for few questions answers exactly as the table for many."""
    store = PackStore(tmp_path)
    names = [
        *store_all(store, [b"%d" % n for n in range(500)]),
        *store_all(store, [b"x%d" % n for n in range(50)]),
    ]
    names.append(b"\0" * 32)
    monkeypatch.setattr(packs, "FEW_QUESTIONS", 0)
    table = BlobIndex(store)
    by_table = [table.get(name) for name in names]
    monkeypatch.setattr(packs, "FEW_QUESTIONS", 10_000)
    search = BlobIndex(store)
    assert [search.get(name) for name in names] == by_table
    assert by_table[-1] is None
    assert None not in by_table[:-1]


def test_a_full_pack_begins_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs stay of a size that can be rewritten."""
    monkeypatch.setattr(packs, "PACK_BYTES", 1 << 20)
    store = PackStore(tmp_path)
    blobs = [os.urandom(600_000) for _ in range(6)]
    names = store_all(store, blobs)
    assert len(store.names()) == 3
    with PackReader(store) as reader:
        assert [reader.read(name) for name in names] == blobs


def test_every_flipped_bit_of_a_pack_is_noticed(tmp_path: Path) -> None:
    """No damage anywhere in the file gives wrong bytes: it is an error."""
    store = PackStore(tmp_path)
    blobs = [b"hello" * 40, os.urandom(200)]
    names = store_all(store, blobs)
    path = store.packs / store.names()[0]
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with PackReader(store) as reader:
            for name, blob in zip(names, blobs, strict=True):
                with suppress(IntegrityError):
                    assert reader.read(name) == blob


def test_a_full_disk_leaves_no_half_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the backup fails with a sentence; there is no backup and no temporary file."""
    root = tmp_path / "w"
    root.mkdir()
    (root / "big").write_bytes(os.urandom(3 << 20))
    backups = Backups(tmp_path / "base")
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 100_000:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UnavailableError, match="No space left"):
        backups.create(root)
    monkeypatch.undo()
    assert backups.listing() == []
    assert list((tmp_path / "base" / ".store" / "tmp").iterdir()) == []
    assert backups.create(root).complete


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """A killed process holds nothing; a living one is waited for until the deadline."""
    lock = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from proctor.workspace.locks import file_lock\n"
        "with file_lock(Path(sys.argv[1]), exclusive=True):\n"
        "    print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UnavailableError), file_lock(lock, exclusive=False, wait_seconds=0.1):
            pass
        holder.kill()
        holder.wait(10)
    with file_lock(lock, exclusive=True, wait_seconds=5):
        assert lock.exists()


numbers = st.integers(0, 2**32 - 1)
times = st.integers(-(2**62), 2**62)
paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
extras = st.builds(
    Extra,
    xattrs=st.lists(st.tuples(st.text(max_size=9), st.binary(max_size=9)), max_size=2).map(tuple),
    segments=st.none() | st.lists(st.tuples(numbers, numbers), max_size=3).map(tuple),
    rdev=numbers,
    problem=st.text(max_size=9),
)
entries = st.builds(
    Entry,
    path=paths,
    mode=numbers,
    uid=numbers,
    gid=numbers,
    size=st.integers(0, 2**63),
    mtime_ns=times,
    ctime_ns=times,
    ino=st.integers(0, 2**64 - 1),
    dev=st.integers(0, 2**64 - 1),
    nlink=numbers,
    content=st.integers(0, 3).map(lambda count: bytes(32) * count),
    target=paths | st.just(""),
    extra=st.none() | extras,
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(entries, min_size=1, max_size=8))
def test_a_manifest_reads_back_as_it_was(rows: list[Entry]) -> None:
    """Any entry survives writing and reading."""
    assert decode(encode(Manifest(rows))).entries == rows


def test_a_changed_manifest_is_refused() -> None:
    """A single flipped bit anywhere in a manifest is an integrity error."""
    raw = encode(Manifest([Entry("", 0o40755, 0, 0, 0, 1, 2, 3, 4, 1)]))
    for at in range(len(raw)):
        with pytest.raises(IntegrityError):
            decode(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
