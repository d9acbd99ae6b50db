"""Notices that wait for the application, and the events that make them void."""

from __future__ import annotations

import threading
from typing import Any

import attrs
import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup import CooperativeConsumer
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox, GroupErrors
from coopgroup.telemetry import RequestRefused, RequestRetried, StateChanged
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
    while (notice := inbox.first()) is not None:
        taken.append(notice)
        inbox.remove(notice)
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


@pytest.mark.parametrize("name", ["first", "take_call", "take_stall", "wake", "clear"])
def test_inbox_when_a_signal_strikes_as_it_is_locked_is_not_locked_afterwards(name: str) -> None:
    """The group's thread would wait for the lock forever, and send no heartbeat."""
    for place in range(1, 20):
        inbox: Any = ApplicationInbox()
        strike(inbox, lambda inbox: getattr(inbox, name)() or [], place, interrupt, THREADING)
        other = threading.Thread(target=inbox.wake, daemon=True)
        other.start()
        other.join(5.0)
        assert not other.is_alive(), f"at place {place}"


# --- errors of the group's own connections reach `error_cb` ---------------------------------------


def refused(error: ErrorCode) -> RequestRefused:
    return RequestRefused(request="Heartbeat", error=error.name, action="try again")


def served(inbox: ApplicationInbox) -> None:
    while (call := inbox.take_call()) is not None:
        call()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.NO_ANSWER, KafkaError._TRANSPORT),
        (ErrorCode.UNAUTHENTICATED, KafkaError._AUTHENTICATION),
        (ErrorCode.UNSUPPORTED_BY_BROKER, KafkaError._UNSUPPORTED_FEATURE),
        (ErrorCode.REBALANCE_IN_PROGRESS, None),
        (ErrorCode.NOT_COORDINATOR, None),
    ],
)
def test_errors_of_connections_are_told_and_steps_of_a_rebalance_are_not(
    error: ErrorCode, code: int | None
) -> None:
    told: list[KafkaError] = []
    inbox = ApplicationInbox()
    errors = GroupErrors(told.append, inbox)
    errors.hear(StateChanged(before="a", after="b", cause="c"))
    errors.hear(refused(error))
    assert told == []  # not called on the group's thread
    served(inbox)
    assert [one.code() for one in told] == ([] if code is None else [code])
    for one in told:
        assert one.str() == f"GroupCoordinator: Heartbeat failed: {error.name} (try again)"
        assert not one.fatal()


def test_the_same_error_is_told_again_after_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("coopgroup.kafka.callbacks.application_inbox.now_s", lambda: now)
    told: list[KafkaError] = []
    inbox = ApplicationInbox()
    errors = GroupErrors(told.append, inbox)
    for now in (100.0, 110.0, 129.0, 131.0):  # noqa: B007 -- read by the clock above
        errors.hear(refused(ErrorCode.NO_ANSWER))
    errors.hear(refused(ErrorCode.UNAUTHENTICATED))
    served(inbox)
    codes = [one.name() for one in told]
    assert codes == ["_TRANSPORT", "_TRANSPORT", "_AUTHENTICATION"]


def test_request_that_is_retried_for_long_is_told_with_its_usual_cause() -> None:
    told: list[KafkaError] = []
    inbox = ApplicationInbox()
    errors = GroupErrors(told.append, inbox)
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    failed = RequestRetried(
        request="FindCoordinator",
        error="COORDINATOR_NOT_AVAILABLE",
        code=code,
        for_ms=10_400,
        cause="usually no replicas",
    )
    for record in (failed, failed, attrs.evolve(failed, is_over=True)):
        errors.hear(record)
    served(inbox)
    said = (
        "GroupCoordinator: FindCoordinator failed: "
        "COORDINATOR_NOT_AVAILABLE for 10 s: usually no replicas"
    )
    assert [(one.code(), one.str(), one.fatal()) for one in told] == [(code, said, False)]


def test_refusal_of_the_member_is_told_before_poll_raises_it() -> None:
    told: list[KafkaError] = []
    nobody = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    with CooperativeConsumer({**nobody, "error_cb": told.append}) as consumer:
        code = KafkaError.GROUP_AUTHORIZATION_FAILED
        consumer._driver.inbox.put(FailMember(code=code, message="not for you"))  # noqa: SLF001
        with pytest.raises(KafkaException, match="not for you"):
            consumer.poll(0.1)
        [error] = [one for one in told if one.code() == code]
        assert error.fatal()
