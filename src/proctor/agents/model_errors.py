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
    from pydantic_ai import exceptions as known

    who = f"{spec.provider} ({spec.model})"
    after = getattr(error, "retry_after", None)
    after = float(after) if isinstance(after, int | float) else None
    table: Mapping[type[BaseException], tuple[Failure, str, str, bool, bool]] = {
        known.ModelRateLimitError: (
            Failure.RATE_LIMIT,
            f"{who} says: too many requests",
            _SLOWER,
            True,
            True,
        ),
        known.ModelQuotaExceededError: (
            Failure.QUOTA,
            f"{who} says: the quota is used up",
            "Top up the account, or choose another agent.",
            False,
            True,
        ),
        known.ModelContextWindowExceededError: (
            Failure.CONTEXT,
            f"{who} says: the conversation is too long for it",
            "Open a new chat, or ask for less at once.",
            False,
            True,
        ),
        known.ModelAuthenticationError: (
            Failure.AUTH,
            f"{who} does not accept the key",
            _key(spec),
            False,
            True,
        ),
        known.ModelNotFoundError: (
            Failure.MODEL,
            f"{who} does not know the model, or nothing is at that address",
            f"Set agents.{spec.agent}.model (and api.base_url) to what your provider has.",
            False,
            True,
        ),
        known.ModelUnavailableError: (Failure.OVERLOADED, f"{who} is overloaded", _LATER, True, True),
        known.ModelServerError: (Failure.OVERLOADED, f"{who} failed on its side", _LATER, True, True),
        known.ModelRequestTimeout: (
            Failure.SILENT,
            f"{who} did not answer in time",
            f"Try again; if it is slow by nature, raise agents.{spec.agent}.api.seconds.",
            False,
            False,
        ),
        known.ModelConnectionError: (Failure.NETWORK, _unreached(error, who), _reach(spec), True, False),
        known.ModelRequestRejectedError: (
            Failure.AGENT,
            f"{who} rejected the request: {_first(error)}",
            "Open a new chat; if it stays so, choose another model.",
            False,
            True,
        ),
    }
    for kind, (failure, what, cure, retryable, unused) in table.items():
        if isinstance(error, kind):
            return ModelTroubleError(
                failure, what=what, cure=cure, retry_after=after, retryable=retryable, unused=unused
            )
    if isinstance(error, TimeoutError):
        return ModelTroubleError(Failure.SILENT, what=f"{who} did not answer in time", cure=_LATER)
    what = f"{who} gave an answer that cannot be read: {_first(error)}"
    return ModelTroubleError(Failure.NO_RESULT, what=what, cure=_LATER, retryable=True)


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


def _unreached(error: BaseException, who: str) -> str:
    phase = getattr(error, "phase", None)
    return f"{who} cannot be reached" if phase == "connect" else f"The connection to {who} broke"


def _first(error: BaseException) -> str:
    """The first line of an SDK's message; it may repeat what a server sent, so it is cut."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:SHORT]
