"""What the group says, carried out whatever callbacks raise; commits on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.kafka import notices as notices_module
from coopgroup.kafka.committing import Committing
from coopgroup.kafka.fetching import Fetching
from coopgroup.kafka.notices import Callbacks, GroupNotices
from coopgroup.kafka.offsets import OffsetStore
from coopgroup.kafka.slow_stops import PutOff
from coopgroup.member.effects import FailMember, GrantResources, LoseResources, RevokeResources
from coopgroup.member.events import CommitRequested, LossHandled, Offset, RevocationCompleted
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.telemetry import CommitFailed, ResourcesStarted, ResourcesStopped, StopReason
from tests.unit.kafka.fakes import FakeDriver, FakeLibrdkafka, record

BOTH = ResourceSet({"t": [0, 1]})
ONE = ResourceSet({"t": [1]})
ZERO = ResourceSet({"t": [0]})
CONSUMER = object()
PENDING = 1_500  # more than Python's calls may nest


@define
class Stage:
    """The parts of a consumer that serve notices, and what they did."""

    librdkafka: FakeLibrdkafka = field(factory=FakeLibrdkafka)
    driver: FakeDriver = field(factory=FakeDriver)
    written: list[Any] = field(factory=list)
    heard: list[tuple[str, list[int]]] = field(factory=list)
    committed: list[tuple[Any, list[tuple[int, int]]]] = field(factory=list)
    fetching: Fetching = field(init=False)
    committing: Committing = field(init=False)
    notices: GroupNotices = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Put them together, with callbacks that take notes."""
        driver: Any = self.driver
        self.fetching = Fetching(self.librdkafka)
        self.committing = Committing(
            driver=driver,
            store=OffsetStore(self.fetching, automatic=True),
            on_commit=self._on_commit,
            interval_ms=1_000,
            write=self.written.append,
        )
        self.notices = GroupNotices(
            consumer=CONSUMER,
            driver=driver,
            fetching=self.fetching,
            committing=self.committing,
            write=self.written.append,
        )
        self.notices.callbacks = Callbacks(
            self.hearing("assign"), self.hearing("revoke"), self.hearing("lost")
        )

    def hearing(self, name: str, error: Exception | None = None) -> Callable[..., None]:
        """A callback that takes a note, and raises if told."""

        def callback(consumer: object, partitions: list[TopicPartition]) -> None:
            assert consumer is CONSUMER
            self.heard.append((name, [one.partition for one in partitions]))
            if error is not None:
                raise error

        return callback

    def hold(self, resources: ResourceSet) -> None:
        """Have partitions granted, and one record of each handed out."""
        self.driver.inbox.put(GrantResources(resources=resources))
        self.notices.serve()
        self.librdkafka.feed(record(partition, 10) for _, partition in resources)
        self.fetching.fetch(10, 0)
        self.fetching.hand_out.take(10)
        for notes in (self.librdkafka.calls, self.written, self.heard):
            notes.clear()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        places = [(one.partition, one.offset) for one in partitions]
        self.committed.append((None if error is None else error.name(), places))


def revoked(stage: Stage) -> list[Any]:
    """What was posted, commits left out."""
    return [one for one in stage.driver.posted if not isinstance(one, CommitRequested)]


def test_grant_calls_back_then_fetches_then_says_so() -> None:
    """In this order: the callback may set where to begin."""
    stage = Stage()
    stage.driver.inbox.put(GrantResources(resources=BOTH))
    stage.notices.serve()
    assert stage.heard == [("assign", [0, 1])]
    assert stage.librdkafka.calls == [("assign", [(0, -1001), (1, -1001)])]
    assert stage.written == [ResourcesStarted(resources=BOTH)]
    assert stage.notices.held == BOTH


def test_grant_when_the_callback_raises_begins_all_the_same() -> None:
    """What it began by itself stays, and the exception comes out."""
    stage = Stage()

    def begin_one(_: object, partitions: list[TopicPartition]) -> None:
        stage.notices.begin_assigned([TopicPartition("t", partitions[1].partition, 77)])
        raise LookupError("no offset")

    stage.notices.callbacks = Callbacks(begin_one)
    stage.driver.inbox.put(GrantResources(resources=BOTH))
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert stage.librdkafka.calls == [("assign", [(1, 77)]), ("assign", [(0, -1001)])]
    assert stage.written == [ResourcesStarted(resources=BOTH)]


def test_revocation_calls_back_commits_stops_and_answers() -> None:
    """Only the partitions that go."""
    stage = Stage()
    stage.hold(BOTH)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert stage.heard == [("revoke", [1])]
    assert stage.driver.posted == [
        CommitRequested(commit_id=1, offsets=(Offset("t", 1, 11),)),
        RevocationCompleted(resources=ONE),
    ]
    assert stage.librdkafka.calls == [("unassign", [(1, -1001)])]
    assert [(one.resources, one.reason) for one in stage.written] == [(ONE, StopReason.REVOKED)]
    assert (stage.notices.held, stage.committed) == (ZERO, [(None, [(1, 11)])])


def test_revocation_when_the_callback_raises_is_completed_and_the_rest_waits() -> None:
    """The group must not wait for ever; the next notice is for the next poll."""
    stage = Stage()
    stage.hold(BOTH)
    stage.notices.callbacks = Callbacks(on_revoke=stage.hearing("revoke", LookupError("no")))
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.driver.inbox.put(GrantResources(resources=ONE))
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert (stage.notices.held, stage.driver.inbox.waiting) == (ZERO, True)
    stage.notices.serve()
    assert (stage.notices.held, stage.driver.inbox.waiting) == (BOTH, False)


def test_revocation_when_librdkafka_fails_is_completed() -> None:
    """Not even then may the answer be missing."""
    stage = Stage()
    stage.hold(BOTH)
    stage.driver.code = 22
    stage.librdkafka.unassign_failure = LookupError("gone")
    stage.driver.inbox.put(RevokeResources(resources=BOTH))
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert revoked(stage) == [RevocationCompleted(resources=BOTH)]
    assert stage.written == [CommitFailed(resources=BOTH, error="ILLEGAL_GENERATION")]


@pytest.mark.parametrize("has_on_lost", [True, False])
def test_loss_calls_on_lost_else_on_revoke_and_commits_nothing(has_on_lost: bool) -> None:
    """Somebody else may have it already."""
    stage = Stage()
    stage.hold(BOTH)
    if not has_on_lost:
        stage.notices.callbacks = Callbacks(on_revoke=stage.hearing("revoke"))
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="lease expired"))
    stage.notices.serve()
    assert stage.heard == [("lost" if has_on_lost else "revoke", [0, 1])]
    assert stage.driver.posted == [LossHandled()]
    assert [(one.resources, one.reason) for one in stage.written] == [(BOTH, StopReason.LOST)]
    assert stage.fetching.fetched == ResourceSet()


def test_loss_when_the_callback_raises_is_answered() -> None:
    """Else the member would never join again."""
    stage = Stage()
    stage.hold(BOTH)
    stage.notices.callbacks = Callbacks(on_lost=stage.hearing("lost", LookupError("no")))
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="lease expired"))
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert (stage.driver.posted, stage.notices.held) == ([LossHandled()], ResourceSet())


def test_loss_of_what_was_never_granted_calls_nobody_back() -> None:
    """The application does not know of it; the group still needs the answer."""
    stage = Stage()
    stage.driver.inbox.put(GrantResources(resources=ZERO))
    stage.driver.inbox.put(LoseResources(resources=ZERO, cause="fenced"))
    stage.notices.serve()
    assert (stage.heard, stage.written, stage.driver.posted) == ([], [], [LossHandled()])


def test_failure_is_raised_by_every_poll_after_the_queue_is_served() -> None:
    """Until the group is left."""
    stage = Stage()
    stage.hold(BOTH)
    stage.driver.inbox.put(FailMember(code=30, message="group g: not authorised"))
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="not authorised"))
    for _ in range(2):
        with pytest.raises(KafkaException) as caught:
            stage.notices.serve()
        error = caught.value.args[0]
        assert (error.name(), error.fatal(), error.str()) == (
            "GROUP_AUTHORIZATION_FAILED",
            True,
            "group g: not authorised",
        )
    assert stage.heard == [("lost", [0, 1])]
    stage.notices.give_up()
    stage.notices.serve()


def test_give_up_when_callbacks_raise_stops_everything() -> None:
    """A revocation that waits is carried out, a grant is not begun any more."""
    stage = Stage()
    stage.hold(BOTH)
    stage.notices.callbacks = Callbacks(on_revoke=stage.hearing("revoke", LookupError("no")))
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.driver.inbox.put(GrantResources(resources=ResourceSet({"t": [5]})))
    with pytest.raises(LookupError):
        stage.notices.give_up()
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert [(one.resources, one.reason) for one in stage.written] == [
        (ONE, StopReason.REVOKED),
        (ZERO, StopReason.CLOSED),
    ]


def test_give_up_inside_a_revocation_takes_its_partitions_along() -> None:
    """`close` in `on_revoke`: nothing is stopped or committed twice."""
    stage = Stage()
    stage.hold(BOTH)

    def close(_: object, partitions: list[TopicPartition]) -> None:
        stage.heard.append(("revoke", [one.partition for one in partitions]))
        if partitions[0].partition == 1:
            stage.notices.give_up()

    stage.notices.callbacks = Callbacks(on_revoke=close)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    stopped = [one for one in stage.written if isinstance(one, ResourcesStopped)]
    assert [(one.resources, one.reason) for one in stopped] == [
        (ZERO, StopReason.CLOSED),
        (ONE, StopReason.CLOSED),
    ]
    commits = [one for one in stage.driver.posted if isinstance(one, CommitRequested)]
    assert [one.offsets for one in commits] == [(Offset("t", 0, 11),), (Offset("t", 1, 11),)]


def test_serve_inside_a_callback_is_refused() -> None:
    """A callback that polls."""
    stage = Stage()
    stage.notices.callbacks = Callbacks(lambda *_: stage.notices.serve())
    stage.driver.inbox.put(GrantResources(resources=BOTH))
    with pytest.raises(KafkaException, match="a callback cannot poll"):
        stage.notices.serve()
    stage.notices.serve()


def test_serve_calls_when_one_raises_runs_the_others() -> None:
    """At close, every `on_commit` is called."""
    stage = Stage()
    ran: list[int] = []

    def fail() -> None:
        ran.append(1)
        raise LookupError("no")

    stage.driver.inbox.call_soon(fail)
    stage.driver.inbox.call_soon(lambda: ran.append(2))
    with pytest.raises(LookupError):
        stage.notices.serve_calls()
    assert (ran, stage.driver.inbox.waiting) == ([1, 2], False)


def test_serve_calls_when_thousands_wait_runs_them_all() -> None:
    """Each a commit of an application that did not poll for a while; the first error comes out."""
    stage = Stage()
    ran: list[int] = []

    def fail(number: int) -> None:
        ran.append(number)
        raise LookupError(str(number))

    for number in range(PENDING):
        stage.driver.inbox.call_soon(partial(fail, number))
    with pytest.raises(LookupError, match=r"^0$"):
        stage.notices.serve_calls()
    assert (ran, stage.driver.inbox.waiting) == (list(range(PENDING)), False)


def test_serve_calls_when_interrupted_says_so_after_the_rest_ran() -> None:
    """An error of a callback does not hide Ctrl-C, in whichever order they come."""
    for errors in ([LookupError(), KeyboardInterrupt()], [KeyboardInterrupt(), LookupError()]):
        stage = Stage()
        left = list(errors)

        def fail(left: list[BaseException] = left) -> None:
            raise left.pop(0)

        stage.driver.inbox.call_soon(fail)
        stage.driver.inbox.call_soon(fail)
        with pytest.raises(KeyboardInterrupt):
            stage.notices.serve_calls()
        assert left == []


def test_give_up_when_thousands_of_notices_wait_hears_them_all() -> None:
    """Every revocation is carried out, and the first error comes out."""
    stage = Stage()
    heard: list[int] = []

    def fail(_: object, partitions: list[TopicPartition]) -> None:
        heard.extend(one.partition for one in partitions)
        raise LookupError(str(partitions[0].partition))

    stage.notices.callbacks = Callbacks(on_revoke=fail)
    for number in range(PENDING):
        stage.driver.inbox.put(RevokeResources(resources=ResourceSet({"t": [number]})))
    with pytest.raises(LookupError, match=r"^0$"):
        stage.notices.give_up()
    assert heard == list(range(PENDING))
    assert len(revoked(stage)) == PENDING


@pytest.mark.parametrize("wrong", [1, [1], None])
def test_callbacks_own_calls_refuse_what_is_no_list_of_partitions(wrong: Any) -> None:  # noqa: ANN401
    """As confluent_kafka."""
    stage = Stage()
    for call in (stage.notices.begin_assigned, stage.notices.accept_revoked):
        with pytest.raises(TypeError, match="requires list of TopicPartition"):
            call(wrong)


def test_accept_revoked_in_the_callback_changes_nothing() -> None:
    """`incremental_unassign` of older applications."""
    stage = Stage()
    stage.hold(BOTH)
    stage.notices.callbacks = Callbacks(
        on_revoke=lambda _, partitions: stage.notices.accept_revoked(partitions)
    )
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert stage.librdkafka.calls == [("unassign", [(1, -1001)])]
    with pytest.raises(KafkaException, match="the group revokes"):
        stage.notices.accept_revoked([TopicPartition("t", 0)])


# --- stops that take their time -------------------------------------------------------------------


def stopping_later(stage: Stage, resources: ResourceSet, answers: list[bool]) -> None:
    """Have `on_revoke` put off some of what it is given."""

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        stage.heard.append(("revoke", [one.partition for one in partitions]))
        late = [one for one in partitions if (one.topic, one.partition) in resources]
        answers.append(stage.notices.revoke_later(late) is not None)

    stage.notices.callbacks = Callbacks(stage.hearing("assign"), revoke, stage.hearing("lost"))


def stops(stage: Stage) -> list[tuple[ResourceSet, StopReason]]:
    """What was written of stops."""
    written = [one for one in stage.written if isinstance(one, ResourcesStopped)]
    return [(one.resources, one.reason) for one in written]


def test_revocation_that_is_put_off_in_part_completes_in_parts() -> None:
    """The rest is given up at once; the late part is committed and given up when it has stopped."""
    stage, answers = Stage(), list[bool]()
    stage.hold(BOTH)
    stopping_later(stage, ONE, answers)
    stage.driver.inbox.put(RevokeResources(resources=BOTH))
    stage.notices.serve()
    assert answers == [True]
    assert revoked(stage) == [RevocationCompleted(resources=ZERO)]
    assert (stage.notices.held, stage.notices.stopping) == (ONE, ONE)
    assert ("pause", [(1, -1001)]) in stage.librdkafka.calls
    stage.librdkafka.feed([record(1, 11)])
    stage.notices.finish_revoke([TopicPartition("t", 1), TopicPartition("t", 5)])
    assert len(revoked(stage)) == 1  # not before the application polls
    stage.notices.serve()
    assert revoked(stage)[1:] == [RevocationCompleted(resources=ONE)]
    assert (stage.notices.held, stage.notices.stopping) == (EMPTY, EMPTY)
    assert stops(stage) == [(ZERO, StopReason.REVOKED), (ONE, StopReason.REVOKED)]
    commits = [one.offsets for one in stage.driver.posted if isinstance(one, CommitRequested)]
    assert commits == [(Offset("t", 0, 11),), (Offset("t", 1, 11),)]
    assert stage.heard == [("revoke", [0, 1])]


def test_revocation_that_is_put_off_as_a_whole_completes_later() -> None:
    """The group hears nothing before; finishing twice is no error."""
    stage = Stage()
    stage.hold(BOTH)
    stopping_later(stage, BOTH, [])
    stage.driver.inbox.put(RevokeResources(resources=BOTH))
    stage.notices.serve()
    assert revoked(stage) == []
    for _ in range(2):
        stage.notices.finish_revoke([TopicPartition("t", 1)])
    stage.notices.serve()
    stage.notices.finish_revoke([TopicPartition("t", 0)])
    stage.notices.serve()
    assert revoked(stage) == [
        RevocationCompleted(resources=ONE),
        RevocationCompleted(resources=ZERO),
    ]


def test_revocation_that_is_put_off_and_raises_is_put_off_all_the_same() -> None:
    """The application said so before it failed."""
    stage = Stage()
    stage.hold(BOTH)

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        stage.notices.revoke_later([one for one in partitions if one.partition == 1])
        raise LookupError("no")

    stage.notices.callbacks = Callbacks(on_revoke=revoke)
    stage.driver.inbox.put(RevokeResources(resources=BOTH))
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert revoked(stage) == [RevocationCompleted(resources=ZERO)]
    assert stage.notices.stopping == ONE


def test_what_is_lost_while_it_stops_is_lost() -> None:
    """on_lost hears of it, and the word that it has stopped comes too late."""
    stage = Stage()
    stage.hold(BOTH)
    stopping_later(stage, ONE, [])
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    stage.driver.inbox.put(LoseResources(resources=BOTH, cause="lease expired"))
    stage.notices.finish_revoke([TopicPartition("t", 1)])
    stage.notices.serve()
    assert stage.heard == [("revoke", [1]), ("lost", [0, 1])]
    assert revoked(stage) == [LossHandled()]
    assert stops(stage) == [(BOTH, StopReason.LOST)]
    stage.driver.inbox.put(GrantResources(resources=ONE))
    stage.notices.serve()
    assert (stage.notices.held, stage.notices.stopping) == (ONE, EMPTY)


def test_give_up_while_something_stops_does_not_wait_for_it() -> None:
    """There is no later then: what stops is not told again, what is told now is told so."""
    stage, answers = Stage(), list[bool]()
    stage.hold(BOTH)
    stopping_later(stage, BOTH, answers)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    stage.notices.give_up()
    assert answers == [True, False]
    assert stage.heard == [("revoke", [1]), ("revoke", [0])]
    assert stops(stage) == [(ZERO, StopReason.CLOSED), (ONE, StopReason.CLOSED)]
    assert (stage.notices.held, stage.notices.stopping) == (EMPTY, EMPTY)
    stage.hold(BOTH)  # subscribed again
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert answers[2:] == [True]


def test_revoke_later_elsewhere_is_refused() -> None:
    """In on_revoke only, for partitions given there."""
    stage = Stage()
    stage.hold(BOTH)
    heard: list[object] = []

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        with pytest.raises(KafkaException, match="the group revokes"):
            stage.notices.revoke_later([TopicPartition("t", 0)])
        with pytest.raises(TypeError, match="requires list of TopicPartition"):
            stage.notices.revoke_later(None)  # type: ignore[arg-type]
        heard.extend(partitions)

    stage.notices.callbacks = Callbacks(on_revoke=revoke)
    with pytest.raises(KafkaException, match="the group revokes"):
        stage.notices.revoke_later([TopicPartition("t", 0)])
    with pytest.raises(TypeError, match="requires list of TopicPartition"):
        stage.notices.finish_revoke([1])  # type: ignore[list-item]
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert heard == [TopicPartition("t", 1)]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]


def test_finish_of_an_earlier_stop_does_not_end_a_later_one() -> None:
    """Lost, granted and put off again: the thread of the first stop says that it has stopped."""
    stage, tokens = Stage(), list[PutOff]()

    def revoke(_: object, partitions: list[TopicPartition]) -> None:
        for one in partitions:  # a token of each
            token = stage.notices.revoke_later([one])
            assert token is not None
            tokens.append(token)

    stage.notices.callbacks = Callbacks(on_revoke=revoke, on_lost=stage.hearing("lost"))
    for notice in (
        RevokeResources(resources=BOTH),
        LoseResources(resources=BOTH, cause="lease expired"),
        RevokeResources(resources=BOTH),
    ):
        stage.hold(BOTH - stage.notices.held)
        stage.driver.inbox.put(notice)
        stage.notices.serve()
    assert (len(tokens), stage.notices.stopping) == (4, BOTH)
    for stale in tokens[:2]:
        stage.notices.finish_revoke(stale)
    stage.notices.serve()
    assert (revoked(stage), stage.notices.stopping) == ([LossHandled()], BOTH)
    stage.notices.finish_revoke(tokens[3])
    stage.notices.finish_revoke(tokens[3])
    stage.notices.serve()
    assert revoked(stage)[1:] == [RevocationCompleted(resources=ONE)]
    assert stage.notices.stopping == ZERO


def at(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    """Stop the application's clock there, in seconds."""
    monkeypatch.setattr(notices_module, "now_s", lambda: now)


def test_stop_that_is_never_finished_is_lost_after_max_poll_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a warning before; what else is held stays, and the group gets the rest."""
    stage = Stage()
    stage.hold(BOTH)
    stopping_later(stage, ONE, [])
    at(monkeypatch, 100.0)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    assert stage.driver.reminders[-1] == 130.0
    for now in (129.0, 130.0, 131.0, 159.9):
        at(monkeypatch, now)
        stage.driver.inbox.wake()
        stage.notices.serve()
        assert [event for event, _ in stage.driver.warned] == ["stop_takes_long"] * (now >= 130)
    assert (revoked(stage), stage.notices.stopping) == ([], ONE)
    assert stage.driver.reminders[-1] == 160.0
    at(monkeypatch, 160.0)
    stage.driver.inbox.wake()
    stage.notices.serve()
    assert stage.driver.warned[1:] == [("stop_never_finished", {"resources": {"t": [1]}})]
    assert stage.heard == [("revoke", [1]), ("lost", [1])]
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert stops(stage) == [(ONE, StopReason.LOST)]
    assert (stage.notices.held, stage.notices.stopping) == (ZERO, EMPTY)
    assert (stage.driver.polled_at_s, stage.driver.reminders[-1]) == (160.0, math.inf)
    assert not any(isinstance(one, CommitRequested) for one in stage.driver.posted)


def test_stop_that_is_never_finished_when_on_lost_raises_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group waits for it, whatever the callback does."""
    stage = Stage()
    stage.hold(BOTH)
    stopping_later(stage, ONE, [])
    at(monkeypatch, 100.0)
    stage.driver.inbox.put(RevokeResources(resources=ONE))
    stage.notices.serve()
    stage.notices.callbacks = Callbacks(on_lost=stage.hearing("lost", LookupError("no")))
    at(monkeypatch, 160.0)
    stage.driver.inbox.wake()
    with pytest.raises(LookupError):
        stage.notices.serve()
    assert revoked(stage) == [RevocationCompleted(resources=ONE)]
    assert stage.driver.reminders[-1] == math.inf


@pytest.mark.parametrize("told", [RevokeResources(resources=ONE), None])
def test_callback_that_leaves_the_group_ends_without_a_word_to_it(
    told: RevokeResources | None,
) -> None:
    """`unsubscribe` in `on_revoke` or `on_lost`: there is no member any more to hear it."""
    stage = Stage()
    stage.hold(BOTH)

    def leave(_: object, partitions: list[TopicPartition]) -> None:
        if partitions[0].partition == 1:
            stage.notices.give_up()

    stage.notices.callbacks = Callbacks(on_revoke=leave)
    stage.driver.inbox.put(told or LoseResources(resources=ONE, cause="lease expired"))
    stage.notices.serve()
    assert (revoked(stage), stage.notices.held) == ([], EMPTY)
    stage.hold(BOTH)  # subscribed again
    stage.notices.callbacks = Callbacks()
    stage.driver.inbox.put(RevokeResources(resources=BOTH))
    stage.notices.serve()
    assert revoked(stage) == [RevocationCompleted(resources=BOTH)]
