"""Takes a snapshot of a workspace into the pack store; writes nothing into the workspace itself.

Nothing is left out unless the caller excludes it; `.git` belongs to it. When `take` returns, every blob the
manifest names is durable.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pathspec

from proctor.protocol.errors import NotFoundError, RefusedError
from proctor.workspace.manifest import Entry, Manifest
from proctor.workspace.packs import BlobIndex, PackStore, PackWriter
from proctor.workspace.tree import ProgressCallback, TreeReader

__all__ = ["look", "real_directory", "refuse_overlap", "take"]


def take(
    store: PackStore,
    workspace: Path,
    *,
    previous: Mapping[str, Entry] | None = None,
    exclude: Sequence[str] = (),
    index: BlobIndex | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Manifest, int]:
    """Store what is new in the workspace; give the manifest and the bytes written.

    The caller holds the store's lock. `previous` must come from manifests that are still in the store, for
    their blobs are taken to be there.
    """
    refuse_overlap(store.root, workspace)
    with PackWriter(store, index or BlobIndex(store)) as writer:
        reader = TreeReader(
            str(workspace),
            writer.add,
            previous=previous,
            exclude=excluder(exclude),
            forbidden=tuple(_ids(store.root)),
            progress=progress,
        )
        entries = reader.run()
    return Manifest(entries), writer.stored_bytes


def look(
    workspace: Path, *, previous: Mapping[str, Entry] | None = None, exclude: Sequence[str] = ()
) -> Manifest:
    """Read the workspace as it is now without storing anything; for previews."""
    reader = TreeReader(str(workspace), _digest, previous=previous, exclude=excluder(exclude))
    return Manifest(reader.run())


def excluder(patterns: Sequence[str]) -> Callable[[str, bool], bool] | None:
    """Turn gitignore lines into a test, or nothing when there are none."""
    if not patterns:
        return None
    spec = pathspec.GitIgnoreSpec.from_lines(patterns)

    def excluded(path: str, folder: bool) -> bool:
        name = f"{path}/" if folder else path
        try:
            return spec.match_file(name)
        except UnicodeEncodeError:  # a name that is not UTF-8: its odd bytes match as any character
            return spec.match_file(name.encode("utf-8", "replace").decode())

    return excluded


def real_directory(workspace: Path) -> Path:
    """Resolve a workspace; refuse what is not a directory."""
    try:
        found = workspace.expanduser().resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError, RuntimeError):
        raise NotFoundError(
            kind="workspace", name=str(workspace), cure="Name an existing directory."
        ) from None
    if not found.is_dir():
        raise NotFoundError(kind="workspace", name=str(workspace), cure="It is a file; name a directory.")
    return found


def refuse_overlap(store: Path, workspace: Path) -> None:
    """Refuse a store inside the workspace (it would swallow itself) and a workspace inside the store."""
    where, inside = store.resolve(), workspace.resolve()
    if where.is_relative_to(inside) or inside.is_relative_to(where.parent):
        raise RefusedError(
            reason=f"the backup store {where.parent} and the workspace {inside} lie inside each other",
            cure="Set XDG_DATA_HOME to a directory outside of it, or choose a narrower workspace.",
        )


def _ids(path: Path) -> Iterator[tuple[int, int]]:
    """Name a directory and its parent by device and inode, which a bind mount or a symlink cannot hide."""
    for place in (path, path.parent):
        if place.exists():
            state = place.stat()
            yield state.st_dev, state.st_ino


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
