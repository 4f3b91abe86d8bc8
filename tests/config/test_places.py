"""Where the state lies and which database holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.config import Paths, load_settings
from proctor.protocol.errors import ConfigError


def test_directories_follow_the_xdg_variables(tmp_path: Path) -> None:
    """Each directory can be moved; a relative value is ignored as XDG demands."""
    paths = Paths.from_environ(
        {"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_DATA_HOME": "relative", "XDG_RUNTIME_DIR": "/run/user/1"}
    )
    assert paths.proctor_db == Path("/s/proctor/proctor.db")
    assert paths.engine_db == Path("/s/proctor/engine.db")
    assert paths.backups_dir == Path("/h/.local/share/proctor/backups")
    assert paths.blobs_dir == Path("/h/.local/share/proctor/blobs")
    assert paths.worktrees_dir == Path("/h/.local/share/proctor/wt")
    assert paths.cache_dir == Path("/h/.cache/proctor")
    assert paths.socket == Path("/run/user/1/proctor/proctor.sock")
    assert {paths.token_file.parent, paths.key_file.parent, paths.log_file.parent} == {Path("/s/proctor")}


def test_a_runtime_directory_too_long_for_a_socket_is_not_used() -> None:
    """A unix socket's address is short; the state directory takes its place."""
    paths = Paths.from_environ({"HOME": "/h", "XDG_RUNTIME_DIR": "/" + "x" * 100})
    assert paths.runtime_dir == paths.state_dir


def test_without_home_the_user_database_answers() -> None:
    """A daemon without HOME still finds one."""
    assert Paths.from_environ({}).state_dir.is_absolute()


def urls(tmp_path: Path, environ: dict[str, str], dotenv: str = "") -> tuple[str, str, str]:
    """Both URLs and their source."""
    (tmp_path / "proctor.toml").write_text("")
    (tmp_path / ".env").write_text(dotenv)
    settings = load_settings(tmp_path, {"HOME": "/h", **environ})
    return settings.database_url, settings.engine_database_url, settings.sources["database_url"]


SEED = {"DB_HOST": "db", "DB_USER": "me", "DB_PASSWORD": "p@ss:w/rd", "DB_NAME": "ares_db"}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("postgres://u@h/n", "postgresql://u@h/n"),
        ("postgresql+psycopg://u:p@h:5433/n?sslmode=require", "postgresql://u:p@h:5433/n?sslmode=require"),
        ("postgresql:///n?host=/run/postgresql", "postgresql:///n?host=/run/postgresql"),
    ],
)
def test_a_postgresql_url_moves_both_databases(tmp_path: Path, given: str, taken: str) -> None:
    """Every usual spelling is taken and means one database for both."""
    source = "environment PROCTOR_DATABASE_URL"
    assert urls(tmp_path, {"PROCTOR_DATABASE_URL": given}) == (taken, taken, source)


def test_an_sqlite_url_takes_the_engine_beside_it(tmp_path: Path) -> None:
    """A chosen file brings its engine's file into the same directory."""
    found = urls(tmp_path, {"PROCTOR_DATABASE_URL": "sqlite:////x/my.db"})
    assert found[:2] == ("sqlite:////x/my.db", "sqlite:////x/engine.db")


def test_the_seeds_variables_make_a_url(tmp_path: Path) -> None:
    """Parts are escaped, the port has the usual default, and a missing password stays missing."""
    assert urls(tmp_path, SEED)[0] == "postgresql://me:p%40ss%3Aw%2Frd@db:5432/ares_db"
    bare = {**SEED, "DB_PASSWORD": "", "DB_HOST": "::1", "DB_PORT": "6000"}
    assert urls(tmp_path, bare) == (*["postgresql://me@[::1]:6000/ares_db"] * 2, "environment DB_HOST")


def test_an_applications_dotenv_does_not_move_the_database(tmp_path: Path) -> None:
    """DB_HOST in a .env is the application's; only Proctor's own name moves Proctor, and not over the environment."""
    theirs = "".join(f"{name}={value}\n" for name, value in SEED.items())
    assert urls(tmp_path, {}, theirs)[2] == "default"
    ours = "PROCTOR_DATABASE_URL=postgresql://u@h/n\n"
    assert urls(tmp_path, {}, theirs + ours)[0] == "postgresql://u@h/n"
    assert urls(tmp_path, SEED, ours)[2] == "environment DB_HOST"


@pytest.mark.parametrize(
    "environ",
    [
        *(
            {"PROCTOR_DATABASE_URL": url}
            for url in ("mysql://h/n", "h/n", "postgresql://h:x/n", "postgresql://h")
        ),
        *(
            {"PROCTOR_DATABASE_URL": f"sqlite://{rest}"}
            for rest in ("", "/:memory:", "/relative.db", "//x/engine.db")
        ),
        {"DB_HOST": "db"},
        {**SEED, "DB_PORT": "99999"},
        {**SEED, "DB_HOST": "db/../x"},
    ],
)
def test_a_database_that_cannot_be_meant_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    """Half a set of variables, an unknown kind or a relative file is an error, never a guess."""
    with pytest.raises(ConfigError):
        urls(tmp_path, environ)


def test_a_home_with_odd_characters_names_one_file_for_everybody(tmp_path: Path) -> None:
    """A state path with `%`, `?`, `#` or spaces comes back from the URL unchanged."""
    import sqlalchemy as sa

    home = tmp_path / "a%41 b#c?d"
    settings = load_settings(tmp_path, {"HOME": str(home)})
    assert sa.make_url(settings.database_url).database == str(settings.paths.proctor_db)
    assert sa.make_url(settings.engine_database_url).database == str(settings.paths.engine_db)
