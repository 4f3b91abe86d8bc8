"""One shell word: what it means after quoting, or None where only the run decides.

Invariant: a `Word` with text is exactly what bash would pass on (globs and `~` unexpanded); every doubt about where a
word ends or how it is decoded is noted as a finding, so that it is never allowed without a question.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tree_sitter import Node

from proctor.gate.policy.names import is_secret

__all__ = ["UNKNOWN", "Variables", "Word", "WordReader", "is_tame"]

_PLAIN: Final = re.compile(
    r"[^\s;&|<>()`$\"'\\#{}][^\s;&|<>()`$\"'\\{}]*|\{\}|[{}]|[^\s;&|<>()`$\"'\\{}]*\{\}[^\s;&|<>()`$\"'\\{}]*"
)
_SEPARATORS: Final = re.compile(r"[\s;&|<>()]")
# The escapes that find needs; each is one whole word that means just that character.
_ESCAPED: Final = {"\\;": ";", "\\(": "(", "\\)": ")", "\\!": "!"}
_QUOTED_PART: Final = re.compile(r"(?:[^\"$`\\]|\\[\s\S]|\$(?![A-Za-z_0-9({@*#?$!\-]))*")
_UNESCAPE: Final = re.compile(r"\\([$`\"\\\n])")
_PARAMETER: Final = re.compile(
    r"\$\{(?P<size>#?)(?P<name>[A-Za-z_]\w*|[0-9@*#?])(?P<index>\[(?:[@*]|[0-9]+)\])?"
    r"(?P<change>(?::?[-+?]|##?|%%?|/[/#%]?|\^\^?|,,?)[^$`\\(){}<>'\"]*)?\}"
)
_ARITHMETIC: Final = re.compile(r"\$\(\([0-9\s+*/%()<>=!&|^~?:,-]*\)\)")
_NAME: Final = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])")
_TAME: Final = re.compile(r"(?!-)(?!/)(?!~)[\w.@%+=:,/*?\[\]-]+")


class Word(NamedTuple):
    """One word of a command."""

    text: str | None
    #: Unknown, but one relative name inside the directory that cannot be an option (a loop over given names).
    harmless: bool = False
    quoted: bool = False


UNKNOWN: Final = Word(None)


def is_tame(text: str) -> bool:
    """Whether a value can stand for a file argument without leaving the directory or becoming an option."""
    return (
        _TAME.fullmatch(text) is not None
        and ".." not in text.split("/")
        and not text.startswith(".")
        and not is_secret(text)
    )


class Variables:
    """What the line itself tells about variables: tame while all values given to a name are tame."""

    def __init__(self) -> None:
        self._tame: dict[str, bool] = {}
        self._used: set[str] = set()

    def assign(self, name: str, value: str | None) -> None:
        """Note one value; None for one known only at run time."""
        self._tame[name] = self._tame.get(name, True) and value is not None and is_tame(value)

    def spoil(self) -> None:
        """Something may have given any variable any value."""
        for name in self._tame:
            self._tame[name] = False

    def use(self, name: str) -> Word:
        """Give the word a plain use of the variable stands for."""
        if name == "HOME" and name not in self._tame:
            return Word("~")
        if name == "PWD" and name not in self._tame:
            return Word(".")
        if self._tame.get(name):
            self._used.add(name)
            return Word(None, harmless=True)
        return UNKNOWN

    def unsteady(self) -> list[str]:
        """Name the variables that were used as tame and became something else later (loops go back)."""
        return sorted(name for name in self._used if not self._tame[name])


class WordReader:
    """Turns word nodes into words; nested commands go to `nested`, doubts to `note`."""

    def __init__(
        self,
        source: bytes,
        variables: Variables,
        note: Callable[[str, str], None],
        nested: Callable[[Node], None],
    ) -> None:
        self._source = source
        self._variables = variables
        self._note = note
        self._nested = nested

    def raw(self, node: Node) -> str:
        """Give the text of a node as it stands."""
        return self._source[node.start_byte : node.end_byte].decode(errors="replace")

    def read(self, node: Node) -> Word:
        """Read one word node of any kind."""
        reader = _READERS.get(node.type)
        if reader is None:
            self._note("shell.construct", node.type)
            self._nested(node)
            return UNKNOWN
        return reader(self, node)

    def plain(self, node: Node) -> Word:
        """Read an unquoted word."""
        raw = self.raw(node)
        if _PLAIN.fullmatch(raw):
            return Word(raw)
        if raw in _ESCAPED:
            return Word(_ESCAPED[raw], quoted=True)
        if "\\" in raw:
            self._note("shell.backslash", raw)
            return Word(_strip_backslashes(raw))
        if _SEPARATORS.search(raw):
            self._note("shell.separator", raw)
            return UNKNOWN
        if raw.startswith("#"):
            self._note("shell.words", raw)
        return UNKNOWN

    def single(self, node: Node) -> Word:
        """Read a single-quoted string: nothing in it is special."""
        raw = self.raw(node)
        if len(raw) < 2 or raw[0] != "'" or raw[-1] != "'" or "'" in raw[1:-1]:
            self._note("shell.words", raw)
            return UNKNOWN
        return Word(raw[1:-1], quoted=True)

    def double(self, node: Node) -> Word:
        """Read a double-quoted string with its expansions."""
        words: list[Word] = []
        place = node.start_byte + 1
        for child in node.children:
            if child.is_named and child.type != "string_content":
                words.extend((self._quoted(place, child.start_byte), self.read(child)))
                place = child.end_byte
        words.append(self._quoted(place, node.end_byte - 1))
        source = self._source
        if (
            source[node.start_byte : node.start_byte + 1] != b'"'
            or source[node.end_byte - 1 : node.end_byte] != b'"'
        ):
            self._note("shell.words", self.raw(node))
        return _join(words)

    def _quoted(self, start: int, end: int) -> Word:
        raw = self._source[start:end].decode(errors="replace")
        if not _QUOTED_PART.fullmatch(raw):
            self._note("shell.words", raw)
        return Word(
            _UNESCAPE.sub(lambda found: "" if found[1] == "\n" else found[1], raw) if "\\" in raw else raw
        )

    def joined(self, node: Node) -> Word:
        """Read pieces that stand side by side as one word."""
        words: list[Word] = []
        place = node.start_byte
        for child in node.children:
            if child.start_byte != place:
                self._note("shell.words", self.raw(node))
            place = child.end_byte
            words.append(self.read(child) if child.is_named else UNKNOWN)
        if b"{" in self._source[node.start_byte : node.end_byte] and self._braces(node):
            return UNKNOWN
        return _join(words)

    def _braces(self, node: Node) -> bool:
        # An unquoted brace may become several words; `{}` alone is only text.
        bare = "".join(
            self.raw(child) for child in node.children if child.type in {"word", "brace_expression"}
        )
        return "{" in bare and ("," in bare or ".." in bare)

    def variable(self, node: Node) -> Word:
        """Read `$name`."""
        found = _NAME.fullmatch(self.raw(node))
        if not found:
            self._note("shell.expansion", self.raw(node))
            return UNKNOWN
        return self._variables.use(found[1])

    def parameter(self, node: Node) -> Word:
        """Read `${…}`; only forms that cannot evaluate anything pass without a note."""
        raw = self.raw(node)
        found = _PARAMETER.fullmatch(raw)
        if not found:
            self._note("shell.expansion", raw)
            self._nested(node)
            return UNKNOWN
        if found["change"] or found["index"] or found["size"]:
            return UNKNOWN
        return self._variables.use(found["name"])

    def substitution(self, node: Node) -> Word:
        """Read `$(…)`: its commands are judged, its output is unknown."""
        raw = self.raw(node)
        if raw.startswith("`") and "\\" in raw:
            self._note("shell.backslash", raw)
        self._nested(node)
        return UNKNOWN

    def process(self, node: Node) -> Word:
        """Read `<(…)`: a path under /dev/fd, never an option."""
        self._nested(node)
        return Word(None, harmless=True)

    def arithmetic(self, node: Node) -> Word:
        """Read `$((…))`: with names in it, their values are evaluated and may run commands."""
        if not _ARITHMETIC.fullmatch(self.raw(node)):
            self._note("shell.subscript", self.raw(node))
            self._nested(node)
        return UNKNOWN

    def braced(self, node: Node) -> Word:
        """Read `{1..9}`: several words."""
        return UNKNOWN

    def decoded(self, node: Node) -> Word:
        """Read `$'…'`: escapes decide at run time what it says."""
        self._note("shell.quoting", self.raw(node))
        return UNKNOWN


def _strip_backslashes(raw: str) -> str | None:
    """Guess what an escaped word means, so that a hidden `\\rm` is still shown as rm; never used to allow."""
    text = re.sub(r"\\(.)", r"\1", raw.replace("\\\n", "")).strip()
    return None if _SEPARATORS.search(text) else text


def _join(words: list[Word]) -> Word:
    """Put pieces together; a run-time piece between tame ones keeps the word harmless."""
    text = "".join(word.text or "" for word in words)
    if all(word.text is not None for word in words):
        return Word(text, quoted=True)
    harmless = all(word.text is not None or word.harmless for word in words)
    tame = (
        harmless and (not text or _TAME.fullmatch(text.lstrip("/") or "x") is not None) and ".." not in text
    )
    return Word(
        None, harmless=tame and not (words[0].text or "").startswith(("/", "~", "-", ".")), quoted=True
    )


_READERS: Final[dict[str, Callable[[WordReader, Node], Word]]] = {
    "word": WordReader.plain,
    "number": WordReader.plain,
    "raw_string": WordReader.single,
    "string": WordReader.double,
    "concatenation": WordReader.joined,
    "simple_expansion": WordReader.variable,
    "expansion": WordReader.parameter,
    "command_substitution": WordReader.substitution,
    "process_substitution": WordReader.process,
    "arithmetic_expansion": WordReader.arithmetic,
    "brace_expression": WordReader.braced,
    "ansi_c_string": WordReader.decoded,
    "translated_string": WordReader.decoded,
}
