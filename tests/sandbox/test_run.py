"""The door of the room: permits, levels, and honest refusals."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proctor.protocol.permits import Permit, PermitExpiredError, PermitForgedError, PermitSpentError
from proctor.sandbox import cgroup, prepare, probe
from proctor.sandbox.environment import ShellUnavailableError, allowed_environment, shell_argv
from proctor.sandbox.run import run, run_sync
from proctor.sandbox.seatbelt import seatbelt_profile
from proctor.sandbox.spec import Level, LevelUnavailableError, Spec, SpecError
from proctor.testing.permits import permit_for_tests

Make = Callable[..., Spec]


async def test_nothing_runs_without_a_permit(spec: Make, place: Path) -> None:
    """No permit, a forged, an old or a used one: refused before anything starts."""
    wanted = spec("touch ran")
    used = permit_for_tests()
    with pytest.raises(PermitForgedError):
        await run(wanted, permit=None)  # type: ignore[arg-type]
    with pytest.raises(PermitExpiredError):
        await run(wanted, permit=permit_for_tests(seconds=-1))
    assert not (place / "ws" / "ran").exists()
    await run(wanted, permit=used)
    with pytest.raises(PermitSpentError):
        await run(wanted, permit=used)


def test_it_runs_without_an_event_loop(spec: Make) -> None:
    """Callers that are not asynchronous have a way in."""
    permit: Permit = permit_for_tests()
    assert run_sync(spec("echo sync"), permit=permit).stdout.text == "sync\n"


async def test_a_level_that_cannot_be_had_is_refused(
    spec: Make, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    """Never a silent downgrade: the refusal names the reason and the cure."""
    monkeypatch.setattr(probe, "bubblewrap", lambda: (None, "bwrap is not installed"))
    monkeypatch.setattr(probe, "landlock", lambda: (0, "the kernel has no Landlock"))
    with pytest.raises(LevelUnavailableError, match=r"no Landlock.*bubblewrap"):
        await run(spec("touch ran"), permit=permit_for_tests())
    with pytest.raises(LevelUnavailableError):
        await run(spec("touch ran", Level.BWRAP), permit=permit_for_tests())
    assert not (place / "ws" / "ran").exists()
    assert probe.best_level(Level.LIMITS) is Level.LIMITS


def test_level_zero_refuses_everything() -> None:
    """There is no way to run something at level 0."""
    with pytest.raises(LevelUnavailableError):
        probe.best_level(Level.REFUSE, Level.REFUSE)


def test_the_best_level_is_chosen() -> None:
    """Without a wish the strongest mechanism that works is taken."""
    assert probe.best_level(Level.LIMITS) is probe.probe().level


def test_the_doctor_gives_a_reason_and_a_cure_for_each_failure() -> None:
    """Every row that fails says why and what to do."""
    bad = probe.Probe(
        "linux",
        Level.LIMITS,
        None,
        "bwrap is not installed",
        0,
        "no Landlock",
        True,
        "no cgroup v2 tree",
        "no bwrap",
    )
    for found in (bad, probe.probe()):
        for check in probe.describe(found):
            assert check.detail
            assert check.ok or check.cure


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"argv": ()}, "empty"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"cwd": "relative"}, "absolute"),
        ({"hidden": ("~/.ssh",)}, "absolute"),
        ({"level": Level.LIMITS}, "below"),
        ({"env": {"A=B": "c"}}, "no environment variable"),
        ({"env": {"A": "b\0--bind"}}, "no environment variable"),
    ],
)
def test_a_wrong_spec_is_refused_at_once(change: dict[str, Any], problem: str) -> None:
    """What cannot be confined as written never gets as far as a process."""
    with pytest.raises(SpecError, match=problem):
        Spec(**{"argv": ("true",), "cwd": "/", **change})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"writable": ("/",)}, "whole file system"),
        ({"writable": ("/nowhere/at/all",)}, "does not exist"),
        ({"cwd": "/nowhere/at/all"}, "does not exist"),
        ({"writable": ("/var",), "hidden": ("/var",)}, "both"),
    ],
)
async def test_an_impossible_view_is_refused(change: dict[str, Any], problem: str, place: Path) -> None:
    """Contradictions are told, not resolved by chance."""
    from tests.sandbox.conftest import need

    need(Level.BWRAP)
    with pytest.raises(SpecError, match=problem):
        await run(Spec(**{"argv": ("true",), "cwd": str(place), **change}), permit=permit_for_tests())


def test_the_environment_takes_only_what_is_named() -> None:
    """A token is passed only when somebody chose it by name."""
    user = {"PATH": "/bin", "HOME": "/h", "AWS_SECRET": "s", "CHOSEN": "c", "LD_PRELOAD": "evil.so"}
    made = allowed_environment(user, allow=["CHOSEN"], extra={"CI": "1"})
    assert made == {"PATH": "/bin", "HOME": "/h", "CHOSEN": "c", "CI": "1", "LANG": "C.UTF-8"}


def test_shells_are_looked_for_in_absolute_directories(tmp_path: Path) -> None:
    """A `bash` in the workspace is not taken through a relative PATH entry."""
    assert shell_argv("echo $0", path="/usr/bin:/bin")[1:] == ("--noprofile", "--norc", "-c", "echo $0")
    with pytest.raises(ShellUnavailableError, match="bash"):
        shell_argv("true", path=".:bin")
    with pytest.raises(ShellUnavailableError, match="fish"):
        shell_argv("true", "fish")
    fake = tmp_path / "pwsh"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    assert shell_argv("Get-Date", "pwsh", path=str(tmp_path))[:2] == (str(fake), "-NoLogo")


def test_a_quote_in_a_path_does_not_end_the_macos_rule(place: Path) -> None:
    """The (untested) profile cannot be broken out of by a path; the last rule hides secrets."""
    evil = place / 'a")(allow default)(x "'
    evil.mkdir()
    text = seatbelt_profile(Spec(("true",), "/", writable=(str(evil),), hidden=("/secret",)), "/tmp/x", ())
    assert '\\")(allow default)(x \\"' in text
    assert text.startswith("(version 1)\n(deny default)")
    assert text.splitlines()[-1] == '(deny file-read* file-write* (subpath "/secret"))'


def test_a_cgroup_ends_all_its_members() -> None:
    """Where we may make groups, joining and killing one works on the real tree; elsewhere the reason is told."""
    place = cgroup._own_group()
    if place is None or not os.access(place[0] / place[1], os.W_OK):
        assert cgroup.delegated()[1]
        assert cgroup.make_group(memory_mb=64, cpu_percent=None, processes=None) is None
        return
    group = cgroup.Group(place[0] / place[1] / f"proctor-test-{os.getpid()}")
    group.path.mkdir()
    child = subprocess.Popen(["sleep", "30"])
    try:
        (group.path / "cgroup.procs").write_text(str(child.pid))
        assert not group.ran_out_of_memory()
        group.remove()
        assert child.wait(timeout=10) == -9
    finally:
        child.kill()
        group.remove()
    assert _removed(group)


def _removed(group: cgroup.Group) -> bool:
    """The kernel lets a group go a moment after its last member."""
    for _ in range(100):
        if not group.path.exists():
            return True
        time.sleep(0.05)
        group.remove()
    return False


async def test_a_command_joins_its_group_before_it_starts(
    spec: Make, monkeypatch: pytest.MonkeyPatch, level: Level
) -> None:
    """The program itself is in the group (where we may make one), so its limits hold from the first instruction."""
    place = cgroup._own_group()
    if place is None or not os.access(place[0] / place[1], os.W_OK):
        assert cgroup.delegated()[1]
        return
    group = cgroup.Group(place[0] / place[1] / f"proctor-join-{os.getpid()}")
    group.path.mkdir()
    monkeypatch.setattr(prepare, "make_group", lambda **_: group)
    wanted = spec("cat /proc/self/cgroup", level)
    result = await run(wanted, permit=permit_for_tests())
    own = [line for line in result.stdout.text.splitlines() if line.startswith("0::")]
    # Level 3 has a cgroup namespace: the group the wrapper was in when it made one is its root.
    assert own[0].endswith((group.path.name, "/"))
    assert _removed(group)
