"""Errors that are retried without end are told: once after 10 s, then rarely, and when they end."""

from collections.abc import Callable, Mapping

import pytest
from attrs import define, field

from coopgroup.core.member import ERROR_ACTIONS, Action, ErrorCode, MemberState, RequestKind
from coopgroup.core.member.effects import Send
from coopgroup.core.member.error_actions import OF_A_ROUND, usual_cause
from coopgroup.core.member.events import (
    Answered,
    CommitRequested,
    LeaveRequested,
    LossHandled,
    Offset,
    SubscriptionChanged,
)
from coopgroup.core.member.retrying import told_retries
from coopgroup.core.model.group_api import Answer, HeartbeatAnswer, OffsetCommitAnswer
from coopgroup.core.model.retries import TELL_AFTER_MS, TELL_AGAIN_MS, Retries
from coopgroup.simulator.coordinator import refusal
from coopgroup.telemetry import RequestRetried
from tests.support import consumer_members
from tests.support.consumer_members import beaten, by_id
from tests.support.members import HELD, NODE, DrivenMember, found, joined, stable, synced

Kind = RequestKind
RETRIED = {Action.RETRY, Action.SEEK, Action.REJOIN_LATER}
ROWS = [
    (kind, code)
    for (kind, code), action in ERROR_ACTIONS.items()
    if action in RETRIED or (kind in OF_A_ROUND and action in {Action.LOSE, Action.LOSE_ID})
]
STEP_MS = 100


@define
class Played:
    """A member beside a coordinator that refuses one kind of request while `code` is set."""

    kind: RequestKind
    code: int | None
    driven: DrivenMember = field(factory=DrivenMember)
    told: list[tuple[int, RequestRetried]] = field(factory=list)
    sent: dict[int, Send] = field(factory=dict)
    failed_at_ms: int | None = None
    generation: int = 1

    def begin(self) -> "Played":
        if self.kind in {Kind.FIND_COORDINATOR, Kind.JOIN_GROUP, Kind.SYNC_GROUP}:
            self._take(self.driven.give(SubscriptionChanged(topics=("T",))))
        elif self.kind is Kind.CONSUMER_BEAT:
            self.driven = consumer_members.stable()
        else:
            self.driven = stable()
        return self

    def run(self, duration_ms: int) -> "Played":
        until_ms = self.driven.now_ms + duration_ms
        while self.driven.now_ms < until_ms:
            self._take(self.driven.wait(STEP_MS))
            if self.driven.member.state is MemberState.LOSING:
                self._take(self.driven.give(LossHandled()))
            if self.kind is Kind.OFFSET_COMMIT and not self.driven.member.commits.queue:
                asked = CommitRequested(commit_id=self.driven.now_ms, offsets=(Offset("T", 0, 4),))
                self._take(self.driven.give(asked))
            for kind in tuple(self.driven.member.outstanding):
                if kind in self.driven.member.outstanding:
                    self._take(self._answer(kind))
        return self

    def _answer(self, kind: RequestKind) -> DrivenMember:
        if kind is self.kind and self.code is not None:
            if self.failed_at_ms is None:
                self.failed_at_ms = self.driven.member.outstanding[kind].sent_at_ms
            request_id = self.driven.member.outstanding[kind].request_id
            if self.code < ErrorCode.UNKNOWN_SERVER_ERROR:
                return self.driven.refuse(kind, self.code)
            answer = refusal(self.sent[request_id].request, self.code)
            return self.driven.give(Answered(request_id=request_id, answer=answer))
        self.generation += kind is Kind.JOIN_GROUP
        answers: Mapping[RequestKind, Callable[[], Answer]] = {
            Kind.FIND_COORDINATOR: lambda: found(NODE),
            Kind.JOIN_GROUP: lambda: joined(self.generation),
            Kind.SYNC_GROUP: lambda: synced(HELD),
            Kind.HEARTBEAT: lambda: HeartbeatAnswer(error_code=0),
            Kind.OFFSET_COMMIT: lambda: OffsetCommitAnswer(codes=(("T", 0, 0),)),
            Kind.CONSUMER_BEAT: lambda: beaten(1, by_id(HELD)),
        }
        return self.driven.answer(kind, answers[kind]())

    def _take(self, driven: DrivenMember) -> None:
        self.sent |= {one.request_id: one for one in driven.found(Send)}
        self.told += [(driven.now_ms, one) for one in driven.reported(RequestRetried)]


def played(kind: RequestKind, code: int) -> Played:
    return Played(kind, code).begin()


def _retried_error_is_told_once_after_a_time_and_once_when_it_ends(
    kind: RequestKind, code: ErrorCode
) -> None:
    group = played(kind, code).run(TELL_AFTER_MS)
    assert group.failed_at_ms is not None
    assert group.told == []
    group.run(60_000)
    ((at_ms, record),) = group.told
    assert TELL_AFTER_MS <= at_ms - group.failed_at_ms <= TELL_AFTER_MS + 2_000
    assert (record.request, record.error, record.is_over) == (kind.value, code.name, False)
    assert (record.code, record.cause) == (code, usual_cause(code))
    assert record.cause
    assert code.name in told_retries(group.driven.member, group.driven.now_ms)[0]
    group.code = None
    group.run(10_000)
    assert [one.is_over for _, one in group.told] == [False, True]
    assert told_retries(group.driven.member, group.driven.now_ms) == ()
    group.code = code  # a later fault counts from its own begin
    group.run(TELL_AFTER_MS - 5_000)
    assert len(group.told) == 2


def test_retried_error_is_told_once_after_a_time_and_once_when_it_ends(
    subtests: pytest.Subtests,
) -> None:
    for kind, code in ROWS:
        with subtests.test(kind=kind, code=code):
            _retried_error_is_told_once_after_a_time_and_once_when_it_ends(kind, code)


def test_retried_error_that_ends_soon_is_not_told(subtests: pytest.Subtests) -> None:
    for kind, code in ROWS:
        with subtests.test(kind=kind, code=code):
            group = played(kind, code).run(TELL_AFTER_MS - 1_000)
            group.code = None
            group.run(2 * TELL_AFTER_MS)
            assert group.told == []


def test_retried_error_is_told_again_after_ten_minutes_with_the_newest_error() -> None:
    group = played(Kind.FIND_COORDINATOR, ErrorCode.NO_ANSWER).run(TELL_AFTER_MS + 2_000)
    group.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.run(TELL_AGAIN_MS)
    (first_ms, first), (again_ms, again) = group.told
    assert again_ms - first_ms == pytest.approx(TELL_AGAIN_MS, abs=2_000)
    assert (first.error, again.error) == ("NO_ANSWER", "COORDINATOR_NOT_AVAILABLE")


def test_coordinator_that_does_not_exist_is_told_with_its_usual_cause() -> None:
    group = played(Kind.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE).run(20_000)
    assert "offsets.topic.replication.factor" in group.told[0][1].cause


def test_request_of_a_round_that_waited_for_others_counts_from_its_failure() -> None:
    """A join may wait for minutes. A coordinator that restarts then has not failed for minutes."""
    driven = DrivenMember().subscribe().wait(50_000)
    driven.refuse(Kind.JOIN_GROUP, ErrorCode.NO_ANSWER)
    assert driven.reported(RequestRetried) == []
    assert driven.member.retries[Kind.JOIN_GROUP].since_ms == driven.now_ms


def test_member_that_leaves_retries_nothing() -> None:
    group = played(Kind.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE).run(20_000)
    group.driven.give(LeaveRequested(reason="closed"))
    assert group.driven.member.retries == {}


def test_failure_without_a_known_name_is_told_with_its_number() -> None:
    group = played(Kind.FIND_COORDINATOR, 32_000).run(20_000)
    assert [(one.error, one.cause) for _, one in group.told] == [("error 32000", "")]


def test_failures_are_told_when_they_are_due() -> None:
    failed = Retries(since_ms=1_000)
    assert failed.told(10_999) is failed
    assert failed.told(1_000, after_ms=0).told_at_ms == 1_000
    told = failed.told(11_000)
    assert told.told_at_ms == 11_000
    assert told.told(610_999, after_ms=0) is told
    assert told.told(611_000).told_at_ms == 611_000
