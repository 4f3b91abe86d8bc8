"""Listings follow the ignore rules, are capped, survive what is odd, and never give a stale answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.protocol.errors import NotFoundError
from proctor.workspace.scan import Scanner
from tests.workspace.test_backups import unprivileged


def git(place: Path, *words: str) -> None:
    """Run git as a user would, with a name."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgSign=false"]
    subprocess.run(["git", "-C", str(place), *who, *words], check=True, capture_output=True)


def fill(root: Path) -> None:
    """Build a small project with things to leave out."""
    for name in ("src/a.py", "src/b.pyc", "node_modules/x/y.js", "docs/read.me", "build/out.o", "keep/z.log"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / ".gitignore").write_text("*.pyc\nnode_modules/\n/build\n*.log\n!keep/z.log\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git work tree with one commit."""
    root = tmp_path / "repo"
    fill(root)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


WANTED = (".gitignore", "docs/read.me", "keep/z.log", "src/a.py")


def test_git_and_walk_agree(repository: Path, tmp_path: Path) -> None:
    """The same rules give the same files with git and without."""
    fill(tmp_path / "plain")
    by_git, by_walk = Scanner().files(repository), Scanner().files(tmp_path / "plain")
    assert (by_git.by, by_walk.by) == ("git", "walk")
    assert by_git.paths == by_walk.paths == WANTED


def test_untracked_files_come_and_deleted_ones_go_at_once(repository: Path) -> None:
    """A listing is never given again after a file came or went."""
    scanner = Scanner()
    assert scanner.files(repository).paths == WANTED
    (repository / "src" / "new.py").write_text("new")
    (repository / "docs" / "read.me").unlink()
    assert scanner.files(repository).paths == (".gitignore", "keep/z.log", "src/a.py", "src/new.py")
    (repository / ".gitignore").write_text("src/\nnode_modules/\nbuild/\n")
    assert "src/new.py" not in scanner.files(repository).paths


def test_an_unchanged_tree_is_answered_from_memory(repository: Path) -> None:
    """Two calls in a row give the very same listing; `fresh` looks again."""
    scanner = Scanner()
    time.sleep(0.15)  # what has just changed is not kept
    first = scanner.files(repository)
    assert scanner.files(repository) is first
    assert scanner.files(repository, fresh=True) is not first


@pytest.mark.parametrize("git_there", [True, False])
def test_the_cap_is_kept_and_said(tmp_path: Path, git_there: bool) -> None:
    """More files than the cap: exactly the cap, marked truncated."""
    root = tmp_path / "many"
    root.mkdir()
    for number in range(30):
        (root / f"f{number}").write_text("")
    if git_there:
        git(root, "init", "-q")
    listing = Scanner(cap=10).files(root)
    assert len(listing.paths) == 10
    assert listing.truncated
    assert not Scanner(cap=30).files(root).truncated


@pytest.mark.parametrize("git_there", [True, False])
def test_odd_names_and_broken_links_are_listed(tmp_path: Path, git_there: bool) -> None:
    """Broken symlinks, loops, odd bytes and line ends neither fail nor vanish."""
    root = tmp_path / "odd"
    root.mkdir()
    os.symlink("nowhere", root / "broken")
    os.symlink(".", root / "loop")
    names = [os.fsdecode(b"\xff\xfe"), "a\nb", "c\rd", "ü"]
    for name in names:
        (root / name).write_text("")
    (root / ".gitignore").write_text("x*/y\n")
    if git_there:
        git(root, "init", "-q")
    assert set(Scanner().files(root).paths) == {".gitignore", "broken", "loop", *names}


def test_nested_repositories_are_looked_into(repository: Path) -> None:
    """Files of a repository inside the work tree are listed by its own rules."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "code.py").write_text("")
    (inner / "junk.tmp").write_text("")
    (inner / ".gitignore").write_text("*.tmp\n")
    assert {"inner/code.py", "inner/.gitignore"} <= set(Scanner().files(repository).paths)
    assert "inner/junk.tmp" not in Scanner().files(repository).paths


def test_a_hostile_repository_runs_nothing(repository: Path, tmp_path: Path) -> None:
    """A configured fsmonitor program is not started by a listing."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(trap))
    assert Scanner().files(repository).paths == WANTED
    assert not (tmp_path / "sprung").exists()


def test_nested_ignore_files_and_negation_without_git(tmp_path: Path) -> None:
    """The nearest rule decides, and a pruned directory is not entered."""
    root = tmp_path / "walk"
    for name in ("a/x.txt", "a/y.log", "b/x.txt", "b/keep.txt", "b/c/x.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / ".gitignore").write_text("*.txt\n")
    (root / "b" / ".gitignore").write_text("!keep.txt\n/c/\n")
    assert Scanner().files(root).paths == (".gitignore", "a/y.log", "b/.gitignore", "b/keep.txt")


def test_a_missing_directory_is_said_to_be_missing(tmp_path: Path) -> None:
    """A name that does not exist is an error with a cure, not an empty listing."""
    with pytest.raises(NotFoundError):
        Scanner().files(tmp_path / "none")


PARTS = st.sampled_from(
    ["a", "b", "ab", "keep", "x.log", "y.log", "b.d", ".hid", "a b", ":(top)c", "[z]", "é"]
)
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
RULES = st.sampled_from([
    "a", "/a", "a/", "*.log", "!x.log", "a/*", "!a/keep", "**/b", "b/**", "*.d/", "!keep", "k*p", "?b", "*",
    "!*/", "[ab]", "\\:(top)c", "ab/**/x.log", "/*", "!/b", ".*", "a b", "é", "\\[z]", "keep/", "#note", "",
    "b\\", "!\\",
])  # fmt: skip


def build(root: Path, paths: set[str], rules: dict[str, list[str]]) -> None:
    """Lay out files (a path whose parent is a file is left out) and ignore files."""
    for path in sorted(paths):
        target = root / path
        if any((root / above).is_file() for above in target.relative_to(root).parents):
            continue
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("")
    for folder, lines in rules.items():
        if (root / folder).is_dir():
            (root / folder / ".gitignore").write_text("\n".join(lines) + "\n")


def as_git_says(root: Path) -> set[str]:
    """The slow and plain way: ask git for everything and look at each path."""
    shown = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "-c", "-o", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    names = os.fsdecode(shown.stdout).split("\0")[:-1]
    return {name for name in names if os.path.lexists(root / name) and not (root / name).is_dir()}


ODD_TREES = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@ODD_TREES
@given(
    paths=st.sets(PATHS, max_size=14),
    rules=st.dictionaries(st.sampled_from(["", "a", "b", "keep"]), st.lists(RULES, max_size=5), max_size=3),
    tracked=st.sampled_from(["none", "some", "all"]),
    gone=st.sets(PATHS, max_size=3),
)
def test_the_quick_listing_is_the_one_git_gives(
    paths: set[str], rules: dict[str, list[str]], tracked: str, gone: set[str]
) -> None:
    """For any tree, rules, index and deletions: exactly what git tracks or would track, and what is there."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        build(root, paths, rules if tracked == "some" else {})
        git(root, "init", "-q")
        if tracked != "none":
            git(root, "add", "-A")
        build(root, {f"new/{path}" for path in paths} | {f"{path}.late" for path in paths}, rules)
        for path in gone:
            if (root / path).is_file():
                (root / path).unlink()
            elif (root / path).is_dir():
                shutil.rmtree(root / path)
        listing = Scanner().files(root)
        assert set(listing.paths) == as_git_says(root)
        assert list(listing.paths) == sorted(set(listing.paths))


@ODD_TREES
@given(
    paths=st.sets(PATHS, max_size=14),
    rules=st.dictionaries(st.sampled_from(["", "a", "b", "keep"]), st.lists(RULES, max_size=5), max_size=3),
)
def test_the_walk_follows_the_rules_as_git_does(paths: set[str], rules: dict[str, list[str]]) -> None:
    """Without git the same files are listed as git would, whatever the rules are."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "plain"
        root.mkdir()
        build(root, paths, rules)
        listing = Scanner(ignores=[".git/"]).files(root)
        assert listing.by == "walk"
        git(root, "init", "-q")
        assert set(listing.paths) == as_git_says(root)


def test_what_took_the_place_of_a_tracked_file_is_listed(repository: Path) -> None:
    """A file that became a directory, and a directory that became a symlink, show as they are now."""
    (repository / "docs" / "read.me").unlink()
    (repository / "docs" / "read.me").mkdir()
    (repository / "docs" / "read.me" / "inner").write_text("")
    shutil.rmtree(repository / "keep")
    os.symlink("src", repository / "keep")
    assert set(Scanner().files(repository).paths) == {".gitignore", "docs/read.me/inner", "keep", "src/a.py"}


def test_submodules_are_looked_into_even_without_a_gitmodules_file(repository: Path) -> None:
    """A repository that was added as one name is listed by its own files."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "code.py").write_text("")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    git(repository, "add", "inner")
    assert set(Scanner().files(repository).paths) == {*WANTED, "inner/code.py"}


def test_a_merge_conflict_names_a_path_once(repository: Path) -> None:
    """In a conflict the index holds a path three times, the listing once."""
    git(repository, "checkout", "-qb", "other")
    (repository / "src" / "a.py").write_text("theirs")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "-")
    (repository / "src" / "a.py").write_text("ours")
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    assert Scanner().files(repository).paths == WANTED


def test_many_unknown_names_are_listed_like_few(repository: Path) -> None:
    """Whether git is asked by name or for everything, the rules are the same."""
    for number in range(450):
        (repository / "src" / f"n{number}.py").write_text("")
        (repository / "src" / f"n{number}.log").write_text("")
    assert set(Scanner().files(repository).paths) == {
        *WANTED,
        *(f"src/n{number}.py" for number in range(450)),
    }


def test_a_tree_deeper_than_the_handles_is_cut_and_named(tmp_path: Path) -> None:
    """A very deep directory is said to be unreadable, never passed over in silence."""
    root = tmp_path / "deep"
    (root / "/".join(["d"] * 230)).mkdir(parents=True)
    listing = Scanner().files(root)
    assert listing.unreadable == ("/".join(["d"] * 200),)


@pytest.mark.parametrize("line", ["\\", "!\\", "[b- a]", "[.-!]*", "a\\/"])
def test_an_ignore_line_that_is_no_pattern_spoils_nothing(tmp_path: Path, line: str) -> None:
    """The other lines still hold."""
    root = tmp_path / "plain"
    fill(root)
    (root / ".gitignore").write_text(f"{line}\n*.log\n{line}\n")
    listing = Scanner().files(root)
    assert "keep/z.log" not in listing.paths
    assert "src/a.py" in listing.paths


@pytest.mark.parametrize("git_there", [True, False])
def test_what_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch, git_there: bool) -> None:
    """A directory without leave is in `unreadable`, with git and without; so is the root itself."""
    with tempfile.TemporaryDirectory() as name:
        place, root = Path(name), Path(name) / "closed"
        place.chmod(0o755)
        monkeypatch.setenv("HOME", name)
        (root / "in").mkdir(parents=True)
        (root / "in" / "f").write_text("")
        (root / "g").write_text("")
        if git_there:
            git(root, "init", "-q")
            git(root, "add", "-A")
        (root / "in").chmod(0)
        with unprivileged(root):
            listing = Scanner().files(root)
            assert (listing.by, listing.paths) == ("git" if git_there else "walk", ("g",))
            assert listing.unreadable == ("in",)
            root.chmod(0o100)
            assert Scanner().files(root).unreadable == ("",)
            root.chmod(0o755)
        (root / "in").chmod(0o755)
