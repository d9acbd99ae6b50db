"""The table of error codes: each row does to a member what its action says."""

from collections.abc import Callable, Mapping

import attrs
import pytest

from coopgroup.core.member import ERROR_ACTIONS, Action, ErrorCode, MemberState, RequestKind
from coopgroup.core.member.effects import FailMember, FinishCommit, LoseResources, Report
from coopgroup.core.member.error_actions import action_for
from coopgroup.core.member.events import CommitRequested, Offset, SubscriptionChanged
from coopgroup.core.model import EMPTY
from coopgroup.telemetry import RequestRefused
from tests.support import consumer_members
from tests.support.members import (
    HELD,
    DrivenMember,
    joined,
    joining,
    leaving,
    rejoining,
    stable,
    syncing_again,
)

Kind = RequestKind


def looking_up() -> DrivenMember:
    return DrivenMember().give(SubscriptionChanged(topics=("T",)))


def beating() -> DrivenMember:
    """The member is stable, and a heartbeat is pending."""
    return stable().wait(1_000)


def committing() -> DrivenMember:
    """The member is stable, and a commit is pending."""
    return stable().give(CommitRequested(commit_id=7, offsets=(Offset("T", 0, 42),)))


REACH: Mapping[RequestKind, Callable[[], DrivenMember]] = {
    Kind.FIND_COORDINATOR: looking_up,
    Kind.JOIN_GROUP: rejoining,
    Kind.SYNC_GROUP: syncing_again,
    Kind.HEARTBEAT: beating,
    Kind.LEAVE_GROUP: leaving,
    Kind.OFFSET_COMMIT: committing,
    Kind.CONSUMER_BEAT: lambda: consumer_members.stable().due(),
}


def rows_of(action: Action, *kinds: RequestKind) -> list[tuple[RequestKind, ErrorCode]]:
    return [
        (kind, code)
        for (kind, code), does in ERROR_ACTIONS.items()
        if does is action and kind in (kinds or tuple(Kind))
    ]


NOT_COMMITS = tuple(kind for kind in Kind if kind is not Kind.OFFSET_COMMIT)


def refused(kind: RequestKind, code: int) -> DrivenMember:
    return REACH[kind]().refuse(kind, code)


def test_every_request_has_rows_for_no_error_and_for_an_unknown_one() -> None:
    for kind in Kind:
        assert ERROR_ACTIONS[kind, ErrorCode.NONE] is Action.PROCEED
        unknown = ERROR_ACTIONS[kind, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert action_for(kind, 32_000) is unknown
        assert action_for(kind, ErrorCode.MEMBER_ID_REQUIRED) is (
            Action.TAKE_ID if kind is Kind.JOIN_GROUP else unknown
        )


def test_unknown_code_does_what_unknown_server_error_does(subtests: pytest.Subtests) -> None:
    """A new code must not leave a member stuck."""
    for kind in NOT_COMMITS:
        with subtests.test(kind=kind):
            new, old = refused(kind, 32_000), refused(kind, ErrorCode.UNKNOWN_SERVER_ERROR)
            assert new.member.state is old.member.state
            assert new.member.owned == old.member.owned
            assert new.member.back_off.until_ms == old.member.back_off.until_ms


def test_retry_sends_the_same_again_after_a_back_off(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.RETRY, *NOT_COMMITS):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.member.owned == (EMPTY if kind is Kind.FIND_COORDINATOR else HELD)
            assert kind not in driven.member.outstanding
            driven.wait(100)
            assert kind in driven.member.outstanding


def test_seek_looks_the_coordinator_up_and_keeps_all(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.SEEK, *NOT_COMMITS):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.member.coordinator is None
            driven.wait(100)
            assert list(driven.member.outstanding) == [Kind.FIND_COORDINATOR]
            driven.find()
            again = Kind.JOIN_GROUP if kind is Kind.SYNC_GROUP else kind
            assert again in driven.member.outstanding
            assert driven.member.owned == HELD


def test_rejoin_joins_at_once_with_every_claim(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.REJOIN):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.member.state is MemberState.JOINING
            assert "JoinGroupRequest" in driven.sent()
            assert driven.member.owned == HELD
            assert driven.lost() == []


def test_lose_gives_up_all_and_keeps_the_id(subtests: pytest.Subtests) -> None:
    """The generation is over. The application loses all before any other request is sent."""
    for kind, code in rows_of(Action.LOSE):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            cause = f"{kind.value} answered {code.name}"
            assert driven.found(LoseResources) == [LoseResources(resources=HELD, cause=cause)]
            assert (driven.member.state, driven.member.member_id) == (MemberState.LOSING, "m")
            assert (driven.member.owned, driven.sent()) == (EMPTY, [])


def test_lose_id_gives_up_all_and_the_id(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.LOSE_ID):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.lost() == [HELD]
            assert (driven.member.state, driven.member.member_id) == (MemberState.LOSING, "")
            assert driven.member.owned == EMPTY
            # A member of KIP-848 leaves under its old id, which the coordinator still knows.
            is_known = (kind, code) == (Kind.CONSUMER_BEAT, ErrorCode.FENCED_MEMBER_EPOCH)
            assert driven.sent() == (["ConsumerBeatRequest"] if is_known else [])


def test_fail_gives_the_error_to_the_application(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.FAIL):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.member.state is MemberState.FAILED
            assert [
                (fail.code, kind.value in fail.message) for fail in driven.found(FailMember)
            ] == [(code, True)]
            assert (driven.member.owned, driven.sent()) == (EMPTY, [])
            assert driven.wait(100_000).effects == ()


def test_leave_whatever_it_is_answered_ends(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.PROCEED, Kind.LEAVE_GROUP):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.member.state is MemberState.UNSUBSCRIBED
            assert (driven.member.member_id, driven.sent()) == ("", [])


def test_take_id_joins_again_at_once_with_the_id() -> None:
    """KIP-394: the first join is answered with the member id to use. That is not a failure."""
    assert rows_of(Action.TAKE_ID) == [(Kind.JOIN_GROUP, ErrorCode.MEMBER_ID_REQUIRED)]
    driven = joining()
    assert driven.sent_join().member_id == ""
    refused = attrs.evolve(joined(-1), error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-9")
    driven.answer(Kind.JOIN_GROUP, refused)
    assert (driven.sent(), driven.sent_join().member_id) == (["JoinGroupRequest"], "m-9")
    assert (driven.member.back_off.attempts, driven.member.state) == (0, MemberState.JOINING)


def test_after_sync_keeps_the_commit(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.AFTER_SYNC):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.found(FinishCommit) == []
            assert driven.wait(100).sent() == ["OffsetCommitRequest"]


def test_refuse_gives_the_code_to_the_caller_only(subtests: pytest.Subtests) -> None:
    for kind, code in rows_of(Action.REFUSE):
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            finished = [FinishCommit(commit_id=7, codes=(("T", 0, code),))]
            assert driven.found(FinishCommit) == finished
            assert (driven.member.state, driven.member.owned) == (MemberState.STABLE, HELD)


def test_commit_when_it_can_be_retried_is_sent_again(subtests: pytest.Subtests) -> None:
    for kind, code in [
        *rows_of(Action.RETRY, Kind.OFFSET_COMMIT),
        *rows_of(Action.SEEK, Kind.OFFSET_COMMIT),
    ]:
        with subtests.test(kind=kind, code=code):
            driven = refused(kind, code)
            assert driven.found(FinishCommit) == []
            if ERROR_ACTIONS[kind, code] is Action.SEEK:
                assert driven.member.coordinator is None
                driven.find()
            assert kind not in driven.member.outstanding
            driven.wait(100)
            assert kind in driven.member.outstanding


def test_refusal_is_reported_with_its_action() -> None:
    driven = refused(Kind.SYNC_GROUP, ErrorCode.REBALANCE_IN_PROGRESS)
    record = RequestRefused(request="SyncGroup", error="REBALANCE_IN_PROGRESS", action="rejoin")
    assert Report(record=record) in driven.effects
