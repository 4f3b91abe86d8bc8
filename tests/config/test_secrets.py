"""Known secret values are found for the redactor; ordinary values are not, or the trace would be unreadable."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.config import hide_password, is_secret_name, load_settings
from proctor.config.secrets import find_secrets


@pytest.mark.parametrize(
    "name",
    [
        *(
            "OPENAI_API_KEY",
            "GITHUB_TOKEN",
            "DB_PASSWORD",
            "CLIENT_SECRET",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
        ),
        *(
            "AWS_ACCESS_KEY_ID",
            "npm_config__auth",
            "HTTP_AUTHORIZATION",
            "SENTRY_DSN",
            "GITHUB_PAT",
            "SESSION_COOKIE",
        ),
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    """Variables named like secrets are taken for secrets."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "PWD",
            "OLDPWD",
            "PATH",
            "HOME",
            "GIT_AUTHOR_NAME",
            "XAUTHORITY",
            "SSH_AUTH_SOCK",
            "KEYBOARD_LAYOUT",
        ),
        *("TOKENIZERS_PARALLELISM", "SSH_KEY_PATH", "PASSWORD_FILE", "TOKEN_URL", "COMPASS", "PATTERN"),
    ],
)
def test_names_of_ordinary_variables_are_left_alone(name: str) -> None:
    """The current directory, an author's name or a key's path must stay readable."""
    assert not is_secret_name(name)


def test_values_are_taken_where_they_are_secret(tmp_path: Path) -> None:
    """Short values, numbers, flags and existing paths are no secrets; passwords in URLs and lines of keys are."""
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----"
    found = find_secrets(
        [
            *(
                ("A_KEY", "short"),
                ("B_TOKEN", "1234567890"),
                ("C_AUTH", "disabled"),
                ("D_KEY", str(tmp_path)),
            ),
            *(("E_TOKEN", "longenough"), ("URL", "amqp://u:p%40ssword1@h"), ("PLAIN", "nothing to hide")),
            ("SIGNING_KEY", pem),
        ]
    )
    assert set(found) == {"longenough", "p%40ssword1", "p@ssword1", pem, "MIIEvQIBADANBgkqhkiG9w0BAQ"}
    assert list(found) == sorted(found, key=len, reverse=True)


def test_secrets_come_from_environment_dotenv_and_files(tmp_path: Path) -> None:
    """All sources count, a .env value also where the environment overrides it."""
    (tmp_path / ".env").write_text("X_TOKEN=from-dotenv\n")
    (tmp_path / "proctor.toml").write_text('[agents.a.env]\nY_SECRET = "from-the-file"\n')
    environ = {
        "HOME": str(tmp_path),
        "X_TOKEN": "from-environment",
        "DB_HOST": "h",
        "DB_USER": "u",
        "DB_NAME": "n",
    }
    environ["DB_PASSWORD"] = "päss/word"
    settings = load_settings(tmp_path, environ)
    assert set(settings.secrets) == {"from-dotenv", "from-environment", "from-the-file", "päss/word"}
    assert not any(secret in repr(settings) for secret in settings.secrets)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/n", "postgresql://u:***@h/n"),
        ("postgresql://u:a@b:c@h/n", "postgresql://u:***@h/n"),
        ("postgresql://u@h/n?password=secret&x=1", "postgresql://u@h/n?password=***&x=1"),
        ("postgresql://:secret@h/n", "postgresql://:***@h/n"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_passwords_in_urls_are_hidden(url: str, shown: str) -> None:
    """A URL is shown without its password, wherever it stands in it."""
    assert hide_password(url) == shown
