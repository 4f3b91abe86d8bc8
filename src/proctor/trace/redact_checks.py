"""What a pattern alone cannot decide: checksums, placeholders, where an address or a private key begins and ends.

Every function is linear in its input.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

__all__ = [
    "PEM_BEGIN",
    "email_spans",
    "iban_spans",
    "is_basic_credentials",
    "is_bearer",
    "is_card",
    "is_cookie",
    "is_password",
    "is_pem_body",
    "is_secret_value",
    "pem_end",
    "pem_open",
    "pem_spans",
]

Span = tuple[int, int]

_DASHES = r"-{4,5} ?"
_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
PEM_BEGIN = _DASHES + "BEGIN " + _LABEL
_BEGIN = re.compile(PEM_BEGIN)
_END = re.compile(_DASHES + "END " + _LABEL)
# Indented, quoted, numbered or diffed lines of a key are still lines of a key.
_BODY = re.compile(r"[\s>+|#\"'*:→.0-9-]{0,40}[A-Za-z0-9+/=]{0,200}[\s\"',\\+;nr)]{0,16}")
_HEADER = re.compile(r"[\s>+|#\"'*-]{0,40}[A-Za-z][A-Za-z-]{2,24}: [^\n]{0,200}")

_PLACEHOLDER = re.compile(
    r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?|\$\{[^}]*\}|\$\(.*|%[A-Za-z_]+%|\{\{?.*|<.*|[*.xX•]{3,}"
    r"|[A-Za-z_.]+[(\[].*|[A-Za-z_]+(?:\.[A-Za-z_]+)+",
    re.ASCII,
)
_WORD_LIST = """
accepted allowed basic bearer boolean changed default denied digest disabled enabled expired failed false hidden
incorrect integer invalid literal masked mismatch missing negotiate none null number option optional password redacted
rejected required secret string token true undefined unknown unset updated verified
"""
_WORDS = frozenset(_WORD_LIST.split())
_BRANDS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2[2-7]\d{14}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}",
    re.ASCII,
)
_EMAIL_HOST = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])")
_RETINA = re.compile(r"@[0-9]x\.(?:png|jpe?g|gif|webp|svg|avif)", re.IGNORECASE)
_LOCAL_PART = 64
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}")
_IBAN_LIST = """
AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18
FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20
LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24
SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30
"""
_IBAN_LENGTHS = {entry[:2]: int(entry[2:]) for entry in _IBAN_LIST.split()}


def is_secret_value(value: str) -> bool:
    """Not a placeholder, a variable, a call, a type or a word that tells about the secret instead of being it."""
    return value.lower() not in _WORDS and _PLACEHOLDER.fullmatch(value) is None


def is_password(value: str) -> bool:
    """A password in a URL or after a user name; digits alone are more likely a port or a group id."""
    return not value.isdigit() and is_secret_value(value)


def is_bearer(value: str) -> bool:
    """A token and not the next word of a sentence."""
    return len(value) >= 24 or any(char.isdigit() for char in value)


def is_basic_credentials(value: str) -> bool:
    """Base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False


def is_cookie(value: str) -> bool:
    """A cookie has a name and a value."""
    return "=" in value


def is_card(text: str) -> bool:
    """A number of a known brand and length that passes Luhn."""
    digits = text.replace(" ", "").replace("-", "")
    if _BRANDS.fullmatch(digits) is None:
        return False
    doubled = (int(char) * 2 for char in digits[-2::-2])
    return (sum(int(char) for char in digits[-1::-2]) + sum(n - 9 if n > 9 else n for n in doubled)) % 10 == 0


def iban_spans(line: str) -> Iterator[Span]:
    """Account numbers of the length of their country that pass mod 97."""
    for match in _IBAN.finditer(line):
        want = _IBAN_LENGTHS.get(match[0][:2], 0)
        end = match.start()
        taken: list[str] = []
        while len(taken) < want and end < match.end():
            if line[end] != " ":
                taken.append(line[end])
            end += 1
        whole = len(taken) == want > 0 and not line[end : end + 1].isalnum()
        if whole and int("".join(str(int(char, 36)) for char in taken[4:] + taken[:4])) % 97 == 1:
            yield match.start(), end


def email_spans(line: str) -> Iterator[Span]:
    """Mail addresses; `git@host` and `icon@2x.png` are none."""
    free = 0
    for match in _EMAIL_HOST.finditer(line):
        at = start = match.start()
        floor = max(free, at - _LOCAL_PART)
        while start > floor and (line[start - 1].isalnum() or line[start - 1] in "._%+-"):
            start -= 1
        free = match.end()
        if start < at and line[start:at] != "git" and _RETINA.match(line, at) is None:
            yield start, match.end()


def pem_spans(line: str) -> Iterator[Span]:
    """Private keys that begin and end on this line, as in JSON."""
    position = 0
    while (begin := _BEGIN.search(line, position)) and (end := _END.search(line, begin.end())):
        yield begin.start(), end.end()
        position = end.end()


def pem_open(line: str) -> int:
    """Where a private key begins that does not end on this line; -1 if none does."""
    if "PRIVATE KEY" not in line:
        return -1
    closed = max((end for _, end in pem_spans(line)), default=0)
    begin = _BEGIN.search(line, closed)
    return begin.start() if begin else -1


def pem_end(line: str) -> int:
    """Just behind the mark that ends a private key; -1 if the line has none."""
    end = _END.search(line)
    return end.end() if end else -1


def is_pem_body(line: str, number: int) -> bool:
    """Whether the line can belong to the key whose first line it follows by `number`."""
    return _BODY.fullmatch(line) is not None or (number <= 6 and _HEADER.fullmatch(line) is not None)
