"""The one tree of errors. Every docstring is the message a person reads: what happened, and the cure.

ProctorError
├── UsageError                    the request itself is wrong            exit 2
│   ├── ConfigError               a settings file or variable is wrong
│   └── InvalidTransitionError    a state machine refused a step
├── NotFoundError                 the named thing does not exist          exit 4
├── RefusedError                  gate, policy or profile said no         exit 5
├── UnavailableError              database, supervisor or disk is away    exit 6
│   ├── StoreUnavailableError
│   ├── StoreCorruptError
│   ├── SchemaTooNewError
│   ├── SchemaOutdatedError
│   └── SupervisorUnavailableError
├── IntegrityError                the trace or a backup was altered       exit 7
└── NonCanonicalEventError        an event outside the closed sets (also a ValueError)

Facts given to an error fill the braces of its docstring and stay readable as attributes of `facts`.
"""

from __future__ import annotations

import inspect
from typing import ClassVar, TypeVar

__all__ = [
    "ConfigError",
    "IntegrityError",
    "InvalidTransitionError",
    "NonCanonicalEventError",
    "NotFoundError",
    "ProctorError",
    "RefusedError",
    "SchemaOutdatedError",
    "SchemaTooNewError",
    "StoreCorruptError",
    "StoreUnavailableError",
    "SupervisorUnavailableError",
    "UnavailableError",
    "UsageError",
    "first_of",
]

E = TypeVar("E", bound=BaseException)


class ProctorError(Exception):
    """{message} Run the command again with --debug to see where."""

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        super().__init__(inspect.cleandoc(type(self).__doc__ or "").replace("\n", " ").format(**facts))


def first_of(group: BaseExceptionGroup[E]) -> E:
    """The first error of a task group, however deep: who waited for one thing hears of one."""
    inner = group.exceptions[0]
    return first_of(inner) if isinstance(inner, BaseExceptionGroup) else inner


class UsageError(ProctorError):
    """{message}"""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """{where}: {problem}. {allowed}"""

    code = "config"


class InvalidTransitionError(UsageError, ValueError):
    """Invalid transition: {machine} cannot go from {current!r} to {target!r}; allowed: {allowed}."""

    code = "invalid_transition"


class NotFoundError(ProctorError):
    """There is no {kind} {name!r}. {cure}"""

    code = "not_found"
    exit_code = 4


class RefusedError(ProctorError):
    """Refused: {reason}. {cure}"""

    code = "refused"
    exit_code = 5


class UnavailableError(ProctorError):
    """{what} is not available: {reason}. {cure}"""

    code = "unavailable"
    exit_code = 6


class StoreUnavailableError(UnavailableError):
    """The database {place} cannot be used: {reason}. {cure}"""

    code = "store_unavailable"


class StoreCorruptError(UnavailableError):
    """The database {place} is damaged: {reason}. Restore the newest copy made by `proctor db backup`."""

    code = "store_corrupt"


class SchemaTooNewError(UnavailableError):
    """The database {place} was written by a newer Proctor (schema {found!r}, this one knows {known!r}).
    Upgrade Proctor.
    """

    code = "schema_too_new"


class SchemaOutdatedError(UnavailableError):
    """The database {place} has schema {found!r} and needs {known!r}. Run `proctor db upgrade`."""

    code = "schema_outdated"


class SupervisorUnavailableError(UnavailableError):
    """The supervisor does not answer: {reason}. See {log} or run `proctor doctor`."""

    code = "supervisor_unavailable"


class IntegrityError(ProctorError):
    """{what} is not as it was written: {reason}. Keep the files as they are and compare with a backup."""

    code = "integrity"
    exit_code = 7


class NonCanonicalEventError(ProctorError, ValueError):
    """Non-canonical event: {event!r} is not one of the {kind} events ({allowed})."""

    code = "non_canonical_event"
