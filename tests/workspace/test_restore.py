"""Restores are exact, refuse what they must, and take themselves back when they fail."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import IntegrityError, NotFoundError, RefusedError
from proctor.protocol.permits import Permit, PermitForgedError, PermitMismatchError, PermitSpentError
from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backups
from proctor.workspace.restore import RESTORE_TOOL, RestoreFailedError, preview, restore
from tests.workspace.trees import differences, facts, make_tree, mutate


def leave() -> Permit:
    """A permit for one restore."""
    return permit_for_tests(RESTORE_TOOL)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with everything that is hard to keep."""
    root = tmp_path / "project"
    make_tree(root)
    return root


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    """An empty backup store."""
    return Backups(tmp_path / "base")


def test_every_mutation_is_taken_back_exactly(workspace: Path, backups: Backups) -> None:
    """After the whole battery of damage a restore leaves no difference of any kind."""
    before = facts(workspace)
    backup = backups.create(workspace)
    assert backup.complete
    mutate(workspace)
    assert len(differences(before, facts(workspace))) > 20
    done = restore(backups, backup, permit=leave())
    assert differences(before, facts(workspace)) == []
    assert done.notes == ()
    assert not done.resumed


def test_a_restore_can_itself_be_taken_back(workspace: Path, backups: Backups) -> None:
    """The safety snapshot brings the damaged state back exactly."""
    backup = backups.create(workspace)
    mutate(workspace)
    damaged = facts(workspace)
    done = restore(backups, backup, permit=leave())
    restore(backups, done.safety, permit=leave())
    assert differences(damaged, facts(workspace)) == []


def test_an_equal_tree_is_not_touched(workspace: Path, backups: Backups) -> None:
    """Restoring what is already there changes no inode."""
    backup = backups.create(workspace)
    before = {path: path.lstat().st_ctime_ns for path in workspace.rglob("*") if not path.is_dir()}
    assert restore(backups, backup, permit=leave()).changed == ()
    assert {path: path.lstat().st_ctime_ns for path in workspace.rglob("*") if not path.is_dir()} == before


def test_an_empty_directory_becomes_a_full_copy(workspace: Path, backups: Backups, tmp_path: Path) -> None:
    """A restore into an empty directory inside the allowed roots equals the workspace."""
    backup = backups.create(workspace)
    copy = tmp_path / "copy"
    copy.mkdir()
    restore(backups, backup, permit=leave(), target=copy, allowed_roots=[tmp_path])
    assert differences(facts(workspace), facts(copy)) == []


def test_a_deleted_workspace_comes_back(tmp_path: Path, backups: Backups) -> None:
    """When the workspace itself is gone, its backup makes it anew."""
    root = tmp_path / "gone"
    root.mkdir()
    (root / "a").write_text("a")
    before = facts(root)
    backup = backups.create(root)
    (root / "a").unlink()
    root.rmdir()
    restore(backups, backup, permit=leave())
    assert differences(before, facts(root)) == []


def test_a_foreign_directory_is_refused(workspace: Path, backups: Backups, tmp_path: Path) -> None:
    """Neither a filled directory nor one outside the allowed roots is overwritten."""
    backup = backups.create(workspace)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(RefusedError, match="outside the allowed"):
        restore(backups, backup, permit=leave(), target=other, allowed_roots=[tmp_path / "base"])
    (other / "precious").write_text("mine")
    with pytest.raises(RefusedError, match="not of"):
        restore(backups, backup, permit=leave(), target=other, allowed_roots=[tmp_path])
    assert (other / "precious").read_text() == "mine"


def test_what_is_no_backup_is_refused(workspace: Path, backups: Backups, tmp_path: Path) -> None:
    """Any path that is not one of our backups is not found, whatever lies there."""
    backups.create(workspace)
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "manifest").write_text("{}")
    for name in (str(tmp_path / "fake"), "/etc", "..", "", str(tmp_path / "base"), "20990101_000000"):
        with pytest.raises(NotFoundError):
            backups.find(name)


def test_a_restore_needs_a_permit_for_it(workspace: Path, backups: Backups) -> None:
    """Without a permit, with one for another tool, or a second time, nothing is written."""
    backup = backups.create(workspace)
    (workspace / "secret").write_text("changed")
    with pytest.raises(PermitForgedError):
        restore(backups, backup, permit="yes")  # type: ignore[arg-type]
    with pytest.raises(PermitMismatchError):
        restore(backups, backup, permit=permit_for_tests("read_file"))
    permit = leave()
    restore(backups, backup, permit=permit)
    with pytest.raises(PermitSpentError):
        restore(backups, backup, permit=permit)


def test_a_damaged_backup_changes_nothing(workspace: Path, backups: Backups) -> None:
    """When a blob does not read back, the restore fails and the workspace is as it was before."""
    backup = backups.create(workspace)
    mutate(workspace)
    before = facts(workspace)
    for pack in (backups.base / ".store" / "packs").glob("*.pack"):
        raw = bytearray(pack.read_bytes())
        for at in range(40, len(raw) - 6_000, 500):
            raw[at] ^= 1
        pack.write_bytes(raw)
    with pytest.raises(RestoreFailedError, match="as it was before"):
        restore(backups, backup, permit=leave())
    assert differences(before, facts(workspace)) == []
    assert backups.journal(workspace).read() is None


def test_a_failure_halfway_is_rolled_back(workspace: Path, backups: Backups) -> None:
    """An error in the middle of the changes puts the workspace back to the state before the restore."""
    backup = backups.create(workspace)
    mutate(workspace)
    before = facts(workspace)
    calls = 0

    def fail() -> None:
        nonlocal calls
        calls += 1
        if calls == 40:
            raise OSError(5, "simulated input/output error")

    with pytest.raises(RestoreFailedError, match="simulated"):
        restore(backups, backup, permit=leave(), step=fail)
    assert differences(before, facts(workspace)) == []


def test_work_done_during_a_restore_is_not_lost(workspace: Path, backups: Backups) -> None:
    """A file that someone writes while the restore runs stops it and is still there or in a snapshot."""
    backup = backups.create(workspace)
    mutate(workspace)
    calls = 0

    def interfere() -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            (workspace / "src0" / "file0.py").write_text("typed just now")

    with pytest.raises(RestoreFailedError, match="changed by someone else"):
        restore(backups, backup, permit=leave(), step=interfere)
    newest = backups.listing(workspace)[0]
    restore(backups, newest, permit=leave())
    assert (workspace / "src0" / "file0.py").read_text() == "typed just now"


def test_a_forged_manifest_cannot_write_outside(workspace: Path, backups: Backups) -> None:
    """A manifest with an upward path or a path through a symlink is refused."""
    backup = backups.create(workspace)
    manifest = backups.manifest(backup)
    for bad in ("../evil", "link/evil", "src0/../../evil", "/etc/evil", "src0//x"):
        forged = type(manifest)([*manifest.entries, manifest.entries[-1]._replace(path=bad)])
        with pytest.raises(IntegrityError):
            forged.check()


def test_a_mount_inside_the_workspace_is_restored_too(
    workspace: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a rename or link between the scaffold and the place is impossible, it happens beside the place."""
    before = facts(workspace)
    backup = backups.create(workspace)
    mutate(workspace)
    real = os.rename

    def within_one_mount(source: str, target: str, **where: Any) -> None:
        if where.get("src_dir_fd") != where.get("dst_dir_fd"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target, **where)

    monkeypatch.setattr(os, "rename", within_one_mount)
    restore(backups, backup, permit=leave())
    assert differences(before, facts(workspace)) == []


def test_preview_tells_and_changes_nothing(workspace: Path, backups: Backups) -> None:
    """A preview names what would happen and neither writes nor stores."""
    backup = backups.create(workspace)
    assert not preview(backups, backup)
    mutate(workspace)
    before = facts(workspace)
    rows = dict(preview(backups, backup).rows())
    assert rows["added/deep/er/file"] == "delete"
    assert rows["src0/file0.py"] == rows["src0/file3.py"] == "write"
    assert rows["run.sh"] == "amend"
    assert differences(before, facts(workspace)) == []
    assert len(backups.listing()) == 1


names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda name: name not in {".", ".."} and len(name.encode()) < 200
)
leaves = st.one_of(
    st.binary(max_size=300),
    st.tuples(st.just("link"), names),
    st.tuples(st.just("fifo"), st.sampled_from([0o600, 0o644])),
)
trees = st.recursive(leaves, lambda below: st.dictionaries(names, below, max_size=4), max_leaves=12)


def build(path: Path, tree: object) -> None:
    """Make a random tree real."""
    if isinstance(tree, dict):
        path.mkdir()
        for name, below in tree.items():
            build(path / name, below)
    elif isinstance(tree, bytes):
        path.write_bytes(tree)
        path.chmod(0o600 + len(tree) % 64)
    elif isinstance(tree, tuple) and tree[0] == "link":
        os.symlink(tree[1], path)
    elif isinstance(tree, tuple):
        os.mkfifo(path, tree[1])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(first=st.dictionaries(names, trees, max_size=4), second=st.dictionaries(names, trees, max_size=4))
def test_any_tree_comes_back_over_any_other(
    tmp_path_factory: pytest.TempPathFactory, first: object, second: object
) -> None:
    """For random trees A and B: snapshot A, replace it by B, restore, and it is A in every fact."""
    place = tmp_path_factory.mktemp("any")
    root = place / "w"
    build(root, first)
    before = facts(root)
    backups = Backups(place / "base")
    backup = backups.create(root)
    root.rename(place / "old")
    build(root, second)
    restore(backups, backup, permit=leave())
    assert differences(before, facts(root)) == []
