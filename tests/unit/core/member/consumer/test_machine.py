"""A member of KIP-848 as a whole: identities, subscriptions, ends, events without a meaning."""

import attrs
import pytest

from coopgroup.core.member import (
    ErrorCode,
    KeptIdentity,
    MemberState,
    new_member,
    next_deadline_ms,
)
from coopgroup.core.member.effects import FindSessionTimeout
from coopgroup.core.member.events import (
    AssignmentsDecided,
    CatalogueSeen,
    CommitRequested,
    Event,
    LossHandled,
    Offset,
    SessionTimeoutFound,
    StartsDeclined,
    SubscriptionChanged,
    WarmSetDeclared,
    Woken,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JOINS, LEAVES
from coopgroup.core.session import Session, backing_off, fail, session_deadline_ms, step
from coopgroup.errors import ConfigurationError
from tests.support.consumer_members import (
    BEAT,
    CLOSED,
    CONFIG,
    EVERY_STATE,
    INTERVAL_MS,
    KEEPING,
    LEAVE,
    STATIC,
    SUBSCRIBED,
    T0,
    beaten,
    joining,
    new,
    stable,
)
from tests.support.members import HELD, KEPT

MINE = KeptIdentity(member_id="k", generation=3, topics=("T",), protocol="consumer")


# --- identities --------------------------------------------------------------------------------


def test_identity_is_stored_when_the_join_is_answered() -> None:
    driven = joining(KEEPING).beat(HELD, epoch=3)
    assert driven.kept() == [attrs.evolve(MINE, member_id="p")]
    assert driven.beat(HELD, epoch=4).kept() == []


def test_next_process_joins_under_the_stored_id_and_gets_the_same_partitions() -> None:
    driven = new(KEEPING, MINE).subscribe()
    assert (driven.the_beat().member_id, driven.the_beat().epoch) == ("k", JOINS)
    assert driven.beat(HELD, epoch=3).granted() == [HELD]


def test_member_with_a_stored_identity_leaves_silently_unless_it_leaves_for_good() -> None:
    driven = stable(KEEPING).give(CLOSED)
    assert (driven.member.state, driven.beats(), driven.kept()) == (
        MemberState.UNSUBSCRIBED, [], [],
    )  # fmt: skip
    assert driven.give(SUBSCRIBED).the_beat().member_id == "p"
    for_good = stable(KEEPING).give(attrs.evolve(CLOSED, for_good=True))
    assert (for_good.the_beat().epoch, for_good.kept()) == (LEAVES, [None])


def test_identity_of_a_classic_member_or_without_the_setting_is_not_used() -> None:
    for config, kept in ((KEEPING, KEPT), (CONFIG, MINE)):
        assert new(config, kept).subscribe().the_beat().member_id == "p"
    static = attrs.evolve(STATIC, keeps_identity=True)
    assert new(static, MINE).subscribe().the_beat().member_id == "p"
    assert joining(static).beat(HELD).kept() == []


def test_member_without_an_id_of_its_process_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="own_id"):
        new_member(attrs.evolve(CONFIG, own_id=""))


def test_broker_assigns_in_each_state(subtests: pytest.Subtests) -> None:
    """Health, metrics and `watch` say so, also after a loss."""
    for state in EVERY_STATE:
        with subtests.test(state=state):
            assert EVERY_STATE[state]().member.round.by_broker


# --- the session timeout -----------------------------------------------------------------------


def test_session_timeout_is_asked_for_at_each_join_and_every_five_minutes() -> None:
    driven = joining().beat(HELD)
    assert driven.found(FindSessionTimeout)
    asked_ms = []
    while driven.now_ms < 700_000:
        driven.beat()
        asked_ms += [driven.now_ms] * len(driven.found(FindSessionTimeout))
    assert [round(at_ms / 300_000) for at_ms in asked_ms] == [1, 2]
    assert driven.fail_beat(ErrorCode.UNKNOWN_MEMBER_ID).give(LossHandled()).beats()
    assert driven.beat(HELD).found(FindSessionTimeout)


def test_session_timeout_is_asked_for_when_the_broker_beats_at_another_pace() -> None:
    driven = stable().due()
    driven.answer(BEAT, attrs.evolve(beaten(1), interval_ms=INTERVAL_MS + 1))
    assert driven.found(FindSessionTimeout)


@pytest.mark.parametrize("change_ms", [-1_000, 1_000])
def test_lease_follows_the_session_timeout_of_the_group(change_ms: int) -> None:
    """A shorter one counts for the lease at once, a longer one from the next answer."""
    driven = stable().beat()
    before_ms, sent_ms = driven.member.lease.until_ms, driven.now_ms
    timeout_ms = CONFIG.session_timeout_ms + change_ms
    driven.give(SessionTimeoutFound(session_timeout_ms=timeout_ms))
    assert driven.member.lease.until_ms == before_ms + min(change_ms, 0)
    assert driven.member.config.session_timeout_ms == timeout_ms
    driven.beat()
    assert driven.now_ms > sent_ms
    assert driven.member.lease.until_ms == driven.now_ms + timeout_ms


def test_lease_that_ends_with_a_shorter_session_timeout_is_a_loss() -> None:
    driven = stable().wait(1)
    driven.give(SessionTimeoutFound(session_timeout_ms=1))
    assert driven.member.state is MemberState.LOSING


# --- subscriptions -----------------------------------------------------------------------------


def test_other_topics_are_told_now_and_the_same_ones_are_not() -> None:
    assert stable().give(SubscriptionChanged(topics=("T",))).beats() == []
    driven = stable().give(SubscriptionChanged(topics=("U",)))
    assert driven.the_beat().topics == ("U",)
    assert driven.beat(EMPTY, epoch=2).revoked() == [HELD]
    driven.stop(HELD).beat(ResourceSet({"U": [0]}), epoch=3)
    assert driven.member.owned == ResourceSet({"U": [0]})


def test_subscription_to_nothing_gives_everything_up_in_order() -> None:
    driven = stable().give(SubscriptionChanged(topics=()))
    assert driven.the_beat().topics == ()
    assert driven.beat(EMPTY, epoch=2).revoked() == [HELD]
    assert driven.member.state is MemberState.REVOKING


def test_member_without_topics_joins_when_it_has_some() -> None:
    driven = new().give(SubscriptionChanged(topics=())).find()
    assert (driven.member.state, driven.beats()) == (MemberState.JOINING, [])
    assert next_deadline_ms(driven.member) is None
    assert driven.give(SUBSCRIBED).the_beat().topics == ("T",)


def test_subscription_changed_during_a_loss_is_told_by_the_join() -> None:
    driven = EVERY_STATE[MemberState.LOSING]().give(SubscriptionChanged(topics=("U",)))
    assert driven.beats() == []
    assert driven.give(LossHandled()).the_beat().topics == ("U",)


# --- ends --------------------------------------------------------------------------------------


def test_commit_outside_of_the_group_is_refused() -> None:
    driven = new().give(CommitRequested(commit_id=1, offsets=(Offset("T", 0, 4),)))
    assert driven.finished() == [(1, {0: ErrorCode.UNKNOWN_MEMBER_ID})]


def test_caller_of_a_commit_waits_no_longer_than_it_wants() -> None:
    driven = stable()
    until_ms = driven.now_ms + 50
    offsets = (Offset("T", 0, 4),)
    driven.give(CommitRequested(commit_id=1, offsets=offsets, until_ms=until_ms)).wait(50)
    assert driven.finished() == [(1, {0: ErrorCode.REQUEST_TIMED_OUT})]


def test_member_that_failed_sends_nothing_and_may_subscribe_again_after_a_leave() -> None:
    driven = EVERY_STATE[MemberState.FAILED]()
    assert driven.wait(100_000).effects == ()
    assert driven.give(CLOSED).member.state is MemberState.UNSUBSCRIBED
    assert driven.give(SUBSCRIBED).the_beat().member_id == "p-1"


def test_leave_during_a_loss_is_sent_under_the_kept_id() -> None:
    """The lease ended in this process first: the coordinator may still know the member."""
    driven = stable()
    driven.wait(driven.member.lease.until_ms - driven.now_ms)
    assert driven.give(CLOSED).the_beat().epoch == LEAVES
    assert driven.refuse(LEAVE, ErrorCode.NONE).member.state is MemberState.UNSUBSCRIBED


@pytest.mark.parametrize(
    "event",
    [
        CatalogueSeen(version=1),
        AssignmentsDecided(number=1, assignments=()),
        StartsDeclined(resources=T0),
        WarmSetDeclared(warm=None),
        Woken(),
    ],
)
def test_events_of_leaders_and_warmups_have_no_effect(event: Event) -> None:
    driven = stable()
    before = driven.member
    driven.give(event)
    assert (driven.member, driven.effects) == (before, ())


# --- below a session ---------------------------------------------------------------------------


def test_session_steps_the_machine_of_its_member() -> None:
    session = Session(member=stable().member)
    at_ms = session_deadline_ms(session)
    assert at_ms == session.member.heartbeat_at_ms
    session, effects = step(session, Woken(), now_ms=at_ms)
    assert type(effects[0]).__name__ == "Send"
    assert not backing_off(session)


def test_error_inside_the_process_ends_the_membership_in_each_state(
    subtests: pytest.Subtests,
) -> None:
    for state in [one for one in EVERY_STATE if one is not MemberState.FAILED]:
        with subtests.test(state=state):
            session, _ = fail(Session(member=EVERY_STATE[state]().member), "bug", now_ms=20_000)
            ended = MemberState.UNSUBSCRIBED if state is MemberState.LEAVING else MemberState.FAILED
            assert (session.member.state, session.member.owned) == (ended, EMPTY)
