"""On which line a TOML file says what: tomllib gives values without places, and a wrong value needs its line.

The scanner expects text that tomllib has accepted, so it looks only for keys, brackets and ends of values.
Its paths are exactly those of the parsed document: names for tables, numbers for elements of lists.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left

__all__ = ["KeyPath", "key_lines"]

KeyPath = tuple[str | int, ...]

BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
BARE = re.compile(r"[A-Za-z0-9_-]+")
SCALAR = re.compile(r"[^,\]}#\n]*")
BASIC = re.compile(r'"(?:[^"\\]++|\\.)*+"')
LITERAL = re.compile(r"'[^']*'")
# The closing quotes may follow on one or two quotes that belong to the text.
LONG_BASIC = re.compile(r'"""(?:[^"\\]++|\\.|"{1,2}(?!"))*+"{3,5}', re.DOTALL)
LONG_LITERAL = re.compile(r"'''(?:[^']++|'{1,2}(?!'))*+'{3,5}")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map every path of a valid TOML document to the line, from 1, where it first appears."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lines: dict[KeyPath, int] = {}
        self.arrays: dict[KeyPath, int] = {}
        self.newlines = [match.start() for match in re.finditer("\n", text)]

    def run(self) -> dict[KeyPath, int]:
        prefix: KeyPath = ()
        self.blank()
        while self.at < len(self.text):
            if self.text.startswith("[[", self.at):
                prefix = self.array_header()
            elif self.text[self.at] == "[":
                prefix = self.table_header()
            else:
                self.pair(prefix)
            self.blank()
        return self.lines

    def table_header(self) -> KeyPath:
        line = self.line()
        keys = self.keys(start=1)
        self.skip("]")
        path: KeyPath = ()
        for key in keys:
            path = self.enter((*path, key), line)
        return path

    def array_header(self) -> KeyPath:
        line = self.line()
        *parents, last = self.keys(start=2)
        self.skip("]]")
        path: KeyPath = ()
        for key in parents:
            path = self.enter((*path, key), line)
        path = (*path, last)
        self.lines.setdefault(path, line)
        self.arrays[path] = self.arrays.get(path, 0) + 1
        return self.enter(path, line)

    def enter(self, path: KeyPath, line: int) -> KeyPath:
        """Note a table; a header that names an array of tables means its newest element."""
        self.lines.setdefault(path, line)
        if path in self.arrays:
            path = (*path, self.arrays[path] - 1)
            self.lines.setdefault(path, line)
        return path

    def pair(self, prefix: KeyPath) -> None:
        line, path = self.line(), prefix
        for key in self.keys(start=0):
            path = (*path, key)
            self.lines.setdefault(path, line)
        self.skip("=")
        self.value(path)

    def value(self, path: KeyPath) -> None:
        self.blank()
        opening = self.text[self.at]
        if opening == "[":
            self.array(path)
        elif opening == "{":
            self.inline_table(path)
        elif opening in "\"'":
            self.string()
        else:
            self.take(SCALAR)

    def array(self, path: KeyPath) -> None:
        self.at += 1
        index = 0
        while not self.closes("]"):
            self.lines.setdefault((*path, index), self.line())
            self.value((*path, index))
            index += 1

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        while not self.closes("}"):
            self.pair(path)

    def closes(self, bracket: str) -> bool:
        """Step over blanks and commas to the next element, or over the closing bracket."""
        self.blank()
        if self.text[self.at] == ",":
            self.at += 1
            self.blank()
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        return True

    def string(self) -> str:
        quote = self.text[self.at]
        long = self.text.startswith(quote * 3, self.at)
        if quote == '"':
            return self.take(LONG_BASIC if long else BASIC)
        return self.take(LONG_LITERAL if long else LITERAL)

    def keys(self, start: int) -> list[str]:
        """Read a dotted key, its quoted parts decoded as tomllib does."""
        self.at += start
        found = [self.key()]
        self.blank()
        while self.text[self.at] == ".":
            self.at += 1
            found.append(self.key())
            self.blank()
        return found

    def key(self) -> str:
        self.blank()
        if self.text[self.at] not in "\"'":
            return self.take(BARE)
        quoted = self.take(BASIC if self.text[self.at] == '"' else LITERAL)
        decoded: str = tomllib.loads(f"key = {quoted}")["key"]
        return decoded

    def blank(self) -> None:
        self.take(BLANK)

    def skip(self, expected: str) -> None:
        self.blank()
        self.at += len(expected)

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None, f"not valid TOML at character {self.at}"
        self.at = match.end()
        return match.group()

    def line(self) -> int:
        return bisect_left(self.newlines, self.at) + 1
