"""The agents as the engine sees them: settings per workspace, offline ones refused with the cure."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proctor.config import Settings, load_settings
from proctor.engine import book as module
from proctor.engine.book import SettingsBook
from proctor.protocol.errors import NotFoundError, UnavailableError


@pytest.fixture
def workspaces(home: Path, tmp_path: Path) -> tuple[str, str]:
    """Two workspaces with agents of their own."""
    made = []
    for name, more in (("one", "max_parallel = 3\ncapabilities = ['review']"), ("two", "")):
        place = tmp_path / name
        place.mkdir()
        (place / ".git").mkdir()
        text = f'[agents.shared]\ndriver = "scripted"\n{more}\n[agents.{name}-only]\ndriver = "scripted"\n'
        (place / "proctor.toml").write_text(
            text + '[agents.away]\ndriver = "claude"\ncommand = ["/nowhere/claude"]\n'
        )
        made.append(str(place))
    return made[0], made[1]


@pytest.fixture
def book(home: Path) -> SettingsBook:
    """One for all workspaces."""
    return SettingsBook(lambda workspace: load_settings(workspace or Path("/")))


def test_agents_come_from_the_tasks_own_workspace(book: SettingsBook, workspaces: tuple[str, str]) -> None:
    """An agent of one repository is unknown in the other."""
    one, two = workspaces
    assert book.agent("one-only", one).driver.capabilities.simulated
    with pytest.raises(NotFoundError):
        book.agent("one-only", two)


def test_an_offline_agent_is_refused_with_the_cure(book: SettingsBook, workspaces: tuple[str, str]) -> None:
    """The sentence says what to do; the dispatcher does not give it work."""
    with pytest.raises(UnavailableError, match=r"away is not available: .+\. .+"):
        book.agent("away", workspaces[0])
    assert "away" not in book.capacity(workspaces).slots


def test_the_desk_takes_the_larger_number_of_slots(book: SettingsBook, workspaces: tuple[str, str]) -> None:
    """A name in two workspaces is one agent for the queue."""
    capacity = book.capacity([*workspaces, None])
    assert capacity.slots["shared"] == 3
    assert {"one-only", "two-only"} <= set(capacity.slots)


def test_broken_settings_of_one_workspace_do_not_stop_the_others(
    book: SettingsBook, workspaces: tuple[str, str]
) -> None:
    """One bad file, one workspace that waits."""
    Path(workspaces[0], "proctor.toml").write_text("not toml [")
    assert set(book.capacity(workspaces).slots) >= {"shared", "two-only"}


def test_edited_settings_count_without_a_restart(
    workspaces: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read again after a moment, and not at every look."""
    reads = 0

    def load(workspace: Path | None) -> Settings:
        nonlocal reads
        reads += 1
        return load_settings(workspace or Path("/"))

    book = SettingsBook(load)
    for _ in range(5):
        book.settings(workspaces[1])
    assert reads == 1
    Path(workspaces[1], "proctor.toml").write_text('[agents.fresh]\ndriver = "scripted"\n')
    monkeypatch.setattr(module, "SETTINGS_SECONDS", -1.0)
    monkeypatch.setattr(module, "HEALTH_SECONDS", -1.0)
    assert book.agent("fresh", workspaces[1]).name == "fresh"


def test_a_workspace_on_a_slow_disk_keeps_no_other_waiting(home: Path) -> None:
    """Reading one place's settings holds nothing that the others need."""
    begun, over = threading.Event(), threading.Event()

    def load(place: Path | None) -> Settings:
        if place is not None:
            begun.set()
            assert over.wait(30)
        return load_settings(Path("/"))

    book = SettingsBook(load)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(book.settings, "/slow")
        assert begun.wait(30)
        other = pool.submit(book.settings, None).result(20)
        over.set()
        assert slow.result(30) == other


def test_workspaces_that_nobody_asks_for_leave(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor may live for months and see many of them."""
    monkeypatch.setattr(module, "SETTINGS_SECONDS", 0.0)
    book = SettingsBook(lambda _: load_settings(Path("/")))
    for number in range(20):
        book.settings(f"/gone/{number}")
    assert len(book._settings) == 1
