"""The scanner finds the line of every key of every TOML document."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proctor.config.lines import KeyPath, key_lines

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20),
    st.sampled_from(
        ['"', "''", '"""', "'''", "# no comment", "[table]", "a = 1\nb = 2", "\\", '\n""\n"', "]", "}"]
    ),
)
KEYS = st.one_of(
    st.sampled_from(["a", "b", "c-d", "e_f", "1"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=6),
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(KEYS, below, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4)


class _Writer:
    """Writes a document in randomly chosen spellings and remembers where it put each path."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.text, self.lines = draw, "", dict[KeyPath, int]()

    def note(self, path: KeyPath) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], self.text.count("\n") + 1)

    def pick(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def filler(self) -> None:
        self.text += self.pick("", "", "\n", "# comment = 1 [x]\n", "  \t\n", "\r\n")

    def key(self, key: str) -> None:
        spellings = [_basic(key)]
        if re.fullmatch(r"[A-Za-z0-9_-]+", key):
            spellings += [key, key]
        if "'" not in key and key.isprintable():
            spellings.append(f"'{key}'")
        self.text += self.pick(*spellings) + self.pick("", " ")

    def dotted(self, path: tuple[str, ...]) -> None:
        for index, key in enumerate(path):
            self.text += self.pick(".", " . ") if index else ""
            self.key(key)

    def table(self, path: KeyPath, names: tuple[str, ...], values: dict[str, Any]) -> None:
        """Pairs first, then the tables that get headers of their own."""
        later: list[tuple[str, Any, bool]] = []
        for key, value in values.items():
            if isinstance(value, dict) and self.pick(True, False):
                later.append((key, value, False))
            elif (
                isinstance(value, list)
                and value
                and all(isinstance(v, dict) for v in value)
                and self.pick(True, False)
            ):
                later.append((key, value, True))
            else:
                self.filler()
                self.pair(path, key, value)
                self.text += self.pick("\n", " # end\n", "\r\n")
        for key, value, array in later:
            for index, each in enumerate(value if array else [value]):
                below = (*path, key, index) if array else (*path, key)
                self.header(below, (*names, key), array)
                self.table(below, (*names, key), each)

    def header(self, path: KeyPath, names: tuple[str, ...], array: bool) -> None:
        self.filler()
        self.text += self.pick("", "  ")
        self.note(path)
        self.text += "[[" if array else "["
        self.dotted(names)
        self.text += "]]\n" if array else "] # header\n"

    def pair(self, path: KeyPath, key: str, value: Any) -> None:
        keys: tuple[str, ...] = (key,)
        inner = value
        while isinstance(inner, dict) and len(inner) == 1 and self.pick(True, False):
            ((below, inner),) = inner.items()
            keys = (*keys, below)
        self.note((*path, *keys))
        self.dotted(keys)
        self.text += "= "
        self.value((*path, *keys), inner)

    def value(self, path: KeyPath, value: Any) -> None:
        if isinstance(value, dict):
            self.text += "{ "
            for index, (key, below) in enumerate(value.items()):
                self.text += ", " if index else ""
                self.pair(path, key, below)
            self.text += " }"
        elif isinstance(value, list):
            self.array(path, value)
        else:
            self.text += self.string(value) if isinstance(value, str) else _plain(value)

    def array(self, path: KeyPath, values: list[Any]) -> None:
        self.text += "["
        for index, value in enumerate(values):
            self.filler()
            self.note((*path, index))
            self.value((*path, index), value)
            self.text += self.pick(",", ", # one\n") if index < len(values) - 1 else self.pick("", ",", "\n")
        self.text += "]"

    def string(self, value: str) -> str:
        spellings = [_basic(value), '"""\n' + _basic(value)[1:-1].replace("\\n", "\n") + '"""']
        if "'" not in value and value.isprintable():
            spellings.append(f"'{value}'")
        if not re.search(r"'''|[\x00-\x08\x0b-\x1f\x7f]", value):
            spellings.append(f"'''\n{value}'''" if not value.endswith("'") else _basic(value))
        return str(self.pick(*spellings))


def _basic(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def paths(value: Any, at: KeyPath = ()) -> set[KeyPath]:
    """All paths of a parsed document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {at} - {()} | {path for key, below in items for path in paths(below, (*at, key))}


@given(DOCUMENTS, st.data())
def test_every_path_has_the_line_it_was_written_on(document: dict[str, Any], data: st.DataObject) -> None:
    """In whatever spelling a document is written, the scanner finds exactly its paths and their lines."""
    writer = _Writer(data.draw)
    writer.table((), (), document)
    assert tomllib.loads(writer.text) == document
    assert key_lines(writer.text.replace("\r\n", "\n")) == writer.lines


@given(
    st.lists(
        st.sampled_from([*"ab.=[]{}\"'\n #,1\\", "a = 1\n", "[a]\n", "[[a]]\n", '"""', "= "]), max_size=25
    ).map("".join)
)
@example("[[a]]\n[a.b]\nc=1\n[[a]]\n[a.b]\nc=1")
@example('a = """""x"""""\nb = 1')
@example("a = '''''x'''''\nb = 1")
@example('a = """\\"""""\nb = 1')
def test_whatever_tomllib_accepts_is_scanned_completely(text: str) -> None:
    """No text that is valid TOML makes the scanner fail, miss a path or invent one."""
    try:
        expected = paths(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return
    assert set(key_lines(text)) == expected


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("day = 1979-05-27 07:32:00Z # x\nb = 1", ("b",), 2),
        ("a = [\n  1, # ] \n  [2,\n 3],\n]\nb = 1", ("a", 1, 1), 4),
        ("a = { b = 1, c = { d = 2 } }", ("a", "c", "d"), 1),
        ("[[a]]\nx = 1\n[[a]]\nx = 2", ("a", 1, "x"), 4),
        ("[[a]]\n[[a.b]]\n[[a.b]]\nx = 1", ("a", 0, "b", 1, "x"), 4),
        ('"a.b" = 1\na.b = 2', ("a", "b"), 2),
        ('s = """\n[no]\nx = 1\n"""\n[yes]', ("yes",), 5),
        ("x = 1", ("x",), 1),
    ],
)
def test_lines_of_every_form(text: str, path: KeyPath, line: int) -> None:
    """Dates, nested lists, inline tables, arrays of tables and long strings keep their lines."""
    assert key_lines(text)[path] == line
