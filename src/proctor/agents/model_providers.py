"""Makes the model object of a provider. Each SDK is imported only here, only when its provider is used, and late:
they take seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from proctor.agents.model_spec import ModelSpec

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ["make_model"]


def make_model(spec: ModelSpec) -> Model:
    """The model behind a spec; blocks while its SDK is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an SDK's own deprecations are none of the user's business
        return _MAKERS[spec.provider](spec)


def _openai(spec: ModelSpec) -> Model:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=spec.base_url, api_key=spec.api_key)
    return OpenAIResponsesModel(spec.model, provider=provider)


def _openai_chat(spec: ModelSpec) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=spec.base_url, api_key=spec.api_key)
    return OpenAIChatModel(spec.model, provider=provider)


def _anthropic(spec: ModelSpec) -> Model:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(
        spec.model, provider=AnthropicProvider(api_key=spec.api_key, base_url=spec.base_url)
    )


def _google(spec: ModelSpec) -> Model:
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(spec.model, provider=GoogleProvider(api_key=spec.api_key, base_url=spec.base_url))


def _ollama(spec: ModelSpec) -> Model:
    from proctor.agents.model_ollama import NativeOllamaModel

    return NativeOllamaModel(
        spec.model, host=spec.base_url or "", api_key=spec.api_key, num_ctx=spec.api.num_ctx
    )


_MAKERS: Mapping[str, Callable[[ModelSpec], Model]] = {
    "anthropic": _anthropic,
    "google": _google,
    "ollama": _ollama,
    "openai": _openai,
    "openai-chat": _openai_chat,
}
