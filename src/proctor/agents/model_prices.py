"""What a model request costs, in millionths of a dollar: the settings' own price, else the bundled price list.

A model on this machine is free of money. Of every other one without a price the cost is None: unknown, which is never
free (law 6); where money is limited the gate then refuses. Nothing is ever downloaded.
"""

from __future__ import annotations

import math
from typing import Final

from proctor.agents.model_spec import ModelSpec

__all__ = ["TOKEN_CHARACTERS", "cost_of"]

TOKEN_CHARACTERS: Final = 3
"""Characters of one token, for estimates: on the careful side for text and code."""
_PROVIDER: Final = {"openai-chat": "openai"}


def cost_of(spec: ModelSpec, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> int | None:
    """The price of so many tokens; None when nobody knows it."""
    api = spec.api
    if api.input_usd is not None and api.output_usd is not None:
        return math.ceil(api.input_usd * input_tokens + api.output_usd * output_tokens)
    if spec.provider != "ollama":
        listed = _listed(spec, input_tokens, output_tokens, cached_tokens)
        if listed is not None:
            return listed
    return 0 if spec.local else None


def _listed(spec: ModelSpec, input_tokens: int, output_tokens: int, cached_tokens: int) -> int | None:
    from genai_prices import Usage, calc_price

    used = Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=min(cached_tokens, input_tokens),
    )
    try:
        found = calc_price(used, spec.model, provider_id=_PROVIDER.get(spec.provider, spec.provider))
    except (LookupError, ValueError):
        return None
    return math.ceil(float(found.total_price) * 1_000_000)
