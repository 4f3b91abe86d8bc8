"""Errors: the docstring is the message, filled with facts, and each says what to do."""

from __future__ import annotations

import string

import pytest

from proctor.protocol import errors
from proctor.protocol.errors import ProctorError


def _all(kind: type[ProctorError] = ProctorError) -> list[type[ProctorError]]:
    return [
        kind,
        *(
            leaf
            for sub in kind.__subclasses__()
            if sub.__module__.startswith("proctor.")
            for leaf in _all(sub)
        ),
    ]


@pytest.mark.parametrize("kind", _all(), ids=lambda kind: str(kind.__name__))
def test_docstring_is_the_message(kind: type[ProctorError]) -> None:
    """Every placeholder is a fact, no brace is left over, and code and exit code are set."""
    fields = [(name, spec) for _, name, spec, _ in string.Formatter().parse(kind.__doc__ or "") if name]
    error = kind.__new__(kind)
    ProctorError.__init__(error, **{name: 1.0 if spec else f"<{name}>" for name, spec in fields})
    assert "{" not in str(error)
    assert kind.code
    assert kind.exit_code in {1, 2, 3, 4, 5, 6, 7}


def test_codes_are_unique_among_the_tree() -> None:
    """A code points to one kind of failure."""
    kinds = [kind for kind in _all() if kind.__module__ == errors.__name__]
    assert len({kind.code for kind in kinds}) == len(kinds)
