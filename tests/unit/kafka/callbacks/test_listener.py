"""Notices of the group are handled even if callbacks raise, and commits on the way."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaException, TopicPartition

from coopgroup.core.member.effects import (
    BeginWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import (
    CommitRequested,
    LossHandled,
    Offset,
    RevocationCompleted,
    WarmupFailed,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.kafka.callbacks import listener as notices_module
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.kafka.callbacks.pending_revocations import PutOff
from coopgroup.kafka.membership.ports import Notice
from coopgroup.telemetry import CommitFailed, ResourcesStarted, StopReason
from tests.unit.kafka.fakes import FakeCoordinator, record
from tests.unit.kafka.notice_stage import BOTH, ONE, ZERO, Stage, holding, revoked
from tests.unit.kafka.test_consumer_delivery_interruption import interrupt, strike

TWO = ResourceSet({"t": [2]})
LOSS = LoseResources(resources=BOTH, cause="lease expired")
PENDING = 1_500  # exceeds Python's recursion limit


def test_grant_calls_back_then_fetches_then_says_so() -> None:
    """The order matters: the callback may set the starting offset."""
    stage = Stage()
    stage.tell(GrantResources(resources=BOTH))
    assert stage.heard == [("assign", [0, 1])]
    assert stage.librdkafka.calls == [("assign", [(0, 0), (1, 0)])]
    assert stage.written == [ResourcesStarted(resources=BOTH)]
    assert stage.listener.owned == BOTH


def test_grant_begins_although_the_callback_raises() -> None:
    stage = Stage()

    def begin_one(_: object, partitions: list[TopicPartition]) -> None:
        stage.listener.begin_assigned([TopicPartition("t", partitions[1].partition, 77)])
        raise LookupError("no offset")

    stage.listener.callbacks = Callbacks(begin_one)
    with pytest.raises(LookupError):
        stage.tell(GrantResources(resources=BOTH))
    assert stage.librdkafka.calls == [("assign", [(1, 77)]), ("assign", [(0, 0)])]
    assert stage.written == [ResourcesStarted(resources=BOTH)]


def test_revocation_calls_back_commits_stops_and_answers() -> None:
    stage = holding()
    stage.tell(RevokeResources(resources=ONE))
    assert stage.heard == [("revoke", [1])]
    assert stage.driver.posted == [
        CommitRequested(commit_id=1, offsets=(Offset("t", 1, 11, 4),)),
        RevocationCompleted(resources=ONE),
    ]
    assert stage.librdkafka.calls == [("unassign", [(1, -1001)])]
    assert stage.stops() == [(ONE, StopReason.REVOKED)]
    assert (stage.listener.owned, stage.committed) == (ZERO, [(None, [(1, 11)])])


def test_partition_that_is_granted_and_revoked_at_once_waits_for_no_position() -> None:
    """Its offset is asked for, and never answered."""
    stage = Stage(coordinator=FakeCoordinator(is_silent=True))
    stage.tell(GrantResources(resources=ONE), RevokeResources(resources=ONE))
    assert stage.heard == [("assign", [1]), ("revoke", [1])]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert (stage.committed, stage.stops()) == ([], [(ONE, StopReason.REVOKED)])


def test_revocation_when_librdkafka_fails_is_completed() -> None:
    stage = holding()
    stage.driver.code = 22
    stage.librdkafka.unassign_failure = LookupError("gone")
    with pytest.raises(LookupError):
        stage.tell(RevokeResources(resources=BOTH))
    assert revoked(stage) == [RevocationCompleted(resources=BOTH)]
    assert stage.written == [CommitFailed(resources=BOTH, error="ILLEGAL_GENERATION")]


def test_revocation_when_the_callback_raises_is_completed_and_the_rest_waits() -> None:
    """The group must not wait forever; the next poll handles the next notice."""
    stage = holding()
    stage.listener.callbacks = Callbacks(on_revoke=stage.hearing("revoke", LookupError("no")))
    with pytest.raises(LookupError):
        stage.tell(RevokeResources(resources=ONE), GrantResources(resources=ONE))
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert (stage.listener.owned, stage.driver.inbox.waiting) == (ZERO, True)
    stage.listener.serve()
    assert (stage.listener.owned, stage.driver.inbox.waiting) == (BOTH, False)


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("has_on_lost", [True, False])
def test_loss_calls_on_lost_else_on_revoke_and_commits_nothing(
    has_on_lost: bool, raises: bool
) -> None:
    """Another member may own the partitions already. It is answered although a callback raises."""
    stage, error = holding(), LookupError("no") if raises else None
    lost = stage.hearing("lost", error) if has_on_lost else None
    stage.listener.callbacks = Callbacks(on_revoke=stage.hearing("revoke", error), on_lost=lost)
    with pytest.raises(LookupError) if raises else nullcontext():
        stage.tell(LOSS)
    assert stage.heard == [("lost" if has_on_lost else "revoke", [0, 1])]
    assert (stage.driver.posted, stage.listener.owned) == ([LossHandled()], EMPTY)
    assert stage.stops() == [(BOTH, StopReason.LOST)]
    assert stage.fetching.fetched == EMPTY


def test_on_warmup_when_it_raises_cancels_these_warmups_and_goes_on() -> None:
    stage = Stage()
    stage.listener.callbacks = Callbacks(on_warmup=stage.hearing("begin", OSError("disk\nfull")))
    stage.tell(BeginWarmups(resources=ONE), GrantResources(resources=ZERO))
    assert stage.driver.posted == [WarmupFailed(resources=ONE, error="OSError: disk full")]
    assert stage.listener.owned == ZERO


def test_loss_of_what_was_never_granted_calls_nobody_back() -> None:
    stage = Stage()
    stage.tell(GrantResources(resources=ZERO), LoseResources(resources=ZERO, cause="fenced"))
    assert (stage.heard, stage.written, stage.driver.posted) == ([], [], [LossHandled()])


def test_failure_is_raised_by_every_poll_after_the_queue_is_served() -> None:
    stage = holding()
    stage.driver.inbox.put(FailMember(code=81, message="group g: full"))
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="not authorised"))
    for _ in range(2):
        with pytest.raises(KafkaException) as caught:
            stage.listener.serve()
        error = caught.value.args[0]
        assert (error.name(), error.fatal(), error.str()) == (
            "GROUP_MAX_SIZE_REACHED",
            True,
            "group g: full",
        )
    assert stage.heard == [("lost", [0, 1])]
    stage.listener.give_up()
    stage.listener.serve()


def test_give_up_inside_a_revocation_takes_its_partitions_along() -> None:
    stage = holding()
    hear = stage.hearing("revoke")

    def close(consumer: object, partitions: list[TopicPartition]) -> None:
        hear(consumer, partitions)
        if partitions[0].partition == 1:
            stage.listener.give_up()

    stage.listener.callbacks = Callbacks(on_revoke=close)
    stage.tell(RevokeResources(resources=ONE))
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert stage.stops() == [(ZERO, StopReason.CLOSED), (ONE, StopReason.CLOSED)]
    assert stage.commits() == [(Offset("t", 0, 11, 4),), (Offset("t", 1, 11, 4),)]


def test_give_up_inside_two_revocations_stops_each_partition_once() -> None:
    stage = holding()
    hear = stage.hearing("revoke")

    def close(consumer: object, partitions: list[TopicPartition]) -> None:
        hear(consumer, partitions)
        stage.listener.give_up()

    stage.listener.callbacks = Callbacks(on_revoke=close)
    stage.tell(RevokeResources(resources=ONE))
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert (stage.listener.owned, revoked(stage)) == (EMPTY, [])


def test_revocation_that_comes_while_its_partitions_are_stopped_for_a_close_calls_nobody() -> None:
    """The application would write the same state twice, inside its own callback."""
    stage = holding()
    callback = stage.interrupted("revoke", RevokeResources(resources=ONE), leaves=True)
    stage.listener.callbacks = Callbacks(on_revoke=callback)
    stage.listener.give_up()
    assert stage.heard == [("revoke", [0, 1])]
    assert stage.stops() == [(BOTH, StopReason.CLOSED)]
    assert (stage.listener.owned, revoked(stage)) == (EMPTY, [])


def test_loss_that_is_obeyed_inside_a_last_stop_is_the_only_answer() -> None:
    """The partitions may have a new owner when the stop ends."""
    stage = holding()
    hear = stage.hearing("revoke")

    def wait(consumer: object, partitions: list[TopicPartition]) -> None:
        hear(consumer, partitions)
        stage.driver.inbox.put(LOSS)
        stage.listener.serve_last()  # as the callbacks of asyncio do

    stage.listener.callbacks = Callbacks(on_revoke=wait, on_lost=stage.hearing("lost"))
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.listener.give_up()
    assert stage.heard == [("revoke", [1]), ("lost", [0, 1])]
    assert (revoked(stage), stage.stops()) == ([LossHandled()], [(BOTH, StopReason.LOST)])


def test_loss_that_comes_while_an_overdue_stop_is_lost_is_told_once() -> None:
    """The callback closes the consumer, and the close serves the loss that waits."""
    stage = holding()
    callback = stage.interrupted("lost", LOSS, leaves=True)
    stage.listener.callbacks = Callbacks(on_lost=callback)
    stage.listener.lose_overdue(ONE)
    assert stage.heard == [("lost", [1]), ("lost", [0])]
    assert stage.listener.owned == EMPTY


def test_grant_that_comes_in_the_last_stops_of_a_close_calls_nobody() -> None:
    """The application would open a partition that it must close at once."""
    stage = holding()
    callback = stage.interrupted("revoke", GrantResources(resources=TWO), leaves=False)
    stage.listener.callbacks = Callbacks(stage.hearing("assign"), callback)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.listener.give_up()
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert stage.listener.owned == EMPTY


def test_revocation_of_a_grant_that_a_close_has_dropped_calls_nobody() -> None:
    """The application would stop a partition that it was never assigned."""
    stage = holding()
    callback = stage.interrupted(
        "revoke", GrantResources(resources=TWO), RevokeResources(resources=TWO), leaves=False
    )
    stage.listener.callbacks = Callbacks(stage.hearing("assign"), callback)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.listener.give_up()
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert revoked(stage) == [RevocationCompleted(resources=some) for some in (ONE, TWO)]


def test_serve_inside_a_callback_is_refused() -> None:
    stage = Stage()
    stage.listener.callbacks = Callbacks(lambda *_: stage.listener.serve())
    with pytest.raises(KafkaException, match="a callback cannot poll"):
        stage.tell(GrantResources(resources=BOTH))
    stage.listener.serve()


def test_serve_calls_when_thousands_raise_runs_them_all() -> None:
    stage = Stage()
    ran: list[int] = []

    def fail(number: int) -> None:
        ran.append(number)
        raise LookupError(str(number))

    for number in range(PENDING):
        stage.driver.inbox.call_soon(partial(fail, number))
    with pytest.raises(LookupError, match=r"^0$"):
        stage.listener.serve_calls()
    assert (ran, stage.driver.inbox.waiting) == (list(range(PENDING)), False)


def test_serve_calls_when_interrupted_says_so_after_the_rest_ran() -> None:
    for left in ([LookupError(), KeyboardInterrupt()], [KeyboardInterrupt(), LookupError()]):
        stage = Stage()

        def fail(left: list[BaseException] = left) -> None:
            raise left.pop(0)

        for _ in range(2):
            stage.driver.inbox.call_soon(fail)
        with pytest.raises(KeyboardInterrupt):
            stage.listener.serve_calls()
        assert left == []


def test_give_up_when_thousands_of_notices_wait_hears_them_all() -> None:
    stage = Stage()
    stage.listener.callbacks = Callbacks(on_revoke=stage.hearing("revoke", LookupError("no")))
    stage.listener.owned = ResourceSet({"t": range(PENDING)})
    for number in range(PENDING):
        stage.driver.inbox.put(RevokeResources(resources=ResourceSet({"t": [number]})))
    with pytest.raises(LookupError):
        stage.listener.give_up()
    assert stage.heard == [("revoke", [number]) for number in range(PENDING)]
    assert len(revoked(stage)) == PENDING


@pytest.mark.parametrize(
    ("notice", "owned"),
    [
        (GrantResources(resources=TWO), BOTH | TWO),
        (RevokeResources(resources=ONE), ZERO),
        (LoseResources(resources=BOTH, cause="fenced"), EMPTY),
    ],
)
def test_notice_is_answered_once_when_a_signal_strikes_before_its_callback(
    notice: Notice, owned: ResourceSet
) -> None:
    """The group waits for the answer. An interrupted application may go on, as in a notebook."""
    anything: Any = None
    for place in range(1, 200):
        stage = holding()
        stage.driver.inbox.put(notice)

        def serve(_: object, stage: Stage = stage) -> list[Any]:
            stage.listener.serve()
            return []

        strike(anything, serve, place, interrupt, {"application_inbox.py", "listener.py"})
        if stage.heard:  # the exception came after the callback, or not at all
            break
        stage.listener.serve()
        assert (stage.listener.owned, stage.fetching.fetched) == (owned, owned)
        assert len(stage.heard) <= len(stage.written) == 1
        assert len(revoked(stage)) == (not isinstance(notice, GrantResources))
    assert place > 3


@pytest.mark.parametrize("is_unsubscribed", [False, True])
def test_on_lost_that_leaves_the_group_commits_nothing(is_unsubscribed: bool) -> None:
    stage = holding()
    stage.listener.callbacks = Callbacks(on_lost=lambda *_: stage.listener.give_up())
    if is_unsubscribed:
        stage.listener.callbacks = Callbacks(on_revoke=lambda *_: stage.listener.give_up())
    stage.tell(LoseResources(resources=BOTH, cause="fenced"))
    assert (stage.commits(), stage.stops()) == ([], [(BOTH, StopReason.LOST)])
    assert (revoked(stage), stage.listener.owned) == ([], EMPTY)


def test_accept_revoked_in_the_callback_changes_nothing() -> None:
    """Older applications call `incremental_unassign`."""
    stage = holding()
    stage.listener.callbacks = Callbacks(
        on_revoke=lambda _, partitions: stage.listener.accept_revoked(partitions)
    )
    stage.tell(RevokeResources(resources=ONE))
    assert stage.librdkafka.calls == [("unassign", [(1, -1001)])]
    with pytest.raises(KafkaException, match="the group revokes"):
        stage.listener.accept_revoked([TopicPartition("t", 0)])


@pytest.mark.parametrize("told", [RevokeResources(resources=ONE), None])
def test_callback_that_leaves_the_group_ends_without_a_word_to_it(
    told: RevokeResources | None,
) -> None:
    """`unsubscribe` in `on_revoke` or `on_lost` ends the member, so the group needs no answer."""
    stage = holding()

    def leave(_: object, partitions: list[TopicPartition]) -> None:
        if partitions[0].partition == 1:
            stage.listener.give_up()

    stage.listener.callbacks = Callbacks(on_revoke=leave)
    stage.tell(told or LoseResources(resources=ONE, cause="lease expired"))
    assert (revoked(stage), stage.listener.owned) == ([], EMPTY)
    stage.hold(BOTH)  # subscribed again
    stage.listener.callbacks = Callbacks()
    stage.tell(RevokeResources(resources=BOTH))
    assert revoked(stage) == [RevocationCompleted(resources=BOTH)]


@pytest.mark.parametrize(
    ("code", "queued", "is_left"), [(0, False, True), (None, False, False), (None, True, False)]
)
def test_leaving_waits_for_queued_commits_within_the_time_of_the_last_one(
    code: int | None, queued: bool, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the leave they would be refused; all commits of a close share one limit."""
    monkeypatch.setattr(notices_module, "_CLOSE_COMMIT_S", 0.2)
    stage = holding()
    stage.driver.code = code  # None: the coordinator is silent
    if queued:
        stage.driver.inbox.put(RevokeResources(resources=ONE))
    leaver = threading.Thread(target=stage.listener.give_up, daemon=True)
    leaver.start()
    leaver.join(5.0)
    assert not leaver.is_alive()
    assert stage.listener.owned == EMPTY
    waited_s = stage.driver.waited_s[-1]
    assert (waited_s > 0, waited_s <= 0.2) == (is_left, True)


# --- Arguments of `subscribe` --------------------------------------------------------------------


NAMES = ("on_assign", "on_revoke", "on_lost", "on_warmup", "on_warmup_cancelled")


def hear(*_: object) -> None:
    pass


@pytest.mark.parametrize("name", NAMES)
def test_callback_that_cannot_be_called_is_refused(name: str) -> None:
    wrong: Any = {**dict.fromkeys(NAMES), name: 5}
    with pytest.raises(TypeError, match=f"^{name} expects a callable$"):
        Callbacks(**wrong)


def test_arguments_of_warm_ups_are_checked() -> None:
    assert Callbacks(hear).warm_set(None) is None
    with pytest.raises(TypeError, match=r"^on_warmup_cancelled expects on_warmup beside it$"):
        Callbacks(on_warmup_cancelled=hear)
    with pytest.raises(TypeError, match=r"^requires list of TopicPartition$"):
        Callbacks(on_warmup=hear).warm_set(["t"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"^warm expects on_warmup beside it$"):
        Callbacks(hear).warm_set([])


# --- slow stops: postponed, finished later, lost in between or never finished ---------------------


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
    assert stage.commits() == [(Offset("t", 0, 11, 4),), (Offset("t", 1, 11, 4),)]
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
    assert stage.stops() == [(ZERO, StopReason.LOST), (ONE, StopReason.LOST)]
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


def test_give_up_that_a_signal_interrupts_owns_nothing_that_was_put_off() -> None:
    stage = holding()
    stopping_later(stage, ONE, [])
    stage.tell(RevokeResources(resources=ONE))
    commit = Mock(side_effect=KeyboardInterrupt)
    stage.driver.code, stage.driver.on_commit = None, commit
    with pytest.raises(KeyboardInterrupt):
        stage.listener.give_up()
    assert stage.listener.owned == EMPTY
    assert stage.stops() == [(ZERO, StopReason.CLOSED), (ONE, StopReason.CLOSED)]


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
    assert [one.duration_ms for one in stage.written] == [60_000]
    assert (stage.listener.owned, stage.listener.stopping) == (ZERO, EMPTY)
    assert (stage.driver.polled_at_s, stage.driver.reminders[-1]) == (160.0, math.inf)
