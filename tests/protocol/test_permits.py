"""A permit cannot be made, altered, kept or used again by anyone but the gate."""

from __future__ import annotations

import copy
import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from proctor.protocol.events import ActorKind
from proctor.protocol.ids import CallId
from proctor.protocol.permits import (
    Permit,
    PermitExpiredError,
    PermitForgedError,
    PermitMismatchError,
    PermitSpentError,
    redeem_permit,
)
from proctor.testing.permits import permit_for_tests


def test_a_permit_built_without_the_gate_is_refused() -> None:
    """The constructor wants a seal that only minting can compute."""
    with pytest.raises(PermitForgedError, match="wrong seal"):
        Permit(CallId("c"), "t", ActorKind.AGENT, "a", "h", 1e12, False, "n", seal="0" * 64)


@pytest.mark.parametrize("change", [{"tool": "x"}, {"expires": 1e12}, {"single_use": False}, {"nonce": "1"}])
def test_an_altered_copy_is_refused(change: dict[str, object]) -> None:
    """No field can be changed, not even through dataclasses.replace."""
    with pytest.raises(PermitForgedError):
        dataclasses.replace(permit_for_tests(), **change)  # type: ignore[arg-type]


def test_a_permit_altered_in_place_is_refused() -> None:
    """Writing past the frozen class is seen when the permit is used."""
    permit = permit_for_tests()
    object.__setattr__(permit, "expires", 1e12)
    with pytest.raises(PermitForgedError):
        redeem_permit(permit, now=time.monotonic())


@pytest.mark.parametrize("thing", [None, "permit", object(), {"call_id": "c"}])
def test_something_else_than_a_permit_is_refused(thing: object) -> None:
    """Only the type itself opens the door."""
    with pytest.raises(PermitForgedError):
        redeem_permit(thing, now=time.monotonic())


def test_an_expired_permit_is_refused() -> None:
    """After its end a permit opens nothing."""
    permit = permit_for_tests(seconds=5)
    with pytest.raises(PermitExpiredError):
        redeem_permit(permit, now=time.monotonic() + 6)


def test_a_copy_shares_the_single_use() -> None:
    """Spending the copy spends the original."""
    permit = permit_for_tests()
    redeem_permit(copy.copy(permit), now=time.monotonic())
    with pytest.raises(PermitSpentError):
        redeem_permit(permit, now=time.monotonic())


def test_a_permit_for_several_uses_works_twice() -> None:
    """A permit for several uses may be used until its end."""
    permit = permit_for_tests(single_use=False)
    assert redeem_permit(permit, now=time.monotonic()) is redeem_permit(permit, now=time.monotonic())


def test_the_wrong_tool_or_content_does_not_spend_the_permit() -> None:
    """A mismatch is refused and leaves the permit for its own call."""
    permit = permit_for_tests("read_file")
    with pytest.raises(PermitMismatchError, match="tool 'read_file'"):
        redeem_permit(permit, now=time.monotonic(), tool="write_file")
    with pytest.raises(PermitMismatchError, match="content"):
        redeem_permit(permit, now=time.monotonic(), content_hash="other")
    redeem_permit(permit, now=time.monotonic(), tool="read_file", content_hash=permit.content_hash)


def test_one_of_fifty_threads_gets_through() -> None:
    """A single use stays single under concurrency."""
    permit = permit_for_tests()

    def attempt(_: int) -> bool:
        try:
            redeem_permit(permit, now=time.monotonic())
        except PermitSpentError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(attempt, range(50))) == 1
