"""Seed 002's `ProfileConfig` and `ProfileLoader` over the gate's profiles.

Every configuration given out is a copy of its own: who changes one changes nobody else's.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from proctor.gate.profiles import BUILT_IN, Profile, UnknownProfileError
from proctor.protocol.errors import ConfigError
from proctor.protocol.tools import MOCK

__all__ = ["SEED_PROFILES", "ProfileConfig", "ProfileLoader"]

SEED_PROFILES: Final = ("enterprise", "smb", "technical")
_MAX_BYTES: Final = 1_000_000


@dataclass
class ProfileConfig:
    """One profile in the seed's words."""

    name: str
    budget: dict[str, Any]
    approval_required: list[str]
    allowed_adapters: list[str]
    guardrails: str
    description: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def as_table(self) -> dict[str, Any]:
        """As a `[profiles.NAME]` table; what the seed does not say comes from the strictest preset."""
        budget = self.budget
        limits = {
            "calls": budget.get("total_calls", 100),
            "domains": dict(budget.get("calls_per_domain", {})),
            "tools": dict(budget.get("calls_per_tool", {})),
        }
        return {
            "base": "enterprise",
            "description": self.description or self.name,
            "asks": list(self.approval_required),
            "adapters": list(self.allowed_adapters),
            "limits": limits,
        }


def _config(profile: Profile) -> ProfileConfig:
    budget: dict[str, Any] = {
        "total_calls": profile.limits.calls,
        "calls_per_domain": dict(profile.limits.domains),
        "calls_per_tool": dict(profile.limits.tools),
        "warning_threshold": profile.limits.warn_at / 100,
    }
    return ProfileConfig(
        name=profile.name,
        budget=budget,
        approval_required=sorted(effect.value for effect in profile.asks),
        allowed_adapters=list(profile.adapters or ()),
        guardrails=profile.guardrails,
        description=profile.description,
    )


class _Defaults(Mapping[str, ProfileConfig]):
    """The seed's three; each look gives a new copy."""

    def __getitem__(self, name: str) -> ProfileConfig:
        if name not in SEED_PROFILES:
            raise KeyError(name)
        return _config(BUILT_IN[name])

    def __iter__(self) -> Iterator[str]:
        return iter(SEED_PROFILES)

    def __len__(self) -> int:
        return len(SEED_PROFILES)


class ProfileLoader:
    """Knows the seed's profiles and those of a directory of YAML files."""

    DEFAULT_PROFILES: Mapping[str, ProfileConfig] = _Defaults()

    def __init__(self, config_dir: Path | str | None = None) -> None:
        self.config_dir = None if config_dir is None else Path(config_dir)
        self.profiles: dict[str, ProfileConfig] = dict(self.DEFAULT_PROFILES)
        if self.config_dir is not None:
            self.profiles |= {one.name: one for one in _custom(self.config_dir)}

    def load_profile(self, profile_name: str) -> ProfileConfig:
        """The profile of this name, as a copy; an unknown one is a ValueError, never another in its place."""
        if profile_name not in self.profiles:
            raise UnknownProfileError(name=profile_name, known=", ".join(self.profiles), near="")
        return copy.deepcopy(self.profiles[profile_name])

    def get_budget(self, profile_name: str) -> dict[str, Any]:
        """The budget of a profile."""
        return self.load_profile(profile_name).budget

    def requires_approval(self, profile_name: str, side_effect_class: str) -> bool:
        """Whether such an act asks first; in a profile nobody knows everything does."""
        if profile_name not in self.profiles:
            return True
        return side_effect_class in self.profiles[profile_name].approval_required

    def is_adapter_allowed(self, profile_name: str, adapter_name: str) -> bool:
        """Whether a tool may act through it; the mock always may."""
        if adapter_name == MOCK:
            return True
        known = self.profiles.get(profile_name)
        return known is not None and adapter_name in known.allowed_adapters

    def list_profiles(self) -> list[str]:
        """All names."""
        return list(self.profiles)

    def tables(self) -> dict[str, dict[str, Any]]:
        """Those that are not the gate's own, for its settings."""
        return {name: one.as_table() for name, one in self.profiles.items() if name not in BUILT_IN}


def _custom(place: Path) -> list[ProfileConfig]:
    yaml = importlib.import_module("yaml")  # it has no types
    found = []
    for path in sorted([*place.glob("*.yaml"), *place.glob("*.yml")]):
        try:
            with path.open("rb") as file:
                values = yaml.safe_load(file.read(_MAX_BYTES))
            found.append(ProfileConfig(**values))
        except (yaml.YAMLError, TypeError, OSError, UnicodeDecodeError) as error:
            problem = f"it is no profile ({(str(error).splitlines() or [''])[0]})"
            allowed = "Needed: name, budget, approval_required, allowed_adapters, guardrails."
            raise ConfigError(where=str(path), problem=problem, allowed=allowed) from None
    return found
