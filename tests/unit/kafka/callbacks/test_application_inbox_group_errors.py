"""Errors of the group's own connections reach `error_cb`."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup import CooperativeConsumer
from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import FailMember
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox, GroupErrors
from coopgroup.telemetry import RequestRefused, StateChanged


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
