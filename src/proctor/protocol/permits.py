"""Permits: what the gate gives out for one call, and what tool handlers, `sandbox.run` and writers demand.

A permit carries a seal that only this module can compute, over all its fields, with a key made anew in every
process. Nobody but `proctor.gate` (and `proctor.testing.permits`) names `mint_permit`: an AST test sees to
it. A permit that was altered, is too old or was spent before opens nothing.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from dataclasses import dataclass
from hashlib import blake2b

from proctor.protocol.errors import RefusedError
from proctor.protocol.events import ActorKind
from proctor.protocol.ids import CallId

__all__ = [
    "Permit",
    "PermitExpiredError",
    "PermitForgedError",
    "PermitMismatchError",
    "PermitSpentError",
    "mint_permit",
    "redeem_permit",
]

_KEY = secrets.token_bytes(32)
_spent: dict[str, float] = {}
_lock = threading.Lock()


class PermitForgedError(RefusedError):
    """Refused: this is no permit of the gate ({found}). Pass the call through the gate."""

    code = "permit_forged"


class PermitExpiredError(RefusedError):
    """Refused: the permit of call {call_id} ended {seconds:.1f} s ago. Ask the gate again."""

    code = "permit_expired"


class PermitSpentError(RefusedError):
    """Refused: the permit of call {call_id} was used before and opens one door once. Ask the gate again."""

    code = "permit_spent"


class PermitMismatchError(RefusedError):
    """Refused: the permit of call {call_id} is for {what} {allowed!r}, not {wanted!r}. Ask the gate again."""

    code = "permit_mismatch"


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to do one call: which, by whom, on what exact content, until when. Equal fields, equal seal."""

    call_id: CallId
    tool: str
    actor: ActorKind
    actor_name: str
    content_hash: str
    expires: float  # monotonic seconds of this process
    single_use: bool
    nonce: str
    seal: str

    def __post_init__(self) -> None:
        if not hmac.compare_digest(self.seal, _seal(*_fields(self))):
            raise PermitForgedError(found=f"call {self.call_id} with a wrong seal")


def _fields(permit: Permit) -> tuple[object, ...]:
    """What is sealed: everything but the seal itself."""
    return tuple([getattr(permit, name) for name in Permit.__slots__[:-1]])


def _seal(*fields: object) -> str:
    text = "\0".join([f"{type(field).__name__}={field!s}" for field in fields])
    return blake2b(text.encode("utf-8", "surrogateescape"), key=_KEY, digest_size=32).hexdigest()


def mint_permit(
    *,
    call_id: CallId,
    tool: str,
    actor: ActorKind,
    actor_name: str,
    content_hash: str,
    expires: float,
    single_use: bool = True,
) -> Permit:
    """Make a permit. Only the gate may call this, in the transaction that reserves the lease."""
    fields = (call_id, tool, actor, actor_name, content_hash, expires, single_use, secrets.token_hex(16))
    return Permit(*fields, seal=_seal(*fields))


def redeem_permit(
    permit: object, *, now: float, tool: str | None = None, content_hash: str | None = None
) -> Permit:
    """Check a permit, and spend it when it is for one use; raises what is wrong with it.

    Whoever names the tool or the content hash gets a refusal when the permit was given for another.
    """
    if type(permit) is not Permit or not _genuine(permit):
        raise PermitForgedError(found=type(permit).__name__)
    if now >= permit.expires:
        raise PermitExpiredError(call_id=permit.call_id, seconds=now - permit.expires)
    for what, allowed, wanted in (
        ("tool", permit.tool, tool),
        ("content", permit.content_hash, content_hash),
    ):
        if wanted is not None and wanted != allowed:
            raise PermitMismatchError(call_id=permit.call_id, what=what, allowed=allowed, wanted=wanted)
    if permit.single_use:
        _spend(permit, now)
    return permit


def _genuine(permit: Permit) -> bool:
    """Look again: fields can be altered behind a frozen class's back."""
    return hmac.compare_digest(permit.seal, _seal(*_fields(permit)))


def _spend(permit: Permit, now: float) -> None:
    with _lock:
        if permit.nonce in _spent:
            raise PermitSpentError(call_id=permit.call_id)
        if len(_spent) > 10_000:  # those past their end are refused anyway
            for nonce in [nonce for nonce, end in _spent.items() if end <= now]:
                del _spent[nonce]
        _spent[permit.nonce] = permit.expires
