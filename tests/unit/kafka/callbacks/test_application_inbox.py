"""Notices that wait for the application, and the events that make them void."""

import threading
from typing import Any

import pytest

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from tests.unit.kafka.test_consumer_delivery_interruption import interrupt, strike

THREADING = {"threading.py"}
SOME = ResourceSet({"orders": [0, 1]})
GRANT = GrantResources(resources=SOME)
REVOCATION = RevokeResources(resources=SOME)
LOSS = LoseResources(resources=SOME, cause="lease expired")
BEGIN, CANCEL = BeginWarmups(resources=SOME), CancelWarmups(resources=SOME)
FAILURE = FailMember(code=82, message="fenced")


def _all(inbox: ApplicationInbox) -> list[object]:
    taken: list[object] = []
    while (notice := inbox.take()) is not None:
        taken.append(notice)
    return taken


@pytest.mark.parametrize(
    ("put", "taken"),
    [
        pytest.param([GRANT, REVOCATION], [GRANT, REVOCATION], id="in their order"),
        pytest.param([GRANT, FAILURE, REVOCATION, LOSS, GRANT], [FAILURE, LOSS, GRANT], id="void"),
        # The member counts warm-ups as begun, and will not tell them again.
        pytest.param([GRANT, BEGIN, CANCEL, LOSS], [BEGIN, CANCEL, LOSS], id="warm-ups are not"),
    ],
)
def test_earlier_notices_are_void_when_everything_is_lost(
    put: list[Any], taken: list[object]
) -> None:
    inbox = ApplicationInbox()
    for notice in put:
        inbox.put(notice)
    assert inbox.waiting
    assert _all(inbox) == taken
    assert (inbox.take_call(), inbox.waiting) == (None, False)


def test_only_errors_and_calls_stay_when_the_group_is_left() -> None:
    """The application must not begin an old grant when it subscribes again."""
    inbox = ApplicationInbox()
    called: list[str] = []
    inbox.call_soon(lambda: called.append("on_commit"))
    for notice in (GRANT, FAILURE, BEGIN, LOSS):
        inbox.put(notice)
    inbox.clear()
    assert _all(inbox) == [FAILURE]
    call = inbox.take_call()
    assert call is not None
    call()
    assert called == ["on_commit"]


@pytest.mark.parametrize("name", ["take", "take_call", "take_stall", "wake", "clear"])
def test_inbox_when_a_signal_strikes_as_it_is_locked_is_not_locked_afterwards(name: str) -> None:
    """The group's thread would wait for the lock forever, and send no heartbeat."""
    for place in range(1, 20):
        inbox: Any = ApplicationInbox()
        strike(inbox, lambda inbox: getattr(inbox, name)() or [], place, interrupt, THREADING)
        other = threading.Thread(target=inbox.wake, daemon=True)
        other.start()
        other.join(5.0)
        assert not other.is_alive(), f"at place {place}"
