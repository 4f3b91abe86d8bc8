"""Backups: names, retention, locking, checking, and honesty about what could not be read."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.protocol.errors import IntegrityError, NotFoundError, RefusedError, UnavailableError
from proctor.testing.permits import permit_for_tests
from proctor.workspace.backups import Backup, Backups
from proctor.workspace.restore import RESTORE_TOOL, restore
from proctor.workspace.tree import Progress
from tests.workspace.trees import differences, facts, make_tree


class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        """Always the same moment."""
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def monotonic(self) -> float:
        """Never moves."""
        return 0.0


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A small workspace."""
    root = tmp_path / "agent swarm"
    root.mkdir()
    (root / "a.txt").write_text("a")
    return root


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    """An empty store."""
    return Backups(tmp_path / "base")


def packs(backups: Backups) -> list[Path]:
    """The pack files."""
    return sorted((backups.base / ".store" / "packs").glob("*.pack"))


def bring_back(backups: Backups, backup: Backup) -> None:
    """Restore with a permit."""
    restore(backups, backup, permit=permit_for_tests(RESTORE_TOOL))


def test_path_is_workspace_name_and_time(workspace: Path, tmp_path: Path) -> None:
    """The directory is `<base>/<name>_<YYYYMMDD_HHMMSS>` and holds the manifest."""
    backups = Backups(tmp_path / "base", clock=FixedClock())
    backup = backups.create(workspace, reason="why")
    stamp = FixedClock().now().astimezone()
    assert backup.path == tmp_path / "base" / f"agent_swarm_{stamp:%Y%m%d_%H%M%S}"
    assert (backup.path / "manifest").is_file()
    assert backup.timestamp == f"{stamp:%Y-%m-%d_%H%M%S}"
    assert backups.listing() == [backup]


def test_two_in_the_same_second_get_two_names(workspace: Path, tmp_path: Path) -> None:
    """A second backup in the same second has a suffix, and each is found by path, name, id and time."""
    backups = Backups(tmp_path / "base", clock=FixedClock())
    first, second = backups.create(workspace), backups.create(workspace)
    assert second.name == f"{first.name}_2"
    for backup in (first, second):
        for name in (backup.id, backup.name, str(backup.path), f"{backup.path}/", backup.timestamp):
            assert backups.find(name).id == backup.id


def test_two_creates_at_once_both_succeed(tmp_path: Path, backups: Backups) -> None:
    """Two processes' worth of creates of the same tree do not disturb each other."""
    root = tmp_path / "w"
    make_tree(root)
    made: list[Backup] = []
    threads = [threading.Thread(target=lambda: made.append(backups.create(root))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({backup.name for backup in made}) == 4
    assert backups.verify().damaged == ()
    assert backups.verify().checked == 4


def test_ten_are_kept_but_never_a_pinned_one(workspace: Path, backups: Backups) -> None:
    """After 14 backups the last 10 are left, and the pinned first one."""
    first = backups.create(workspace, pin="run-1")
    for number in range(14):
        (workspace / "a.txt").write_text(f"content {number}")
        backups.create(workspace)
    left = backups.listing(workspace)
    assert len(left) == 11
    assert left[-1].id == first.id
    assert left[-1].pinned
    bring_back(backups, first)
    assert (workspace / "a.txt").read_text() == "a"
    backups.unpin(first, "run-1")
    assert first.name in backups.prune().removed
    with pytest.raises(NotFoundError):
        backups.find(first.id)


def test_prune_takes_more_pins_from_the_caller(workspace: Path, backups: Backups) -> None:
    """Ids the caller names are kept too, and the report says so."""
    old = backups.create(workspace)
    backups.create(workspace)
    report = backups.prune(keep=1, pinned={old.id})
    assert report.kept_pinned == (old.name,)
    assert report.removed == ()


def test_workspaces_do_not_push_each_other_out(tmp_path: Path, backups: Backups) -> None:
    """Retention counts each workspace for itself, also when both have the same name."""
    roots = [tmp_path / "x" / "w", tmp_path / "y" / "w"]
    for root in roots:
        root.mkdir(parents=True)
        (root / "f").write_text(str(root))
    for _ in range(3):
        for root in roots:
            backups.create(root)
    backups.prune(keep=1, workspace=roots[0])
    assert [len(backups.listing(root)) for root in roots] == [1, 3]
    backups.prune(keep=2)
    assert [len(backups.listing(root)) for root in roots] == [1, 2]


def test_a_flipped_byte_is_found_and_healed(workspace: Path, backups: Backups) -> None:
    """Verify names the damaged path; the next backup stores the content again."""
    (workspace / "b.txt").write_bytes(os.urandom(5000))
    backup = backups.create(workspace)
    assert backups.verify().damaged == ()
    raw = bytearray(packs(backups)[0].read_bytes())
    raw[200] ^= 0x40
    packs(backups)[0].write_bytes(raw)
    damaged = backups.verify().damaged
    assert {(name, path) for name, path, _why in damaged} >= {(backup.name, "b.txt")}
    backups.create(workspace)
    assert backups.verify().damaged == ()


def test_a_damaged_manifest_is_found_and_blocks_collection(workspace: Path, backups: Backups) -> None:
    """A manifest that does not match its checksum is damage, and nothing is collected on its word."""
    backup = backups.create(workspace)
    path = backup.path / "manifest"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert [(name, where) for name, where, _why in backups.verify().damaged] == [(backup.name, "manifest")]
    with pytest.raises(IntegrityError):
        backups.prune()
    assert packs(backups)
    assert backups.create(workspace).complete


def test_content_of_a_backup_with_damaged_facts_is_kept(workspace: Path, backups: Backups) -> None:
    """Prune frees nothing that a manifest names, even if the facts beside it do not read."""
    backup = backups.create(workspace)
    facts_file = backup.path / "backup.json"
    good = facts_file.read_text()
    facts_file.write_text("{")
    assert backups.listing() == []
    backups.prune(keep=0)
    facts_file.write_text(good)
    assert backups.verify([backup.name]).damaged == ()


def test_a_missing_pack_is_found(workspace: Path, backups: Backups) -> None:
    """When a pack is gone, verify says which paths are lost."""
    backup = backups.create(workspace)
    packs(backups)[0].unlink()
    assert [row[:2] for row in backups.verify([backup.name]).damaged] == [(backup.name, "a.txt")]


def test_thin_packs_are_rewritten_and_dead_ones_removed(workspace: Path, backups: Backups) -> None:
    """Below half in use a pack is repacked; what no backup needs is freed; the rest still reads."""
    for number in range(10):
        (workspace / f"big{number}").write_bytes(os.urandom(100_000))
    backups.create(workspace)
    for number in range(1, 10):
        (workspace / f"big{number}").unlink()
    kept = backups.create(workspace)
    before = facts(workspace)
    report = backups.prune(keep=1)
    assert report.packs_rewritten == 1
    assert report.bytes_freed > 800_000
    assert sum(path.stat().st_size for path in packs(backups)) < 200_000
    assert backups.verify().damaged == ()
    (workspace / "big0").unlink()
    bring_back(backups, kept)
    assert differences(before, facts(workspace)) == []


def test_many_small_packs_are_merged(workspace: Path, tmp_path: Path) -> None:
    """A pack per backup does not pile up for ever."""
    backups = Backups(tmp_path / "base", keep=100)
    for number in range(20):
        (workspace / f"f{number}").write_text(str(number))
        backups.create(workspace)
    assert len(packs(backups)) == 20
    backups.prune()
    assert len(packs(backups)) == 1
    assert backups.verify().damaged == ()


def test_what_a_crashed_create_left_is_collected(workspace: Path, backups: Backups) -> None:
    """A create killed before its manifest leaves no backup, and prune frees its blobs."""
    backups.create(workspace)
    (workspace / "big").write_bytes(os.urandom(3 << 20))
    code = (
        "import os, sys; from pathlib import Path; from proctor.workspace import backups as b\n"
        "b.Backups.publish = lambda *a: os._exit(9)\n"
        "b.Backups(Path(sys.argv[1])).create(Path(sys.argv[2]))"
    )
    argv = [sys.executable, "-c", code, str(backups.base), str(workspace)]
    assert subprocess.run(argv, timeout=60).returncode == 9
    assert len(backups.listing()) == 1
    size = sum(path.stat().st_size for path in packs(backups))
    assert size > 3 << 20
    report = backups.prune()
    assert report.leftovers == 1
    assert report.bytes_freed > 3 << 20
    assert backups.verify().damaged == ()


def test_prune_leaves_foreign_directories_alone(workspace: Path, backups: Backups) -> None:
    """Directories in the base that are not ours are never removed."""
    backups.create(workspace)
    for name in ("db", "notes", "mine_20260102_030405"):
        (backups.base / name).mkdir()
    (backups.base / "mine_20260102_030405" / "diary").write_text("dear")
    backups.prune(keep=0)
    assert (backups.base / "db").is_dir()
    assert (backups.base / "notes").is_dir()
    assert (backups.base / "mine_20260102_030405" / "diary").exists()


def test_prune_waits_for_nobody_for_ever(workspace: Path, backups: Backups) -> None:
    """While somebody reads, removal gives up with a sentence after its time."""
    backups.create(workspace)
    with backups.store.shared(), pytest.raises(UnavailableError, match="another process"):
        backups.prune(wait_seconds=0.1)


def test_a_store_inside_the_workspace_is_refused(workspace: Path) -> None:
    """A store that would swallow itself is refused, also through a symlink; so is a workspace in the store."""
    with pytest.raises(RefusedError, match="inside each other"):
        Backups(workspace / "deep" / "backups").create(workspace)
    os.symlink(workspace, workspace.parent / "alias")
    with pytest.raises(RefusedError):
        Backups(workspace.parent / "alias" / "backups").create(workspace)
    inside = workspace.parent / "base" / "w"
    inside.mkdir(parents=True)
    with pytest.raises(RefusedError):
        Backups(workspace.parent / "base").create(inside)


def test_a_workspace_must_be_a_directory(workspace: Path, backups: Backups) -> None:
    """A missing workspace or a file is an error with a cure, and leaves no backup."""
    for bad in (workspace / "none", workspace / "a.txt"):
        with pytest.raises(NotFoundError):
            backups.create(bad)
    assert backups.listing() == []


@contextmanager
def unprivileged(*places: Path) -> Iterator[None]:
    """Run as an ordinary user; root reads everything."""
    if os.geteuid() != 0:
        yield
        return
    for place in places:
        for path in [place, *place.rglob("*")]:
            os.chown(path, 12345, 12345)
    os.setegid(12345)
    os.seteuid(12345)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def test_the_unreadable_is_reported_and_left_alone() -> None:
    """A file and a directory that cannot be read are named as problems and survive a restore."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        root, base = place / "w", place / "base"
        (root / "shut").mkdir(parents=True)
        base.mkdir()
        (root / "shut" / "in").write_text("in")
        (root / "closed").write_text("closed")
        (root / "open").write_text("open")
        (root / "closed").chmod(0)
        (root / "shut").chmod(0)
        with unprivileged(root, base):
            backups = Backups(base)
            backup = backups.create(root)
            assert sorted(backup.problems) == [("closed", "Permission denied"), ("shut", "Permission denied")]
            assert not backup.complete
            (root / "open").write_text("changed")
            bring_back(backups, backup)
            assert (root / "open").read_text() == "open"
            (root / "shut").chmod(0o700)
            (root / "closed").chmod(0o600)
            assert (root / "shut" / "in").read_text() == "in"
            assert (root / "closed").read_text() == "closed"


def test_a_directory_one_may_list_but_not_enter_is_reported() -> None:
    """Names that can be seen but not looked at are problems, not an end of the backup."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        root, base = place / "w", place / "base"
        (root / "glass" / "sub").mkdir(parents=True)
        base.mkdir()
        (root / "glass" / "f").write_text("f")
        (root / "open").write_text("open")
        with unprivileged(root, base):
            (root / "glass").chmod(0o444)
            backups = Backups(base)
            backup = backups.create(root)
            assert [path for path, _why in sorted(backup.problems)] == ["glass/f", "glass/sub"]
            (root / "open").write_text("changed")
            bring_back(backups, backup)
            assert (root / "open").read_text() == "open"
            (root / "glass").chmod(0o755)
        assert (root / "glass" / "f").read_text() == "f"


def test_the_only_copy_of_damaged_content_is_not_thrown_away(workspace: Path, backups: Backups) -> None:
    """Prune keeps a damaged pack for as long as a backup needs it and no healthy copy exists."""
    backups.create(workspace)
    pack = packs(backups)[0]
    raw = bytearray(pack.read_bytes())
    raw[17] ^= 1
    pack.write_bytes(raw)
    assert backups.verify().damaged
    backups.prune()
    assert packs(backups) == [pack]
    healed = backups.create(workspace)
    backups.prune()
    assert pack not in packs(backups)
    assert backups.verify([healed.name]).damaged == ()


def test_what_cannot_be_saved_is_not_overwritten() -> None:
    """A restore that would replace an unreadable file is refused before it touches anything."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        root, base = place / "w", place / "base"
        root.mkdir()
        base.mkdir()
        (root / "f").write_text("first")
        with unprivileged(root, base):
            backups = Backups(base)
            backup = backups.create(root)
            (root / "f").write_text("second")
            (root / "f").chmod(0)
            with pytest.raises(RefusedError, match="Permission denied"):
                bring_back(backups, backup)
            (root / "f").chmod(0o600)
            assert (root / "f").read_text() == "second"
            assert len(backups.listing()) == 1


def test_a_file_that_never_holds_still_is_a_problem(
    workspace: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changes during every read is reported, never stored as a mixture."""
    real = os.pread

    def growing(handle: int, length: int, offset: int) -> bytes:
        data = real(handle, length, offset)
        with (workspace / "a.txt").open("a") as file:
            file.write("more")
        return data

    monkeypatch.setattr(os, "pread", growing)
    backup = backups.create(workspace)
    assert backup.problems == (("a.txt", "it kept changing while it was read"),)


def test_excluded_paths_are_not_kept_and_not_deleted(workspace: Path, backups: Backups) -> None:
    """What the caller excludes is neither in the backup nor touched by its restore."""
    (workspace / "node_modules").mkdir()
    (workspace / "node_modules" / "x").write_text("x")
    backup = backups.create(workspace, exclude=["node_modules/"])
    assert "node_modules" not in backups.manifest(backup).by_path
    (workspace / "a.txt").write_text("changed")
    (workspace / "node_modules" / "y").write_text("y")
    bring_back(backups, backup)
    assert (workspace / "a.txt").read_text() == "a"
    assert sorted(path.name for path in (workspace / "node_modules").iterdir()) == ["x", "y"]


def test_a_tree_deeper_than_the_handles_is_kept(tmp_path: Path, backups: Backups) -> None:
    """Three hundred levels come back, though only a few directories are open at a time."""
    root = tmp_path / "deep"
    place = root
    for _ in range(300):
        place = place / "d"
    place.mkdir(parents=True)
    (place / "bottom").write_text("here")
    backup = backups.create(root)
    (place / "bottom").unlink()
    bring_back(backups, backup)
    assert (place / "bottom").read_text() == "here"


def test_progress_is_told(tmp_path: Path, backups: Backups) -> None:
    """A long backup tells how far it is, up to the last entry."""
    root = tmp_path / "w"
    make_tree(root)
    told: list[Progress] = []
    backup = backups.create(root, progress=told.append)
    assert told[-1].entries == backup.entries
    assert told[-1].bytes > 5 << 20


def test_an_unchanged_tree_costs_no_bytes(tmp_path: Path, backups: Backups) -> None:
    """The second backup of the same tree stores nothing new."""
    root = tmp_path / "w"
    make_tree(root)
    assert backups.create(root).stored_bytes > 5 << 20
    assert backups.create(root).stored_bytes == 0
