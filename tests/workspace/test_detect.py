"""Detection tells how a project is built from its files alone, and never fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from proctor.workspace.detect import Detected, detect, detect_agents, detect_base_branch, exclude_file
from tests.workspace.projects import PROJECTS, make


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_commands_of_each_kind_of_project(tmp_path: Path, name: str) -> None:
    """Each fixture project gives exactly the expected commands."""
    project = PROJECTS[name]
    make(tmp_path, project)
    found = detect(tmp_path, {"PATH": ""})
    assert (found.kinds, found.setup, found.test, found.lint) == (
        project.kinds,
        project.setup,
        project.test,
        project.lint,
    )
    assert found.lock_files == project.locks


HOSTILE = {
    "package.json": ['{"scripts": []}', "[1]", "{", '{"scripts": {"test": 1}}', "[" * 100_000, "\ufffd"],
    "pyproject.toml": [
        "tool = 1",
        "[tool]\nruff = 1\npytest = 2",
        "= =",
        "[project]\noptional-dependencies = 3",
    ],
    "composer.json": ['{"scripts": "x"}'],
    "Makefile": ["test := 1\n", ":::\n", "\t" * 1000],
    "Cargo.toml": ["workspace = 1"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in HOSTILE.items() for text in texts]
)
def test_broken_files_do_not_break_detection(tmp_path: Path, name: str, text: str) -> None:
    """A file with a wrong shape says less, never raises."""
    (tmp_path / name).write_text(text)
    assert isinstance(detect(tmp_path, {"PATH": ""}), Detected)


def test_what_is_no_regular_file_is_passed_over(tmp_path: Path) -> None:
    """Directories and pipes with telling names neither hang nor count."""
    os.mkfifo(tmp_path / "package.json")
    (tmp_path / "go.mod").mkdir()
    (tmp_path / "Makefile").symlink_to(tmp_path / "Makefile")
    assert detect(tmp_path, {"PATH": ""}).kinds == ()


def test_installed_agents_are_found_on_the_given_path(tmp_path: Path) -> None:
    """Only programs that can be executed count, in a fixed order."""
    for name in ("codex", "claude"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "gemini").write_text("not executable")
    assert detect_agents({"PATH": str(tmp_path)}) == ("claude", "codex")
    assert detect_agents({"PATH": ""}) == ()


def git(root: Path, *arguments: str) -> None:
    """Run git with an identity and a configuration of the test's own."""
    identity = {
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@t",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@t",
    }
    environ = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, env=environ, timeout=30
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository on the branch `work` with one commit."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-b", "work")
    git(root, "commit", "--allow-empty", "-m", "first")
    return root


def here(root: Path) -> str | None:
    """The base branch, with the test's PATH."""
    return detect_base_branch(root, {"PATH": os.environ["PATH"], "HOME": str(root)})


def test_the_base_branch_is_the_remotes_then_main_then_master_then_the_current(repository: Path) -> None:
    """Each better answer wins over the one before."""
    answers = [here(repository)]
    for branch in ("master", "main"):
        git(repository, "branch", branch)
        answers.append(here(repository))
    git(repository, "update-ref", "refs/remotes/origin/trunk", "HEAD")
    git(repository, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert [*answers, here(repository)] == ["work", "master", "main", "trunk"]


def test_an_unborn_branch_counts_and_a_detached_head_has_none(tmp_path: Path, repository: Path) -> None:
    """A repository without commits has a branch already; a detached head has no name."""
    git(tmp_path, "init", "-b", "first")
    assert here(tmp_path) == "first"
    git(repository, "checkout", "--detach")
    git(repository, "branch", "-D", "work")
    assert here(repository) is None


def test_without_git_there_is_no_base_branch(tmp_path: Path, repository: Path) -> None:
    """No repository, no program or a git that hangs up: no answer, no failure."""
    assert here(tmp_path) is None
    assert detect_base_branch(repository, {"PATH": ""}) is None
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "git").write_text("not a program")
    (broken / "git").chmod(0o755)
    assert detect_base_branch(repository, {"PATH": str(broken)}) is None


def test_variables_of_a_hook_do_not_point_elsewhere(repository: Path, tmp_path: Path) -> None:
    """Inside a git hook GIT_DIR names another repository; the question is about this one."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_DIR": str(tmp_path / "other")}
    assert detect_base_branch(repository, environ) == "work"


def test_the_ignore_list_is_found_in_worktrees_too(repository: Path, tmp_path: Path) -> None:
    """A linked worktree shares the list of its repository, as git itself says; other `.git` files have none."""
    git(repository, "worktree", "add", str(tmp_path / "linked"))
    expected = repository / ".git" / "info" / "exclude"
    assert exclude_file(repository) == expected
    found = exclude_file(tmp_path / "linked")
    assert found is not None
    assert found.resolve() == expected.resolve()
    assert exclude_file(tmp_path) is None
    (tmp_path / ".git").write_text("nonsense")
    assert exclude_file(tmp_path) is None
    (tmp_path / ".git").write_text("gitdir: nowhere")
    assert exclude_file(tmp_path) is None
    shutil.rmtree(tmp_path / "linked")
