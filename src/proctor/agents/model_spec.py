"""Which model an agent asks, where it is and with which key: from the roster, the settings and the environment.

Knows no SDK. Whatever is missing is one sentence that says which variable to set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from proctor.agents.roster import Agent
from proctor.config import ApiSettings, is_loopback
from proctor.protocol.errors import UnavailableError

__all__ = ["KEYS", "OLLAMA_URL", "ModelNotReadyError", "ModelSpec", "ollama_url", "spec_of"]

OLLAMA_URL: Final = "http://localhost:11434"
# The variables a provider's key is looked for in, the usual one first; the seeds' own names count too.
KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "anthropic": ("ANTHROPIC_API_KEY", "CLAUDE_API_KEY"),
        "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "ollama": (),
        "openai": ("OPENAI_API_KEY",),
        "openai-chat": ("OPENAI_API_KEY",),
    }
)


class ModelNotReadyError(UnavailableError):
    """Agent {agent} cannot work: {reason}. {cure}"""

    code = "model_not_ready"


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model, ready to be asked."""

    agent: str
    provider: str
    model: str
    base_url: str | None = None
    api_key: str = field(default="", repr=False)
    api: ApiSettings = field(default_factory=ApiSettings)

    @property
    def local(self) -> bool:
        """Whether it runs on this machine, where nobody sends a bill."""
        return self.base_url is not None and is_loopback(self.base_url)


def spec_of(agent: Agent, env: Mapping[str, str]) -> ModelSpec:
    """What this agent asks; raises with the cure when something is missing."""
    provider, _, model = agent.model.partition(":")
    if provider not in KEYS or not model:
        cure = f"Write `model` as <provider>:<model>, with one of: {', '.join(sorted(KEYS))}."
        raise ModelNotReadyError(
            agent=agent.name, reason=f"there is no model provider {provider[:40]!r}", cure=cure
        )
    base = agent.api.base_url
    if provider == "ollama":
        base = ollama_url(base or env.get("OLLAMA_HOST") or OLLAMA_URL)
    return ModelSpec(agent.name, provider, model, base, _key(agent, provider, base, env), agent.api)


def _key(agent: Agent, provider: str, base: str | None, env: Mapping[str, str]) -> str:
    names = (agent.api.key,) if agent.api.key else KEYS[provider]
    found = next((env[name] for name in names if env.get(name)), "")
    if found or (provider == "ollama" and not agent.api.key):
        return found
    raise ModelNotReadyError(
        agent=agent.name,
        reason=f"{names[0]} is not set",
        cure=f"Set {names[0]} in the environment or in .env.",
    )


def ollama_url(host: str) -> str:
    """Make a URL of what OLLAMA_HOST may hold: a URL, host:port or a host."""
    if host.startswith(("http://", "https://")):
        return host.rstrip("/")
    return f"http://{host if ':' in host else f'{host}:11434'}"
