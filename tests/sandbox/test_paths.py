"""The plan of what a command sees: deeper rules win, hidden stays hidden, prefixes are whole names."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from proctor.sandbox.paths import Kind, carve, mounts, resolved, secret_paths, within
from proctor.sandbox.spec import Spec

NAMES = st.lists(st.sampled_from(["a", "ab", "b"]), max_size=4).map(lambda parts: "/" + "/".join(parts))


@given(NAMES, NAMES)
def test_within_is_about_whole_names(path: str, root: str) -> None:
    """`/ab` is not in `/a`, everything is in `/`, and everything is in itself."""
    assert within(path, root) == (Path(path) == Path(root) or Path(root) in Path(path).parents)


def test_a_worktree_inside_a_hidden_directory_is_writable(tmp_path: Path) -> None:
    """State is hidden, the worktree in it is not, and the worktree's own secrets are again."""
    work = tmp_path / "data" / "wt" / "x"
    (work / "secret").mkdir(parents=True)
    (work / ".git").write_text("gitdir: x")
    hidden = (str(tmp_path / "data"), str(work / "secret"))
    plan = mounts(
        resolved(Spec(("true",), str(work), writable=(str(work),), hidden=hidden)), (str(work / ".git"),), ()
    )
    kinds = [(mount.path, mount.kind) for mount in plan if mount.path.startswith(str(tmp_path))]
    inside_tmp = os.path.realpath(tmp_path).startswith("/tmp/")
    expected = [
        (str(work), Kind.WRITABLE),
        (str(work / ".git"), Kind.PROTECTED),
        (str(work / "secret"), Kind.HIDDEN),
    ]
    assert kinds == ([] if inside_tmp else [(str(tmp_path / "data"), Kind.HIDDEN)]) + expected


def test_hidden_links_hide_what_they_name(tmp_path: Path) -> None:
    """A secret behind a symbolic link is hidden where it really lies."""
    work = tmp_path / "ws"
    (work / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(work / "real")
    plan = mounts(
        resolved(Spec(("true",), str(work), writable=(str(work),), hidden=(str(tmp_path / "link"),))), (), ()
    )
    assert (str(work / "real"), Kind.HIDDEN) in [(mount.path, mount.kind) for mount in plan]


def test_carving_leaves_out_exactly_what_is_hidden(tmp_path: Path) -> None:
    """Everything beside the hidden branch stays, the branch and its parents as a whole do not."""
    for name in ("a/x/secret", "a/y", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "escape").symlink_to(tmp_path / "a" / "x")
    found = carve((str(tmp_path),), (str(tmp_path / "a" / "x" / "secret"),))
    assert found == [str(tmp_path / "a" / "y"), str(tmp_path / "b")]


def test_the_usual_secrets_are_listed() -> None:
    """Keys, tokens and the container daemon's socket belong to the list."""
    paths = secret_paths("/home/u")
    assert {"/home/u/.ssh", "/home/u/.aws", "/home/u/.netrc", "/var/run/docker.sock"} <= set(paths)
