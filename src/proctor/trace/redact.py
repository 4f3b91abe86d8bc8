"""Redaction: secrets and personal data leave a text before it is hashed, stored or shown.

Three layers in this order: exact known values, anchored rules, personal data. What is clean comes back as the very
same object; what was redacted once is not changed by redacting it again. Every method may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from proctor.trace.redact_gate import KEY_BIT, KNOWN_BIT, WARM_UP, open_gate
from proctor.trace.redact_known import KnownValues
from proctor.trace.redact_lines import BLOCK, LineRedactor, LineRules
from proctor.trace.redact_marker import MARKER, Marker
from proctor.trace.redact_rules import KEY_LENGTH, is_secret_key

__all__ = ["Redactor", "StreamRedactor"]

_NODES = 5000  # structures with more containers are walked without the common gate
_DEPTH = 200  # deeper than any answer of a tool, shallower than the interpreter's stack
_LINE_LIMIT = 64 * 1024
_TAIL = 8 * 1024  # of an endless line: longer than any secret that a rule matches in practice
_SCALARS = frozenset({int, float, bool, type(None)})

_cached_is_secret_key = lru_cache(maxsize=4096)(is_secret_key)


class Redactor:
    """Replaces secrets by marks that say which rule found them and whether two were equal.

    `known` are values that Proctor holds itself; those shorter than 8 characters are ignored. `pii=False` leaves
    personal data alone, for contents of files. `use_fast=False` does without hyperscan even where it is installed;
    `warm_up` texts pass through the keyword gate before hyperscan is compiled.
    """

    def __init__(
        self,
        *,
        key: bytes,
        known: Sequence[str] = (),
        pii: bool = True,
        use_fast: bool = True,
        warm_up: int = WARM_UP,
    ) -> None:
        self._marker = Marker(key)
        self.known = KnownValues(known, self._marker)
        self._gate = open_gate(pii=pii, literals=self.known.literals, fast=use_fast, warm_up=warm_up)
        self.rules = LineRules(self._gate, self._marker)

    @property
    def fast(self) -> bool:
        """Whether the optional matcher is in use."""
        return self._gate.fast

    def text(self, s: str) -> str:
        """The text without secrets; the same object if it had none."""
        if len(s) <= BLOCK and not self._gate.mask(s) & ~KEY_BIT:
            return s
        lines = LineRedactor(self.rules)
        out = lines.feed(self.known.replace(s)) + lines.flush()
        return s if out == s else out

    def value(self, v: Any) -> Any:
        """The same, deep in dicts, lists, tuples and sets; strings under names of secrets go whole."""
        texts, keys = _gather(v)
        if texts is not None:
            joined = "\n".join(texts)
            if len(joined) <= BLOCK and not self._is_suspect(joined, keys):
                return v
        return self._walk(v, {}, 0)

    def _is_suspect(self, joined: str, keys: list[str]) -> bool:
        """Whether the joined strings ask for a closer look; most that the gate lets through do not."""
        mask = self._gate.mask(joined)
        if not mask:
            return False
        if mask & KNOWN_BIT or (mask & KEY_BIT and any(map(_names_secret, keys))):
            return True
        return self.rules.confirms(joined, mask)

    def _walk(self, v: Any, seen: dict[int, Any], depth: int, *, hide: bool = False) -> Any:
        if isinstance(v, str):
            return self._hidden(v) if hide else self.text(v)
        if isinstance(v, bytes | bytearray):
            return self._bytes(bytes(v))
        if not isinstance(v, Mapping | list | tuple | set | frozenset):
            return v
        if depth >= _DEPTH:
            return self._marker.of("depth", "")
        known = (id(v) << 1) + hide
        if known not in seen:
            seen[known] = self._marker.of("cycle", "")
            seen[known] = self._container(v, seen, depth + 1, hide=hide)
        return seen[known]

    def _container(self, v: Any, seen: dict[int, Any], depth: int, *, hide: bool) -> Any:
        if isinstance(v, Mapping):
            return self._mapping(v, seen, depth)
        items = [self._walk(item, seen, depth, hide=hide) for item in v]
        if isinstance(v, list):
            return items
        return tuple(items) if isinstance(v, tuple) else frozenset(items)

    def _mapping(self, v: Mapping[Any, Any], seen: dict[int, Any], depth: int) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key, item in v.items():
            name = self.text(key) if isinstance(key, str) else key
            hide = isinstance(key, str) and (_names_secret(key) or _names_secret(name))
            while name in out:
                name += "+"  # two keys under one mark: keep both entries
            out[name] = self._walk(item, seen, depth, hide=hide)
        return out

    def _hidden(self, s: str) -> str:
        """A whole string under a name of a secret; a rule that knows it better gives its own name to the mark."""
        redacted = self.text(s)
        return redacted if not s or MARKER.fullmatch(redacted) else self._marker.of("field", s)

    def _bytes(self, data: bytes) -> bytes:
        redacted = self.text(data.decode("utf-8", "surrogateescape"))
        return redacted.encode("utf-8", "surrogateescape")


class StreamRedactor:
    """Redacts a text that arrives in pieces: a secret split over two pieces is still one secret.

    What comes out, joined, is what `Redactor.text` makes of the whole, as long as no line exceeds `line_limit`.
    Of a longer line the head is given out, cut where nothing is found. For one thread.
    """

    def __init__(self, redactor: Redactor, *, line_limit: int = _LINE_LIMIT) -> None:
        self._redactor = redactor
        self._lines = LineRedactor(redactor.rules)
        self._limit = max(line_limit, 2 * _TAIL)
        self._parts: list[str] = []
        self._size = 0

    def feed(self, chunk: str) -> str:
        """Take a piece and give out all that no later piece can change."""
        self._parts.append(chunk)
        self._size += len(chunk)
        if "\n" not in chunk and self._size <= self._limit:
            return ""
        text = "".join(self._parts)
        cut = self._redactor.known.safe_cut(text, text.rfind("\n") + 1)
        out = [self._give(text[:cut])]
        while len(text) - cut > self._limit:
            window = text[cut : cut + self._limit]
            length = self._forced_cut(window)
            out.append(self._give(window[:length]))
            cut += length
        self._parts, self._size = [text[cut:]], len(text) - cut
        return "".join(out)

    def flush(self) -> str:
        """Give out the rest; the text has ended."""
        text = "".join(self._parts)
        self._parts, self._size = [], 0
        return self._give(text) + self._lines.flush()

    def _give(self, text: str) -> str:
        return self._lines.feed(self._redactor.known.replace(text))

    def _forced_cut(self, window: str) -> int:
        """Where an endless line may be cut: at a blank if there is one, never inside a find."""
        want = len(window) - _TAIL
        cut = window.rfind(" ", want - _TAIL, want) + 1 or want
        finds = [*self._redactor.known.spans(window), *self._redactor.rules.spans(window)]
        for start, end, _ in sorted(finds, reverse=True):
            if start < cut < end:
                cut = start or end
        return cut


def _names_secret(key: str) -> bool:
    return len(key) <= KEY_LENGTH and _cached_is_secret_key(key)


def _gather(v: Any) -> tuple[list[str] | None, list[str]]:
    """All strings of a plain structure and all its keys; None for one that needs the walk in any case."""
    texts: list[str] = []
    keys: list[str] = []
    todo = [v]
    for item in todo:
        kind = type(item)
        if kind is dict:
            keys.extend(item)
            inner = item.values()
        elif kind is list or kind is tuple:
            inner = item
        elif isinstance(item, str):
            texts.append(item)
            continue
        elif (
            isinstance(item, bytes | bytearray | Mapping | list | tuple | set | frozenset)
            or len(todo) > _NODES
        ):
            return None, keys
        else:
            continue
        for child in inner:
            if type(child) is str:
                texts.append(child)
            elif type(child) not in _SCALARS:
                todo.append(child)
        if len(todo) > _NODES:
            return None, keys
    if not set(map(type, keys)) <= {str}:
        return None, keys
    texts.extend(keys)
    return texts, keys
