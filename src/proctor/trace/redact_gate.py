"""The gate in front of the rules: which of them could match at all. Clean text, the usual case, ends here.

A gate may name a rule that then finds nothing; it never leaves out one that would. Both gates look at ASCII with
one `?` for every other character, so lengths and offsets stay those of the text and bad surrogates do no harm.

KeywordGate   pure Python: substring tests, on long words, on squashed names and on digit shapes
FastGate      one pass of hyperscan over the rules' own patterns (the extra `fast`)
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from proctor.trace.redact_rules import KEY_NAMES, PII_RULES, SECRET_KEY, SECRET_RULES, Rule

__all__ = ["KEY_BIT", "KNOWN_BIT", "RULES", "WARM_UP", "FastGate", "Gate", "KeywordGate", "open_gate"]

RULES: tuple[Rule, ...] = (*SECRET_RULES, *PII_RULES)
KEY_BIT = 1 << len(RULES)
KNOWN_BIT = KEY_BIT << 1
_ALL = (KNOWN_BIT << 1) - 1
_SECRETS = (1 << len(SECRET_RULES)) - 1
_LONG_WORD = 16  # no rule with `words` matches less than this many word characters in a row

WARM_UP = 256  # texts that the keyword gate takes before hyperscan is worth its compile time

Scanner = Callable[[bytes, list[int]], None]
Table = tuple[tuple[str, int], ...]


class Gate(Protocol):
    """Answers with one bit for each rule that may match, KEY_BIT for names of secrets, KNOWN_BIT for known values."""

    @property
    def fast(self) -> bool:
        """Whether the optional matcher is in use."""

    def mask(self, text: str) -> int:
        """The bits of what may be in the text; 0 means that it is clean."""


def _table(pick: Callable[[Rule], Sequence[str]]) -> Table:
    masks: dict[str, int] = {}
    for number, rule in enumerate(RULES):
        for keyword in pick(rule):
            masks[keyword] = masks.get(keyword, 0) | 1 << number
    return tuple(masks.items())


def _name_table() -> Table:
    masks = dict(_table(lambda rule: rule.names))
    for keyword in KEY_NAMES:
        masks[keyword] = masks.get(keyword, 0) | KEY_BIT
    return tuple(masks.items())


def _map(choose: Callable[[str], str]) -> bytes:
    return "".join(choose(chr(code)) if code < 128 else " " for code in range(256)).encode("ascii")


def _shape(char: str) -> str:
    if char.isdigit():
        return "0"
    return "A" if char.isupper() else "-" if char in " -" else "."


_WORD_TABLE, _RAW_TABLE = _table(lambda rule: rule.words), _table(lambda rule: rule.raw)
_SHAPE_TABLE = _table(lambda rule: rule.shapes)
_KEY_TABLE = tuple((name, mask) for name, mask in _name_table() if name.endswith("key"))
_NAME_TABLE = tuple((name, mask) for name, mask in _name_table() if not name.endswith("key"))
_TO_WORDS = _map(lambda char: char if char.isalnum() or char in "_.-" else " ")
_TO_LOWER, _TO_SHAPES = _map(str.lower), _map(_shape)


class KeywordGate:
    """Substring tests only. Vendor prefixes are looked for in long words, of which a clean event has few."""

    fast = False

    def __init__(self, *, pii: bool, literals: Sequence[str] = ()) -> None:
        self._keep = _ALL if pii else _SECRETS | KEY_BIT | KNOWN_BIT
        self._literals = tuple(literals)

    def mask(self, text: str) -> int:
        """The bits of what may be in the text; 0 means that it is clean."""
        data = text.encode("ascii", "replace")
        found = _names(data) | _words(data) | _shapes(data)
        for keyword, bits in _RAW_TABLE:
            if keyword in text:
                found |= bits
        for literal in self._literals:
            if literal in text:
                found |= KNOWN_BIT
                break
        return found & self._keep


def _names(data: bytes) -> int:
    data = data.replace(b"passed", b"")  # "214 passed": no name of a secret, and in every other event
    text = data.translate(_TO_LOWER, b"_-. ").decode("latin-1")
    if "tokens" in text:
        text = text.replace("tokens", "")  # counts of model tokens are in every other event
    found = 0
    for keyword, bits in _NAME_TABLE:
        if keyword in text:
            found |= bits
    if "key" in text:
        for keyword, bits in _KEY_TABLE:
            if keyword in text:
                found |= bits
    return found


def _words(data: bytes) -> int:
    words = data.translate(_TO_WORDS).decode("latin-1").split()
    text = " ".join([word for word in words if len(word) >= _LONG_WORD])
    found = 0
    if text:
        for keyword, bits in _WORD_TABLE:
            if keyword in text:
                found |= bits
    return found


def _shapes(data: bytes) -> int:
    text = data.translate(_TO_SHAPES).decode("latin-1")
    found = 0
    for shape, bits in _SHAPE_TABLE:
        if shape in text:
            found |= bits
    return found


class FastGate:
    """One pass of hyperscan; what it cannot do it leaves to the keyword gate, without a word.

    Compiling takes about a tenth of a second, so a command that writes three events never does it.
    """

    def __init__(
        self, hyperscan: Any, *, pii: bool, literals: Sequence[str] = (), warm_up: int = WARM_UP
    ) -> None:
        self.fast = True
        self._error: type[Exception] = hyperscan.HyperscanError
        self._slow = KeywordGate(pii=pii, literals=literals)
        self._keep = _ALL if pii else _SECRETS | KEY_BIT | KNOWN_BIT
        self._literals = tuple(literals)
        self._cold = warm_up
        self._scanners: tuple[Scanner, ...] = ()

    def mask(self, text: str) -> int:
        """The bits of what may be in the text; 0 means that it is clean."""
        if not self._scanners and not self._warm():
            return self._slow.mask(text)
        data = text.encode("ascii", "replace")
        hits: list[int] = []
        try:
            for scan in self._scanners:
                scan(data, hits)
        except self._error:
            return self._slow.mask(text)
        found = 0
        for number in hits:
            found |= 1 << number
        return found & self._keep

    def _warm(self) -> bool:
        self._cold -= 1
        if self._cold >= 0 or not self.fast:
            return False
        try:
            scanners = [_rule_scanner()]
            if self._literals:
                scanners.append(_literal_scanner(self._literals))
        except self._error:
            self.fast = False
            return False
        self._scanners = tuple(scanners)
        return True


def _on_match(number: int, start: int, end: int, flags: int, hits: list[int]) -> None:
    hits.append(number)


def _scanner(database: Any) -> Scanner:
    """A scan that any thread may call: hyperscan's scratch space serves one scan at a time."""
    import hyperscan

    local = threading.local()

    def scan(data: bytes, hits: list[int]) -> None:
        try:
            scratch = local.scratch
        except AttributeError:
            scratch = local.scratch = hyperscan.Scratch(database)
        database.scan(data, _on_match, context=hits, scratch=scratch)

    return scan


def _open_ended(pattern: str) -> str:
    """Large upper bounds make large automata; a gate may let more through, so it does without them."""
    return re.sub(r"\{(\d+),\d{2,}\}", r"{\1,}", pattern)


@functools.cache
def _rule_scanner() -> Scanner:
    import hyperscan

    patterns = [_open_ended(pattern) for pattern in (*(rule.pattern for rule in RULES), SECRET_KEY)]
    flags = hyperscan.HS_FLAG_PREFILTER | hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_MULTILINE
    database = hyperscan.Database()
    database.compile(
        expressions=[pattern.encode("ascii") for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=flags,
    )
    return _scanner(database)


def _literal_scanner(literals: Sequence[str]) -> Scanner:
    import hyperscan

    expressions = sorted({literal.encode("ascii", "replace") for literal in literals})
    database = hyperscan.Database()
    database.compile(
        expressions=expressions,
        ids=[KNOWN_BIT.bit_length() - 1] * len(expressions),
        elements=len(expressions),
        flags=hyperscan.HS_FLAG_SINGLEMATCH,
        literal=True,
    )
    return _scanner(database)


def open_gate(*, pii: bool, literals: Sequence[str] = (), fast: bool = True, warm_up: int = WARM_UP) -> Gate:
    """The fast gate where hyperscan is installed, else the keyword gate."""
    if fast:
        try:
            import hyperscan

            return FastGate(hyperscan, pii=pii, literals=literals, warm_up=warm_up)
        except ImportError:
            pass
    return KeywordGate(pii=pii, literals=literals)
