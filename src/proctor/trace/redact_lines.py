"""Rules applied line by line: what one line needs, and private keys that span many.

Lines are fed in order and come out in order; only a private key whose end has not been seen is held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proctor.trace.redact_checks import is_pem_body, pem_end, pem_open
from proctor.trace.redact_gate import KEY_BIT, KNOWN_BIT, RULES, Gate
from proctor.trace.redact_marker import Marker, Marks

__all__ = ["BLOCK", "LineRedactor", "LineRules"]

BLOCK = 4096  # characters per gate: one hit makes no more than about this much text go line by line
_PASSES = 4  # a redaction may lay bare another; a line that needs more than this is hostile and goes whole
_KEY_LINES = 1000  # a private key longer than this is none
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_BITS = tuple((1 << number, rule) for number, rule in enumerate(RULES))
_RULE_BITS = ~(KEY_BIT | KNOWN_BIT)

Found = tuple[int, int, str]


class LineRules:
    """The rule table behind a gate, for text without line ends."""

    def __init__(self, gate: Gate, marker: Marker) -> None:
        self._gate = gate
        self.marker = marker

    def is_clean(self, block: str) -> bool:
        """Whether no rule can match in these lines."""
        return not self._gate.mask(block) & _RULE_BITS

    def confirms(self, block: str, mask: int) -> bool:
        """Whether a rule that the gate named really has a match."""
        return any(mask & bit and rule.regex.search(block) for bit, rule in _BITS)

    def spans(self, line: str) -> list[Found]:
        """What the rules find, in order and apart; where two overlap, the earlier rule wins."""
        mask = self._gate.mask(line) & _RULE_BITS
        found: list[Found] = []
        if mask:
            marks = Marks(line)
            for bit, rule in _BITS:
                if mask & bit:
                    fresh = [(start, end, rule.name) for start, end in _whole(rule.spans(line), line, marks)]
                    found = _merge(found, fresh) if fresh else found
        return found

    def line(self, line: str) -> str:
        """The line without secrets; what a pass leaves is looked at again until nothing is found."""
        for _ in range(_PASSES):
            spans = self.spans(line)
            if not spans:
                return line
            out, position = [], 0
            for start, end, rule in spans:
                out += [line[position:start], self.marker.of(rule, line[start:end])]
                position = end
            line = "".join([*out, line[position:]])
        return self.marker.of("line", line) if self.spans(line) else line


def _whole(spans: Iterable[tuple[int, int]], line: str, marks: Marks) -> Iterator[tuple[int, int]]:
    """Spans grown to the end of their word and over marks they cut; marks alone are done with."""
    behind = 0
    for first, last in spans:
        if first < behind:
            continue  # before the loop below, or many finds in one long word would each run to its end
        start, end = marks.grow(first, last)
        while end < len(line) and line[end] in _WORD:
            end += 1
        start, end = marks.grow(start, end)
        if start >= behind and not marks.only(start, end):
            yield start, end
            behind = end


def _merge(old: list[Found], new: list[Found]) -> list[Found]:
    out, index = [], 0
    for span in new:
        while index < len(old) and old[index][1] <= span[0]:
            out.append(old[index])
            index += 1
        if index == len(old) or span[1] <= old[index][0]:
            out.append(span)
    return out + old[index:]


def _blocks(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start + BLOCK) + 1 or len(text)
        yield text[start:end]
        start = end


def _lines(block: str) -> Iterator[tuple[str, str]]:
    *ended, last = block.split("\n")
    for line in ended:
        yield line, "\n"
    if last:
        yield last, ""


class LineRedactor:
    """Takes whole lines, gives them back redacted; one per text or stream, for one thread."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._before = ""  # what stood on the line before the private key began
        self._key: list[str] = []  # the lines of a private key that is still open

    def feed(self, text: str) -> str:
        """Redact whole lines (the last may lack its end if nothing follows)."""
        out: list[str] = []
        for block in _blocks(text):
            if not self._key and self._rules.is_clean(block):
                out.append(block)
            else:
                out.extend(self._line(line, end) for line, end in _lines(block))
        return "".join(out)

    def flush(self) -> str:
        """Give out what is held back: the mark of a private key that never ended."""
        if not self._key:
            return ""
        end = "\n" if self._key[-1].endswith("\n") else ""
        return self._rules.line(self._close()) + end

    def _line(self, line: str, end: str) -> str:
        if self._key:
            behind = pem_end(line)
            if behind >= 0:
                self._key.append(line[:behind])
                return self._open(self._close() + line[behind:], end)
            if len(self._key) < _KEY_LINES and is_pem_body(line, len(self._key)):
                self._key.append(line + end)
                return ""
            return self.flush() + self._open(line, end)
        return self._open(line, end)

    def _open(self, line: str, end: str) -> str:
        begin = pem_open(line)
        if begin < 0:
            return self._rules.line(line) + end
        self._before, self._key = line[:begin], [line[begin:] + end]
        return ""

    def _close(self) -> str:
        """The line as far as the key went, with the key as a mark."""
        mark = self._rules.marker.of("pem", "".join(self._key).rstrip("\n"))
        line, self._before, self._key = self._before + mark, "", []
        return line
