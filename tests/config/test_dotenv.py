"""A .env is read as other tools read it, and never refused for what it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.config.dotenv import parse_dotenv


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=plain", "plain"),
        ("  export A = spaced # comment", "spaced"),
        ("A=a#b", "a#b"),
        ("A=#all comment", ""),
        ("A='$HOME \\n # x'", "$HOME \\n # x"),
        ('A="line\\nbreak \\"q\\" \\\\ \\$x" # c', 'line\nbreak "q" \\ $x'),
        ('A="two\nlines"', "two\nlines"),
        ("A=`back`", "back"),
        ('A="open', '"open'),
        ("A=1\r\n", "1"),
        ("\ufeffA=1", "1"),
        ("A=1\nA=2", "2"),
        ("not a line\nA=1\n= 2", "1"),
        ("A=x=y", "x=y"),
    ],
)
def test_every_usual_form_is_read(text: str, value: str) -> None:
    """Quotes, comments, export, escapes and several lines mean what they mean elsewhere."""
    assert parse_dotenv(text)["A"].value == value


def test_lines_are_counted_over_long_values() -> None:
    """A value of several lines does not shift the places of what follows."""
    found = parse_dotenv('# one\nA="x\ny\nz" # c\n\nB=1\n')
    assert (found["A"].line, found["B"].line) == (2, 6)


@given(st.text(max_size=80))
def test_no_text_is_refused(text: str) -> None:
    """Whatever stands in an application's .env, names are names and lines exist."""
    found = parse_dotenv(text)
    assert all(1 <= variable.line <= text.count("\n") + 1 for variable in found.values())


@given(
    st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=5)
)
def test_what_is_quoted_comes_back(variables: dict[str, str]) -> None:
    """Any value survives double quotes, with quotes, backslashes and line ends escaped."""
    wanted = {name: value for name, value in variables.items() if "\0" not in value and "\r" not in value}
    escaped = {n: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for n, v in wanted.items()}
    text = "".join(f'{name}="{value}"\n' for name, value in escaped.items())
    assert {name: variable.value for name, variable in parse_dotenv(text).items()} == wanted
