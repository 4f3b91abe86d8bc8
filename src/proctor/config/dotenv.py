"""The `.env` of a workspace: `NAME=value` lines as other tools read them, without expansion or execution.

The file usually belongs to the user's own application, so lines we cannot read are passed over.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from proctor.config.files import read_regular

__all__ = ["Variable", "parse_dotenv", "read_dotenv"]

LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*
    (?: "(?P<double>(?:[^"\\]++|\\.)*+)" | '(?P<single>[^']*)' | `(?P<back>[^`]*)` | (?P<bare>[^\n]*) )""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


class Variable(NamedTuple):
    """A value and the line its name stands on."""

    value: str
    line: int


def read_dotenv(path: Path) -> dict[str, Variable]:
    """Read a `.env`; what is no regular file (a virtual environment, a password manager's pipe) is none."""
    if not path.is_file():
        return {}
    content = read_regular(path, str(path))
    return parse_dotenv(content.decode("utf-8", errors="replace")) if content is not None else {}


def parse_dotenv(text: str) -> dict[str, Variable]:
    """Find the variables; as in a shell, the last one of a name wins."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    found: dict[str, Variable] = {}
    at, line = 0, 1
    while at < len(text):
        match = LINE.match(text, at)
        if match is not None:
            found[match["name"]] = Variable(_value(match), line)
        end = text.find("\n", match.end() if match else at)
        end = len(text) if end < 0 else end + 1
        line += text.count("\n", at, end)
        at = end
    return {name: variable for name, variable in found.items() if "\0" not in variable.value}


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[0]), match["double"], flags=re.DOTALL)
    for quoted in ("single", "back"):
        if match[quoted] is not None:
            return match[quoted]
    return re.split(r"(?:^|[ \t])#", match["bare"], maxsplit=1)[0].strip()
