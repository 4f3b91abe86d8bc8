"""Which adapter a call acts through: the one it wants if profile and tool have it, else the mock, and never in silence."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from proctor.gate.profiles import Profile
from proctor.gate.verdict import Deny
from proctor.protocol.tools import MOCK, Handler, Tool

__all__ = ["Binding", "bind"]


@dataclass(frozen=True, slots=True)
class Binding:
    """How a call is carried out."""

    adapter: str
    handler: Handler
    simulated: bool
    notes: tuple[str, ...] = ()
    refused: Deny | None = None


async def _never(_context: object, _inputs: object) -> BaseModel:
    raise AssertionError("a call without an adapter was begun")


def bind(tool: Tool, wanted: str, profile: Profile) -> Binding:
    """Choose the adapter; what falls back to the mock is simulated, and both result and trace say why."""
    if profile.allows_adapter(wanted) and wanted in tool.handlers:
        return Binding(wanted, tool.handlers[wanted], wanted == MOCK)
    why = (
        f"{tool.name} has no adapter {wanted!r}"
        if profile.allows_adapter(wanted)
        else f"the profile {profile.name} does not allow the adapter {wanted!r}"
    )
    if MOCK not in tool.handlers:
        cure = "Choose another adapter or another profile; nothing can stand in here."
        deny = Deny("adapter_unavailable", why, "profile.adapters", cure)
        return Binding(wanted, _never, False, refused=deny)
    effect = "" if tool.read_only else " Nothing was changed."
    return Binding(MOCK, tool.handlers[MOCK], True, (f"Simulated: {why}.{effect}",))
