"""`proctor db` on the embedded default and on PostgreSQL, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.main import main
from proctor.store.database import Database, sqlite_url
from proctor.store.schema import head_version, schema_version
from tests.support.rows import add_task


def _json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_embedded_default_upgrades_checks_and_backs_up(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any setting the database lies in the state directory and the copy in the backups."""
    place = home / "state" / "proctor" / "proctor.db"
    assert _json(capsys, "db", "path") == {"dialect": "sqlite", "place": str(place)}
    assert not place.exists()
    assert _json(capsys, "db", "upgrade") == {"before": None, "after": head_version(), "changed": True}
    assert _json(capsys, "db", "upgrade")["changed"] is False
    assert _json(capsys, "db", "check") == {"ok": True, "place": str(place), "findings": []}
    copy = Path(str(_json(capsys, "db", "backup")["path"]))
    assert copy.parent == home / "data" / "proctor" / "backups" / "db"
    database = Database(sqlite_url(copy))
    assert schema_version(database) == head_version()
    database.close()


@pytest.mark.postgres
def test_postgresql_is_upgraded_on_demand(
    home: Path, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROCTOR_DATABASE_URL leads to the server; check names the missing upgrade, and upgrade mends it."""
    monkeypatch.setenv("PROCTOR_DATABASE_URL", empty_postgres_url)
    assert _json(capsys, "db", "path")["dialect"] == "postgresql"
    [finding] = _json(capsys, "db", "check", code=7)["findings"]
    assert finding["cure"] == "Run `proctor db upgrade`."
    assert main(["db", "upgrade"]) == 0
    assert capsys.readouterr().out == f"Upgraded the schema from nothing to {head_version()}.\n"
    assert _json(capsys, "db", "check")["ok"] is True


def test_password_of_the_server_is_never_printed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the place nor an error shows the password, and a server that is not there is exit code 6."""
    monkeypatch.setenv("PROCTOR_DATABASE_URL", "postgresql://me:topsecret@/name?host=/nonexistent")
    assert main(["db", "path"]) == 0
    assert main(["db", "check"]) == 6
    out, error = capsys.readouterr()
    assert "topsecret" not in out + error
    assert out.startswith("postgresql://me:***@/name")
    assert error.count("\n") == 1
    assert "Check PROCTOR_DATABASE_URL" in error


def test_findings_are_printed_with_their_cure(
    home: Path, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something wrong is exit code 7, one line each."""
    monkeypatch.setenv("PROCTOR_DATABASE_URL", sqlite_url(sqlite_path))
    sqlite_path.chmod(0o644)
    assert main(["db", "check"]) == 7
    assert capsys.readouterr().out == (
        f"permissions: others on this machine can open it. Run `chmod 600 {sqlite_path}`.\n"
    )


def test_backup_to_a_chosen_file(
    home: Path,
    sqlite_database: Database,
    sqlite_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The copy is where the user wanted it; a second time it is refused with exit code 5."""
    monkeypatch.setenv("PROCTOR_DATABASE_URL", sqlite_url(sqlite_path))
    add_task(sqlite_database)
    target = tmp_path / "copy.db"
    assert main(["db", "backup", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert main(["db", "backup", str(target)]) == 5
    assert "already there" in capsys.readouterr().err


def test_newer_database_is_refused_by_upgrade(
    home: Path,
    sqlite_database: Database,
    sqlite_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 6 and the advice to upgrade Proctor."""
    with sqlite_database.write() as connection:
        connection.exec_driver_sql("UPDATE proctor_schema SET version_num = '2999_01_01'")
    monkeypatch.setenv("PROCTOR_DATABASE_URL", sqlite_url(sqlite_path))
    assert main(["db", "upgrade"]) == 6
    assert "Upgrade Proctor." in capsys.readouterr().err
