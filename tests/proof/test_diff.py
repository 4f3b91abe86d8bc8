"""Diffs are read as git writes them, and what is read can be rendered, applied and turned around."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.proof.change import change_of, diff_texts, read_change
from proctor.proof.diff import Diff, DiffError, FileDiff, Hunk, Line, apply, parse_diff, render_diff, reverse
from proctor.workspace.git import Git

_texts = st.lists(
    st.sampled_from(
        ["a", "b", "", "-- x", "++ y", "@@ -1 +1 @@", "\\ No newline", "ä\r", "\x0c", "diff --git a/x b/x"]
    ),
    max_size=12,
)
_files = st.tuples(_texts, st.booleans()).map(
    lambda made: "\n".join(made[0]) + ("\n" if made[1] and made[0] else "")
)


@given(_files, _files, st.integers(0, 3))
def test_any_two_texts_round_trip(before: str, after: str, context: int) -> None:
    """Compared, rendered, parsed and applied, forwards and backwards, lines that look like headers and all."""
    made = diff_texts(before, after, "dir/x.py", context=context)
    (read,) = parse_diff(render_diff(Diff((made,)))).files
    assert read == made
    assert apply(read, before) == after
    assert apply(reverse(Diff((read,))).files[0], after) == before


_paths = st.text(alphabet='ab /ä"\\\t\n.-', min_size=1, max_size=8).filter(
    lambda p: not p.startswith("/") and p.strip() == p and " b/" not in p
)


@given(
    st.lists(
        st.tuples(
            _paths, _paths, st.sampled_from(["modified", "added", "deleted", "renamed", "mode", "binary"])
        ),
        max_size=4,
    )
)
def test_any_header_round_trips(rows: list[tuple[str, str, str]]) -> None:
    """Odd file names, renames, modes and binaries survive."""
    hunk = (Hunk(1, 1, (Line("-", "x"), Line("+", "y", ended=False))),)
    kinds = {
        "modified": lambda a, b: FileDiff(a, a, hunk),
        "added": lambda a, b: FileDiff(None, a, (Hunk(0, 1, (Line("+", "x"),)),), new_mode="100755"),
        "deleted": lambda a, b: FileDiff(a, None, (Hunk(1, 0, (Line("-", "x"),)),), old_mode="100644"),
        "renamed": lambda a, b: FileDiff(a, b if a != b else b + "2", hunk, similarity=90),
        "mode": lambda a, b: FileDiff(a, a, old_mode="100644", new_mode="100755"),
        "binary": lambda a, b: FileDiff(a, a, binary=True),
    }
    diff = Diff(tuple(kinds[kind](a, b) for a, b, kind in rows))
    assert parse_diff(render_diff(diff)) == diff


@given(st.text(alphabet='@-+ 1,0\\\nadifg/b"', max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a DiffError comes out of a bad diff."""
    with contextlib.suppress(DiffError):
        assert all(file.path for file in parse_diff("diff --git a/x b/x\n" + text).files)


@pytest.mark.parametrize(
    "text",
    [
        "diff --cc x\n",
        "diff --git a/x b/x\n@@ -1,2 +1 @@\n x\n",
        "--- a\n+++ b\n@@ -1 +1 @@\n?x\n",
        "--- a\n+++ b\n@@ x\n",
    ],
)
def test_broken_diffs_are_refused_with_the_line(text: str) -> None:
    """A merge, a cut hunk and a wrong letter are named."""
    with pytest.raises(DiffError, match=r"at line \d"):
        parse_diff(text)


def git(place: Path, *words: str) -> str:
    """Run git in a repository without anybody's settings."""
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", "-C", str(place), *settings, *words], check=True, capture_output=True, text=True
    ).stdout


def test_a_real_change_is_read_from_git(tmp_path: Path) -> None:
    """Added, deleted, renamed, binary, without line end: between commits and to the checkout."""
    repo = tmp_path / "repo"
    repo.mkdir()
    git(repo, "init", "-q")
    (repo / "keep.py").write_text("a = 1\nb = 2\n")
    (repo / "old name.py").write_text("x = 1\n" * 20)
    (repo / "gone.py").write_text("y\n")
    (repo / "pic.png").write_bytes(b"\x89PNG\0\1")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    (repo / "keep.py").write_text("a = 1\nb = 3")
    git(repo, "mv", "old name.py", "näw.py")
    (repo / "gone.py").unlink()
    (repo / "new.py").write_text("z\n")
    (repo / "pic.png").write_bytes(b"\x89PNG\0\2")
    git(repo, "add", "-A")
    checkout = read_change(Git(repo), "HEAD")
    git(repo, "commit", "-qm", "change")
    change = read_change(Git(repo), "HEAD~1", "HEAD")
    assert change == checkout
    assert {file.path: file.status for file in change.diff.files} == {
        "keep.py": "modified", "näw.py": "renamed", "gone.py": "deleted", "new.py": "added", "pic.png": "modified",
    }  # fmt: skip
    texts = {file.path: (file.before, file.after) for file in change.files}
    assert texts["keep.py"] == ("a = 1\nb = 2\n", "a = 1\nb = 3")
    assert texts["new.py"] == (None, "z\n")
    assert change.unread == ("pic.png",)
    assert change.diff.of("keep.py") == diff_texts(*texts["keep.py"], "keep.py").__class__(
        "keep.py", "keep.py", diff_texts(*texts["keep.py"], "keep.py").hunks
    )


def test_line_numbers_are_those_of_the_files() -> None:
    """Added lines count in the new file, removed ones in the old."""
    (file,) = change_of({"x": ("1\n2\n3\n4\n", "0\n1\n3\n4\n5\n")}).diff.files
    assert file.added == [(1, "0"), (5, "5")]
    assert file.removed == [(2, "2")]
