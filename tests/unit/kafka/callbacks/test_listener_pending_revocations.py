"""Slow stops: postponed, finished later, lost in between or never finished."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, TopicPartition

from coopgroup.core.member.effects import GrantResources, LoseResources, RevokeResources
from coopgroup.core.member.events import LossHandled, Offset, RevocationCompleted
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.callbacks import listener as notices_module
from coopgroup.kafka.callbacks.listener import Callbacks, PutOff
from coopgroup.kafka.membership.ports import Notice
from coopgroup.telemetry import StopReason
from tests.unit.kafka.fakes import record
from tests.unit.kafka.notice_stage import BOTH, ONE, ZERO, Stage, holding, revoked


def stopping_later(
    stage: Stage, resources: ResourceSet, answers: list[bool], error: Exception | None = None
) -> None:
    """Let `on_revoke` postpone some of its partitions, and then raise."""
    hear = stage.hearing("revoke", error)

    def revoke(consumer: object, partitions: list[TopicPartition]) -> None:
        late = [one for one in partitions if (one.topic, one.partition) in resources]
        answers.append(stage.listener.revoke_later(late) is not None)
        hear(consumer, partitions)

    stage.listener.callbacks = Callbacks(stage.hearing("assign"), revoke, stage.hearing("lost"))


def test_revocation_that_is_put_off_in_part_completes_in_parts() -> None:
    stage, answers = Stage(), list[bool]()
    stage.hold(BOTH)
    stopping_later(stage, ONE, answers)
    stage.tell(RevokeResources(resources=BOTH))
    assert answers == [True]
    assert revoked(stage) == [RevocationCompleted(resources=ZERO)]
    assert (stage.listener.owned, stage.listener.stopping) == (ONE, ONE)
    assert ("pause", [(1, -1001)]) in stage.librdkafka.calls
    stage.librdkafka.feed([record(1, 11)])
    stage.listener.finish_revoke([TopicPartition("t", 1), TopicPartition("t", 5)])
    assert len(revoked(stage)) == 1  # not before the application polls
    stage.listener.serve()
    assert revoked(stage)[1:] == [RevocationCompleted(resources=ONE)]
    assert (stage.listener.owned, stage.listener.stopping) == (EMPTY, EMPTY)
    assert stage.stops() == [(ZERO, StopReason.REVOKED), (ONE, StopReason.REVOKED)]
    assert stage.commits() == [(Offset("t", 0, 11),), (Offset("t", 1, 11),)]
    assert stage.heard == [("revoke", [0, 1])]


def test_what_is_lost_while_it_stops_is_lost() -> None:
    stage = holding()
    stopping_later(stage, ONE, [])
    stage.tell(RevokeResources(resources=ONE))
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="lease expired"))
    stage.listener.finish_revoke([TopicPartition("t", 1)])
    stage.listener.serve()
    assert stage.heard == [("revoke", [1]), ("lost", [0, 1])]
    assert revoked(stage) == [LossHandled()]
    assert stage.stops() == [(BOTH, StopReason.LOST)]
    stage.tell(GrantResources(resources=ONE))
    assert (stage.listener.owned, stage.listener.stopping) == (ONE, EMPTY)


def test_give_up_while_something_stops_does_not_wait_for_it() -> None:
    stage, answers = Stage(), list[bool]()
    stage.hold(BOTH)
    stopping_later(stage, BOTH, answers)
    stage.tell(RevokeResources(resources=ONE))
    stage.listener.give_up()
    assert answers == [True, False]
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert stage.stops() == [(ZERO, StopReason.CLOSED), (ONE, StopReason.CLOSED)]
    assert (stage.listener.owned, stage.listener.stopping) == (EMPTY, EMPTY)
    stage.hold(BOTH)  # subscribed again
    stage.tell(RevokeResources(resources=ONE))
    assert answers[2:] == [True]


def test_revoke_later_elsewhere_is_refused() -> None:
    stage = holding()
    heard: list[object] = []

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        with pytest.raises(KafkaException, match="the group revokes"):
            stage.listener.revoke_later([TopicPartition("t", 0)])
        with pytest.raises(TypeError, match="requires list of TopicPartition"):
            stage.listener.revoke_later(None)  # type: ignore[arg-type]
        heard.extend(partitions)

    stage.listener.callbacks = Callbacks(on_revoke=revoke)
    with pytest.raises(KafkaException, match="the group revokes"):
        stage.listener.revoke_later([TopicPartition("t", 0)])
    with pytest.raises(TypeError, match="requires list of TopicPartition"):
        stage.listener.finish_revoke([1])  # type: ignore[list-item]
    stage.tell(RevokeResources(resources=ONE))
    assert heard == [TopicPartition("t", 1)]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]


def test_finish_of_an_earlier_stop_does_not_end_a_later_one() -> None:
    """Lost, granted and postponed again: the thread of the first stop reports its finish."""
    stage, tokens = Stage(), list[PutOff]()

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        for one in partitions:  # one token each
            token = stage.listener.revoke_later([one])
            assert token is not None
            tokens.append(token)

    stage.listener.callbacks = Callbacks(on_revoke=revoke, on_lost=stage.hearing("lost"))
    for notice in (
        RevokeResources(resources=BOTH),
        LoseResources(resources=BOTH, cause="lease expired"),
        RevokeResources(resources=BOTH),
    ):
        stage.hold(BOTH - stage.listener.owned)
        stage.tell(notice)
    assert (len(tokens), stage.listener.stopping) == (4, BOTH)
    for stale in tokens[:2]:
        stage.listener.finish_revoke(stale)
    stage.listener.serve()
    assert (revoked(stage), stage.listener.stopping) == ([LossHandled()], BOTH)
    stage.listener.finish_revoke(tokens[3])
    stage.listener.finish_revoke(tokens[3])
    stage.listener.serve()
    assert revoked(stage)[1:] == [RevocationCompleted(resources=ONE)]
    assert stage.listener.stopping == ZERO


@pytest.fixture
def poll_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the application's clock, in seconds, and serve what the group tells."""

    def poll(stage: Stage, now: float, *notices: Notice) -> None:
        monkeypatch.setattr(notices_module, "now_s", lambda: now)
        stage.driver.inbox.wake()
        stage.tell(*notices)

    return poll


def test_stop_that_is_never_finished_is_lost_after_max_poll_interval(
    poll_at: Callable[..., None],
) -> None:
    stage = holding()
    stopping_later(stage, ONE, [])
    poll_at(stage, 100.0, RevokeResources(resources=ONE))
    assert stage.driver.reminders[-1] == 130.0
    for now in (129.0, 130.0, 131.0, 159.9):
        poll_at(stage, now)
        assert [event for event, _ in stage.driver.warned] == ["stop_takes_long"] * (now >= 130)
    assert (revoked(stage), stage.listener.stopping) == ([], ONE)
    assert stage.driver.reminders[-1] == 160.0
    poll_at(stage, 160.0)
    assert stage.driver.warned[1:] == [("stop_never_finished", {"resources": {"t": [1]}})]
    assert stage.heard == [("revoke", [1]), ("lost", [1])]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert (stage.stops(), stage.commits()) == ([(ONE, StopReason.LOST)], [])
    assert (stage.listener.owned, stage.listener.stopping) == (ZERO, EMPTY)
    assert (stage.driver.polled_at_s, stage.driver.reminders[-1]) == (160.0, math.inf)
