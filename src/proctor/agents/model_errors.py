"""What can go wrong between us and a model, in plain words with the cure, and whether waiting may help.

Everything that an SDK raises comes through `trouble_of`; a model that answers nonsense is as good as one that fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proctor.agents.driver import Failure
from proctor.agents.model_spec import KEYS, ModelSpec
from proctor.protocol.errors import ProctorError

__all__ = ["ModelTroubleError", "trouble_of"]

SHORT: Final = 200


class ModelTroubleError(ProctorError):
    """{what}. {cure}"""

    code = "model_failed"

    def __init__(
        self,
        failure: Failure,
        *,
        what: str,
        cure: str,
        retry_after: float | None = None,
        retryable: bool = False,
        unused: bool = False,
    ) -> None:
        super().__init__(what=what, cure=cure)
        self.failure = failure
        self.retry_after = retry_after
        self.retryable = retryable
        self.unused = unused
        """Certain that nothing was generated, so nothing is charged."""
        vars(self)["code"] = f"model_{failure.value}"


def trouble_of(error: BaseException, spec: ModelSpec) -> ModelTroubleError:
    """Say what an SDK's exception means for the one who asked."""
    after = getattr(error, "retry_after", None)
    wished = float(after) if isinstance(after, int | float) else None
    who = f"{spec.provider} ({spec.model})"
    found = _found(error)
    if found is None:
        what = f"{who} gave an answer that cannot be read: {_first(error)}"
        return ModelTroubleError(Failure.NO_RESULT, what=what, cure=_LATER, retryable=True)
    failure, what, cure, retryable, unused = found
    facts = {
        "who": who,
        "agent": spec.agent,
        "key": _key(spec),
        "first": _first(error),
        "reach": _reach(spec),
    }
    return ModelTroubleError(
        failure,
        what=what.format(**facts),
        cure=cure.format(**facts),
        retry_after=wished,
        retryable=retryable,
        unused=unused,
    )


_Known = tuple[
    Failure, str, str, bool, bool
]  # class, what, cure, may pass by itself, certainly nothing was used


def _found(error: BaseException) -> _Known | None:
    """The first kind that fits, the special ones before the general ones."""
    from pydantic_ai import exceptions as known

    if isinstance(error, known.ModelConnectionError) and error.phase == "connect":
        return Failure.NETWORK, "{who} cannot be reached", "{reach}", True, True
    table: Mapping[type[BaseException], _Known] = {
        known.ModelRateLimitError: (Failure.RATE_LIMIT, "{who} says: too many requests", _SLOWER, True, True),
        known.ModelQuotaExceededError: (Failure.QUOTA, "{who} says: the quota is used up", _PAY, False, True),
        known.ModelContextWindowExceededError: (Failure.CONTEXT, _LONG, _SHORTER, False, True),
        known.ModelAuthenticationError: (Failure.AUTH, "{who} does not accept the key", "{key}", False, True),
        known.ModelNotFoundError: (Failure.MODEL, _NOWHERE, _SETTING, False, True),
        known.ModelUnavailableError: (Failure.OVERLOADED, "{who} is overloaded", _LATER, True, True),
        known.ModelServerError: (Failure.OVERLOADED, "{who} failed on its side", _LATER, True, True),
        known.ModelRequestTimeout: (Failure.SILENT, _SILENT, _SLOW, False, False),
        known.ModelConnectionError: (
            Failure.NETWORK,
            "The connection to {who} broke",
            "{reach}",
            True,
            False,
        ),
        known.ModelRequestRejectedError: (Failure.AGENT, _REJECTED, _OTHER, False, True),
        TimeoutError: (Failure.SILENT, _SILENT, _SLOW, False, False),
    }
    return next((found for kind, found in table.items() if isinstance(error, kind)), None)


_LONG: Final = "{who} says: the conversation is too long for it"
_NOWHERE: Final = "{who} does not know the model, or nothing is at that address"
_SILENT: Final = "{who} did not answer in time"
_REJECTED: Final = "{who} rejected the request: {first}"
_PAY: Final = "Top up the account, or choose another agent."
_SHORTER: Final = "Open a new chat, or ask for less at once."
_SETTING: Final = "Set agents.{agent}.model (and api.base_url) to what your provider has."
_SLOW: Final = "Try again; if it is slow by nature, raise agents.{agent}.api.seconds."
_OTHER: Final = "Open a new chat; if it stays so, choose another model."
_SLOWER: Final = "Wait a little and say it again; another agent may be free."
_LATER: Final = "Try again later, or choose another agent: `proctor agents list`."


def _key(spec: ModelSpec) -> str:
    names = (spec.api.key,) if spec.api.key else KEYS[spec.provider]
    name = names[0] if names else "the key"
    return f"Check {name}: it is wrong, expired, or not allowed to use this model."


def _reach(spec: ModelSpec) -> str:
    if spec.provider == "ollama":
        return f"Is Ollama running at {spec.base_url}? Start it with `ollama serve`."
    return "Check the network, and try again."


def _first(error: BaseException) -> str:
    """The first line of an SDK's message; it may repeat what a server sent, so it is cut."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:SHORT]
