"""Who is a person, which process holds a lease, and which rules hold: the small facts the gate rests on."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.config import load_settings
from proctor.gate.holder import is_gone, this_process
from proctor.gate.humans import NotHumanError, human_with_token, load_token, user_at_terminal
from proctor.gate.policy import Effect, judge_command
from proctor.gate.rulebook import RuleBook, SettingsShelf


def test_token_is_made_once_and_private(tmp_path: Path) -> None:
    """Twenty first users get the same token, and nobody else can read it."""
    path = tmp_path / "state" / "token"
    with ThreadPoolExecutor(20) as pool:
        tokens = set(pool.map(lambda _: load_token(path), range(20)))
    assert len(tokens) == 1
    assert len(tokens.pop()) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["token"]


def test_only_the_right_token_is_a_person(tmp_path: Path) -> None:
    """Exact and whole; any other text is refused with where to find it."""
    path = tmp_path / "token"
    token = load_token(path)
    assert human_with_token(token, token_file=path, name="ada").name == "ada"
    for wrong in ("", token[:-1], token + "x", token.swapcase()):
        with pytest.raises(NotHumanError, match="the token is wrong"):
            human_with_token(wrong, token_file=path, name="ada")


def test_token_file_that_is_not_what_it_should_be_is_refused(tmp_path: Path) -> None:
    """A link, a directory, an open file, an empty one: no guess."""
    path = tmp_path / "token"
    load_token(path)
    path.chmod(0o640)
    with pytest.raises(NotHumanError):
        load_token(path)
    path.unlink()
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(NotHumanError, match="damaged"):
        load_token(path)
    real = tmp_path / "real"
    path.rename(real)
    path.symlink_to(real)
    with pytest.raises(NotHumanError):
        load_token(path)
    with pytest.raises(NotHumanError, match="cannot be read"):
        user_at_terminal({}, token_file=real / "below", name="ada")


def test_process_is_gone_only_when_that_is_certain() -> None:
    """We live, a child that ended is gone, another boot is gone, another machine is unknown."""
    me = this_process()
    assert not is_gone(me)
    code = "from proctor.gate.holder import this_process; print(this_process())"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert is_gone(child)
    host, booted, pid, started = me.split("|")
    assert is_gone("|".join((host, "another-boot/" + booted.partition("/")[2], pid, started)))
    assert is_gone("|".join((host, booted, pid, str(int(started) + 1))))
    assert not is_gone("|".join(("elsewhere", booted, pid, "1")))
    assert not is_gone("|".join((host, booted.partition("/")[0] + "/other-space", pid, "1")))
    assert not is_gone("nonsense")


def test_rules_and_settings_follow_their_files(tmp_path: Path) -> None:
    """Read once, and again when a file has changed, appeared or gone."""
    book, environ = RuleBook(), {"HOME": str(tmp_path)}
    place = tmp_path / "project"
    place.mkdir()
    (place / "proctor.toml").write_text("")
    shelf = SettingsShelf(load_settings(place, environ), environ)
    before = book.of(place)
    assert book.of(place) is before
    assert shelf.of(place) is shelf.of(place)
    assert shelf.of(place).limits.calls is None
    (place / "proctor.toml").write_text('[policy]\ndeny = ["ls"]\n[limits]\ncalls = 3\n')
    os.utime(place / "proctor.toml", ns=(1, 1))
    assert judge_command("ls", rules=book.of(place)).effect is Effect.DENY
    assert shelf.of(place).limits.calls == 3
    (place / "proctor.toml").unlink()
    assert judge_command("ls", rules=book.of(place)).effect is Effect.ALLOW
    assert judge_command("ls", rules=book.of(None)).effect is Effect.ALLOW
