"""Which values of the environment are secrets: known values are redacted first, whatever they look like."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

__all__ = ["find_secrets", "hide", "hide_password", "is_secret_name"]

MIN_LENGTH = 8
NAME = re.compile(
    r"KEY(?!BOARD|MAP|RING|CODE|STROKE)|TOKEN(?!I[SZ])|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|"
    r"AUTH(?!OR(?!I[SZ]))|(?:^|_)(?:PASS|PAT|JWT|DSN)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
# These name a secret's place, size or kind, not the secret.
NOT_VALUES = re.compile(
    r"_(?:FILE|PATH|DIR|HOME|SOCK|SOCKET|URL|URI|ENDPOINT|HOST|NAME|TYPE|ALGORITHM|TTL|LIMIT|COUNT|SIZE|ENABLED)$",
    re.IGNORECASE,
)
FLAGS = frozenset({"disabled", "required", "optional", "undefined"})
CREDENTIALS = re.compile(r"(?P<start>[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@?#]*:)(?P<password>[^/\s?#]+)(?=@)")
QUERY_PASSWORD = re.compile(r"(?P<start>[?&](?:ssl)?password=)(?P<password>[^&#\s]+)", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name usually holds a secret."""
    return NAME.search(name) is not None and NOT_VALUES.search(name) is None


def find_secrets(variables: Iterable[tuple[str, str]], extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Collect the secret values, longest first, so that none is cut by a shorter one inside it."""
    found: set[str] = set()
    for name, value in variables:
        if is_secret_name(name) and not _is_plain(value):
            found.update(_forms(value.strip()))
        found.update(_passwords(value))
    found.update(part for value in extra for part in _forms(value))
    return tuple(
        sorted((each for each in found if len(each) >= MIN_LENGTH), key=lambda each: (-len(each), each))
    )


def _is_plain(value: str) -> bool:
    """A number, a flag or a path that exists is no secret, and hiding it would make the trace unreadable."""
    text = value.strip()
    return (
        text.lower() in FLAGS
        or text.isdecimal()
        or (text.startswith("/") and "\0" not in text and os.path.lexists(text))
    )


def _forms(value: str) -> list[str]:
    """A value of several lines (a private key) is printed line by line, so each long line counts too."""
    lines = [line.strip() for line in value.splitlines()]
    return [value, *(line for line in lines if len(line) >= 20 and not line.startswith("-----"))]


def _passwords(value: str) -> set[str]:
    found = {m["password"] for pattern in (CREDENTIALS, QUERY_PASSWORD) for m in pattern.finditer(value)}
    return found | {unquote(each) for each in found}


def hide_password(url: str) -> str:
    """Show a URL without its password."""
    return QUERY_PASSWORD.sub(r"\g<start>***", CREDENTIALS.sub(r"\g<start>***", url))


def hide(text: str, secrets: Iterable[str]) -> str:
    """Show a text without any known secret."""
    text = hide_password(text)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
