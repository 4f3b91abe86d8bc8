"""One command in one clean checkout: it sees that commit at the repository's path, and harms only itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from proctor.proof.disk import DiskLimit, used_bytes
from proctor.proof.runner import Runner
from proctor.sandbox.spec import Level, Limits
from tests.proof.repos import commit, git, new_repo, runner_of, write
from tests.sandbox.conftest import need

LEVELS = pytest.mark.parametrize("level", [Level.BWRAP, Level.LANDLOCK], ids=["bwrap", "landlock"])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Two commits that differ in one file."""
    place = new_repo(tmp_path / "repo", {"what.txt": "base\n", "check.sh": "#!/bin/sh\ncat what.txt\n"})
    commit(place, "second", {"what.txt": "change\n"})
    write(place, {"what.txt": "not committed\n"})
    return place


def ids(runner: Runner, rev: str) -> tuple[str, str]:
    """Tree and commit of a revision."""
    return runner.trees.tree(rev), runner.trees.commit(rev)


@LEVELS
async def test_a_command_that_names_the_repository_sees_that_commit(
    repo: Path, tmp_path: Path, level: Level
) -> None:
    """From any directory the whole path of a file leads to the leg's own commit, and its git agrees."""
    need(level)
    runner = runner_of(repo, tmp_path / "home", level=level)
    for rev, text in (("HEAD~1", "base"), ("HEAD", "change")):
        show = f"git -C {repo} show HEAD:what.txt"
        line = f"cd / && cat {repo}/what.txt && {show} && cd {repo} && ./check.sh"
        done = await runner.run(*ids(runner, rev), line)
        assert done.ok
        assert done.stdout.text.split() == [text] * 3
        assert done.rerooted is (level is Level.LANDLOCK)
    assert (repo / "what.txt").read_text() == "not committed\n"


@LEVELS
async def test_a_command_harms_only_its_own_run(repo: Path, tmp_path: Path, level: Level) -> None:
    """Deleting everything it can reach leaves the repository whole and the next run clean."""
    need(level)
    runner = runner_of(repo, tmp_path / "home", level=level, slots=1)
    before = sorted(str(path) for path in repo.rglob("*"))
    wreck = (
        f"rm -rf {repo} {repo}/.git . ~ 2>/dev/null; ls -A; touch made; git init -q . 2>/dev/null; chmod 0 ."
    )
    await runner.run(*ids(runner, "HEAD"), wreck)
    assert sorted(str(path) for path in repo.rglob("*")) == before
    done = await runner.run(*ids(runner, "HEAD"), "ls -A | sort | tr '\\n' ' '; cat what.txt")
    assert done.stdout.text == ".git check.sh what.txt change\n"


@pytest.mark.slow
async def test_forks_memory_time_and_output_are_bounded(repo: Path, tmp_path: Path) -> None:
    """A bomb of each kind ends its own run with the reason, and nobody stays behind."""
    limits = Limits(seconds=3.0, grace=0.5, memory_mb=200, processes=40)
    runner = runner_of(repo, tmp_path / "home", limits=limits)
    python = sys.executable
    cases = {
        "timeout": "sleep 60 & sleep 60",
        "memory": f"exec {python} -c 'x=[bytearray(1<<20) for _ in range(4000)]; import time; time.sleep(9)'",
        "processes": "for i in $(seq 300); do sleep 20 & done; sleep 20; exit 7",
        None: "head -c 300M /dev/zero; exit 7",
    }
    for reason, line in cases.items():
        done = await runner.run(*ids(runner, "HEAD"), line)
        assert not done.ok, reason
        assert len(done.stdout.text) < 1 << 20
        if reason in {"timeout", None}:
            assert done.killed_for == reason


@LEVELS
@pytest.mark.parametrize("where", ["big", "$TMPDIR/big"])
async def test_a_command_that_fills_the_disk_harms_only_its_own_run(
    repo: Path, tmp_path: Path, level: Level, where: str
) -> None:
    """It is ended for that reason, what it wrote is gone at once, and the next run finds a clean checkout."""
    need(level)
    if level is Level.BWRAP and "TMPDIR" in where:
        limits = Limits(
            seconds=60.0, grace=0.5, temporary_mb=16
        )  # the private /tmp there has a size of its own
    else:
        limits = Limits(seconds=60.0, grace=0.5)
    runner = runner_of(repo, tmp_path / "home", level=level, slots=1, disk=DiskLimit(32 << 20), limits=limits)
    pieces = "for i in $(seq 100); do head -c 4M /dev/zero || exit 1; sleep 0.02; done"
    done = await runner.run(*ids(runner, "HEAD"), f"( {pieces} ) > {where}; test $? = 0 && sleep 30")
    assert not done.ok
    in_memory = level is Level.BWRAP and "TMPDIR" in where
    assert done.killed_for == (None if in_memory else "disk")
    assert used_bytes([tmp_path / "home"], 0.0, 1 << 40) < 16 << 20
    again = await runner.run(*ids(runner, "HEAD"), "cat what.txt; ls")
    assert again.stdout.text == "change\ncheck.sh\nwhat.txt\n"


async def test_a_command_sees_its_commits_submodules(repo: Path, tmp_path: Path) -> None:
    """Filled from this machine, without network; one that the user does not have is empty and named."""
    library = new_repo(tmp_path / "library", {"lib.txt": "library\n"})
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "lib")
    git(repo, "commit", "-qam", "third")
    runner = runner_of(repo, tmp_path / "home")
    done = await runner.run(*ids(runner, "HEAD"), "cat lib/lib.txt")
    assert (done.stdout.text, done.ok) == ("library\n", True)
    assert not [words for words in done.missing if "submodule" in words]
    git(tmp_path, "clone", "-q", str(repo), str(tmp_path / "clone"))
    other = runner_of(tmp_path / "clone", tmp_path / "other")
    assert (
        "the submodule lib is not initialised" in (await other.run(*ids(other, "HEAD"), "ls lib")).missing[-1]
    )


async def test_the_network_and_the_users_secrets_are_out_of_reach(repo: Path, tmp_path: Path) -> None:
    """No address answers and what is hidden is not there."""
    secret = tmp_path / "keys"
    secret.mkdir()
    (secret / "id").write_text("SECRET")
    runner = runner_of(repo, tmp_path / "home", hidden=(str(secret), str(tmp_path / "home" / "proof")))
    connect = "import socket; socket.create_connection(('192.0.2.1', 9), 1)"
    line = f'cat {secret}/id; ls {tmp_path}/home/proof; {sys.executable} -c "{connect}"'
    done = await runner.run(*ids(runner, "HEAD"), line)
    assert "SECRET" not in done.stdout.text
    assert "slots" not in done.stdout.text
    assert done.exit_code != 0


async def test_a_failing_set_up_is_told_apart_from_a_failing_command(repo: Path, tmp_path: Path) -> None:
    """The stage says that the command was never reached."""
    runner = runner_of(repo, tmp_path / "home", setup=("echo ready > made", "exit 3"))
    done = await runner.run(*ids(runner, "HEAD"), "echo reached")
    assert (done.stage, done.exit_code, done.ok) == ("setup", 3, False)
    assert "reached" not in done.stdout.text


async def test_services_run_beside_the_command_and_die_with_it(repo: Path, tmp_path: Path) -> None:
    """A server on loopback answers; one that ends at once stops the run with its own words."""
    serve = f"{sys.executable} -m http.server 8099 --bind 127.0.0.1"
    get = (
        f'{sys.executable} -c "import time, urllib.request as u\nfor i in range(300):\n try:\n'
        "  print(u.urlopen('http://127.0.0.1:8099/what.txt').read()); break\n except OSError: time.sleep(0.1)\""
    )
    need(Level.BWRAP)
    runner = runner_of(repo, tmp_path / "home", services={"web": serve})
    done = await runner.run(*ids(runner, "HEAD"), get)
    assert "change" in done.stdout.text
    broken = runner_of(repo, tmp_path / "home", services={"web": "echo no such thing; exit 1"})
    done = await broken.run(*ids(runner, "HEAD"), "echo reached")
    assert done.exit_code == 125
    assert "no such thing" in done.stderr.text


async def test_installed_dependencies_are_lent_read_only_while_the_lock_is_the_same(tmp_path: Path) -> None:
    """Equal lock: the directory is there and cannot be written; another lock: it is not there."""
    place = new_repo(tmp_path / "repo", {"uv.lock": "a==1\n", ".gitignore": ".venv\n"})
    write(place, {".venv/lib.txt": "installed\n"})
    commit(place, "other lock", {"uv.lock": "a==2\n"})
    runner = runner_of(place, tmp_path / "home", setup=("echo set up > made.txt",))
    need(Level.BWRAP)
    line = "cat .venv/lib.txt made.txt; echo x > .venv/lib.txt"
    lent = await runner.run(*ids(runner, "HEAD"), line)
    assert lent.lent == (".venv",)
    assert lent.stdout.text == "installed\n"
    assert "Read-only" in lent.stderr.text
    own = await runner.run(*ids(runner, "HEAD~1"), line)
    assert own.lent == ()
    assert own.stdout.text == "set up\n"


async def test_runs_side_by_side_do_not_see_each_other(repo: Path, tmp_path: Path) -> None:
    """Twenty runs on two slots each find only their own mark."""
    runner = runner_of(repo, tmp_path / "home", slots=2)
    tree, head = ids(runner, "HEAD")
    async with asyncio.TaskGroup() as group:
        line = "ls mark-* 2>/dev/null; touch mark-{0}; sleep 0.02; ls mark-* | tr -d '\\n'"
        runs = [group.create_task(runner.run(tree, head, line.format(n))) for n in range(20)]
    assert [run.result().stdout.text for run in runs] == [f"mark-{n}" for n in range(20)]
