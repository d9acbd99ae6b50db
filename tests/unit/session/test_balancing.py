"""A leader's lag checks between rounds, and the rounds that follow from them."""

from collections.abc import Sequence

import attrs
import numpy as np
import pytest

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.assignors.base import Assignor
from coopgroup.leader import Lags, TopicMetadata, read_members
from coopgroup.member import MemberState, RequestKind
from coopgroup.member.effects import Report
from coopgroup.member.events import Answered, RejoinRequested, Woken
from coopgroup.model import GroupSnapshot, ResourceSet
from coopgroup.model.group_api import JoinedMember, JoinGroupRequest
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies import IncrementalPolicy, Loss, Policy, SimplePolicy
from coopgroup.policies.base import RoundContext
from coopgroup.session import (
    CheckLags,
    DecideRound,
    LagsChecked,
    LagWatch,
    RoundDecided,
    Session,
    SessionEffect,
    check_lags,
    fail,
    lead_round,
    session_deadline_ms,
    step,
)
from coopgroup.session.balancing import next_watch
from coopgroup.telemetry import BalanceRequested
from tests.support.groups import claim, group_of
from tests.support.members import DrivenMember, joined, joining, synced

NOW_MS = 10_000
INTERVAL_MS = 500
POLICY = IncrementalPolicy(
    max_moves_per_round=2,
    move_interval_ms=0,
    lag_check_interval_ms=INTERVAL_MS,
    lag_imbalance_checks=2,
    lag_imbalance_min=100,
    lag_cooldown_ms=5_000,
)
RULE = POLICY.balance
ASSIGNOR = LagAwareAssignor()
THREE = ResourceSet({"T": range(3)})
REQUEST = BalanceRequested(overloaded=("m",), lags=(900,), mean_lag=300)


def look(watch: LagWatch, *lags: int, assignor: Assignor = ASSIGNOR) -> LagsChecked:
    """Check the lags of T's partitions."""
    figures = Lags.from_mapping({"T": dict(enumerate(lags))})
    return check_lags(CheckLags(number=7, watch=watch), figures, assignor=assignor)


def watched(**owned: Sequence[int]) -> LagWatch:
    """A group at rest whose members own partitions of T."""
    assert RULE is not None
    existing = {"T": [one for has in owned.values() for one in has]}
    claims = [claim(member, {"T": has}) for member, has in owned.items()]
    return LagWatch(rule=RULE, group=group_of(existing, *claims), asked=False, moved=False)


TWO_HOT = watched(A=[0, 1], B=[2, 3], C=[4, 5])


# --- one look -----------------------------------------------------------------------------------


def test_look_when_lags_are_uneven_for_the_first_time_only_counts() -> None:
    checked = look(TWO_HOT, 500, 500, 10, 10, 10, 10)
    assert (checked.number, checked.looks, checked.request) == (7, (("A", 1),), None)
    assert checked.lags is not None
    assert checked.lags.tolist() == [500, 500, 10, 10, 10, 10]


def test_look_when_it_has_lasted_asks_for_a_round_and_says_why() -> None:
    watch = attrs.evolve(TWO_HOT, looks=(("A", 1),))
    checked = look(watch, 500, 500, 10, 20, 30, 30)
    assert checked.looks == (("A", 2),)
    request = checked.request
    assert request is not None
    assert (request.overloaded, request.lags, request.mean_lag) == (("A",), (1_000,), 363)
    assert len(request.resources) == 2
    assert request.resources & ResourceSet({"T": [0, 1]})


@pytest.mark.parametrize(
    ("owned", "lags"),
    [
        ({"A": [0, 1], "B": [2, 3]}, (1_000, 0, 0, 0)),
        ({"A": [0], "B": [1], "C": [2]}, (1_000, 0, 0)),
    ],
    ids=["one hot partition", "one partition each"],
)
def test_look_when_nothing_would_help_asks_for_nothing(
    owned: dict[str, list[int]], lags: tuple[int, ...]
) -> None:
    """A round without moves would come again after every check."""
    watch = attrs.evolve(watched(**owned), looks=(("A", 9),))
    checked = look(watch, *lags)
    assert (checked.looks, checked.request) == ((("A", 10),), None)


def test_look_when_what_lags_did_not_lag_before_asks_for_nothing() -> None:
    """A short flood is over when the round comes; only lasting lags count for moves."""
    watch = attrs.evolve(TWO_HOT, looks=(("A", 5),))
    before = np.array([500, 10, 10, 10, 10, 10])
    assert look(watch, 500, 500, 10, 10, 10, 10).request is not None
    watch = attrs.evolve(watch, lags=before)
    assert look(watch, 500, 500, 10, 10, 10, 10).request is None


def test_look_when_no_lags_are_known_counts_for_nothing() -> None:
    watch = attrs.evolve(TWO_HOT, looks=(("A", 1),), lags=np.arange(6))
    checked = check_lags(CheckLags(number=3, watch=watch), None, assignor=ASSIGNOR)
    assert (checked.number, checked.looks, checked.request) == (3, (("A", 1),), None)
    assert checked.lags is watch.lags


class Broken:
    """An assignor that fails: with a bad answer or with an exception."""

    name = "broken"
    needs_lags = True

    def __init__(self, answer: Int32Array | None) -> None:
        self.answer = answer

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        assert not lags.flags.writeable
        assert not group.owner.flags.writeable
        if self.answer is None:
            raise ValueError("no")
        return self.answer


@pytest.mark.parametrize("answer", [None, np.full(6, 9, dtype=np.int32), np.zeros(2, np.int32)])
def test_look_when_the_assignor_fails_asks_for_nothing(answer: Int32Array | None) -> None:
    """A user's assignor must not end the check, nor cause rounds that it cannot decide."""
    group = TWO_HOT.group
    group.owner.flags.writeable = False
    watch = attrs.evolve(TWO_HOT, looks=(("A", 5),))
    assert look(watch, 500, 500, 0, 0, 0, 0, assignor=Broken(answer)).request is None


# --- from round to round ------------------------------------------------------------------------


def test_watch_when_a_round_moved_nothing_goes_on() -> None:
    """Example: a member restarted. The earlier counts stay valid."""
    lags = np.arange(6)
    before = attrs.evolve(TWO_HOT, looks=(("A", 1),), lags=lags, due_ms=10_300, number=4)
    after = next_watch(before, TWO_HOT, NOW_MS)
    assert after is not None
    assert (after.looks, after.due_ms, after.number) == ((("A", 1),), 10_300, 5)
    assert after.lags is lags
    more = next_watch(before, watched(A=[0, 1], B=[2, 3], C=[4, 5, 6]), NOW_MS)
    assert more is not None
    assert (more.looks, more.lags, more.due_ms) == ((), None, 10_300)


def test_watch_when_something_moved_begins_anew() -> None:
    moved = attrs.evolve(TWO_HOT, moved=True)
    before = attrs.evolve(TWO_HOT, looks=(("A", 1),), lags=np.arange(6), due_ms=10_300, number=4)
    after = next_watch(before, moved, NOW_MS)
    assert after is not None
    assert (after.looks, after.due_ms, after.number) == ((), NOW_MS + INTERVAL_MS, 5)
    assert after.lags is None
    resting = next_watch(attrs.evolve(before, due_ms=15_000), moved, NOW_MS)
    assert resting is not None
    assert resting.due_ms == 15_000


def test_watch_when_the_round_was_asked_for_pauses() -> None:
    """The pause is independent of moves; otherwise every check would ask for a round."""
    after = next_watch(None, attrs.evolve(TWO_HOT, asked=True), NOW_MS)
    assert after is not None
    assert after.due_ms == NOW_MS + 5_000


# --- in a session -------------------------------------------------------------------------------


class Leader:
    """A session whose member leads its own group."""

    def __init__(
        self, policy: Policy = POLICY, assignor: Assignor = ASSIGNOR, *, now_ms: int = NOW_MS
    ) -> None:
        self.policy, self.assignor, self.now_ms = policy, assignor, now_ms
        driven = joining()
        request = driven.request(RequestKind.JOIN_GROUP).request
        assert isinstance(request, JoinGroupRequest)
        self.metadata = request.protocols[0][1]
        self.session = Session(member=driven.member)
        self.effects: tuple[SessionEffect, ...] = ()
        self.lead(1)

    def give(self, event: object) -> "Leader":
        self.session, self.effects = step(self.session, event, now_ms=self.now_ms)  # type: ignore[arg-type]  # any event
        return self

    def wait(self, duration_ms: int) -> "Leader":
        self.now_ms += duration_ms
        return self.give(Woken())

    def answer_join(self, generation: int) -> DecideRound:
        me = JoinedMember(member_id="m", group_instance_id=None, metadata=self.metadata)
        answer = attrs.evolve(joined(generation, leads=True), members=(me,))
        sent = self.session.member.outstanding[RequestKind.JOIN_GROUP]
        self.give(Answered(request_id=sent.request_id, answer=answer))
        (duty,) = (one for one in self.effects if isinstance(one, DecideRound))
        return duty

    def led(self, duty: DecideRound) -> RoundDecided:
        return lead_round(
            duty,
            read_members(duty.members),
            TopicMetadata(resources=THREE),
            None,
            assignor=self.assignor,
            policy=self.policy,
        )

    def lead(self, generation: int) -> RoundContext:
        """Complete a round whose join is pending."""
        duty = self.answer_join(generation)
        self.give(self.led(duty))
        sent = self.session.member.outstanding[RequestKind.SYNC_GROUP]
        self.give(Answered(request_id=sent.request_id, answer=synced(THREE)))
        return duty.context

    def looks(self) -> list[CheckLags]:
        """The lag checks that the last step asked of the host."""
        return [one for one in self.effects if isinstance(one, CheckLags)]

    def look(self) -> CheckLags:
        """Wait until the next check."""
        (duty,) = self.wait(INTERVAL_MS).looks()
        return duty


def test_leader_looks_once_an_interval() -> None:
    leader = Leader()
    assert leader.session.member.state is MemberState.STABLE
    assert session_deadline_ms(leader.session) == NOW_MS + INTERVAL_MS
    assert leader.wait(INTERVAL_MS - 1).looks() == []
    (duty,) = leader.wait(1).looks()
    assert duty.resources == THREE
    assert leader.give(Woken()).looks() == []
    assert len(leader.wait(INTERVAL_MS).looks()) == 1


@pytest.mark.parametrize(
    ("policy", "assignor"),
    [
        (POLICY, StickyAssignor()),
        (IncrementalPolicy(), ASSIGNOR),
        (SimplePolicy(), ASSIGNOR),
    ],
    ids=["the assignor reads no lags", "off by default", "a policy that does not know it"],
)
def test_leader_when_it_is_not_to_look_never_does(policy: Policy, assignor: Assignor) -> None:
    leader = Leader(policy, assignor)
    assert leader.session.watch is None
    assert leader.wait(60_000).looks() == []


def test_leader_when_a_round_is_wanted_asks_for_it_once_and_tells_the_policy() -> None:
    leader = Leader()
    number = leader.look().number
    leader.give(LagsChecked(number=number, looks=(("m", 2),), request=REQUEST))
    assert leader.session.member.state is MemberState.JOINING
    assert next(one.record for one in leader.effects if isinstance(one, Report)) is REQUEST
    assert leader.wait(INTERVAL_MS).looks() == []
    assert leader.lead(2).balance
    assert not leader.session.asks_balance
    assert leader.wait(4_999 - INTERVAL_MS).looks() == []
    assert len(leader.wait(INTERVAL_MS + 1).looks()) == 1
    leader.give(RejoinRequested(reason="something else"))
    assert not leader.lead(3).balance


def test_outcome_when_a_round_was_led_meanwhile_is_void() -> None:
    """The outcome describes an older group."""
    leader = Leader()
    number = leader.look().number
    leader.give(RejoinRequested(reason="partitions changed")).lead(2)
    leader.give(LagsChecked(number=number, looks=(("m", 2),), request=REQUEST))
    assert leader.session.member.state is MemberState.STABLE
    assert not leader.session.asks_balance


def test_leader_when_another_one_leads_looks_no_more() -> None:
    """A wish must not survive until a much later round of this leader."""
    leader = Leader()
    number = leader.look().number
    leader.give(LagsChecked(number=number, looks=(("m", 2),), request=REQUEST))
    sent = leader.session.member.outstanding[RequestKind.JOIN_GROUP]
    leader.give(Answered(request_id=sent.request_id, answer=joined(2)))
    sent = leader.session.member.outstanding[RequestKind.SYNC_GROUP]
    leader.give(Answered(request_id=sent.request_id, answer=synced(THREE)))
    assert leader.session.member.state is MemberState.STABLE
    assert (leader.session.watch, leader.session.asks_balance) == (None, False)
    assert leader.wait(60_000).looks() == []


def test_leader_when_something_waits_does_not_look_and_begins_anew() -> None:
    """The policy's own memory names losses, slow stops and moves."""
    leader = Leader()
    number = leader.look().number
    leader.give(LagsChecked(number=number, looks=(("m", 1),)))
    calm = leader.session.policy_state
    assert calm is not None
    lost = attrs.evolve(
        calm,
        losses=(Loss(owner="x", instance_id=None, deadline_ms=90_000),),
        lost=attrs.evolve(calm.holdings, holder=np.zeros(3, dtype=np.int32)),
    )
    leader.session = attrs.evolve(leader.session, policy_state=lost)
    assert leader.wait(INTERVAL_MS).looks() == []
    leader.session = attrs.evolve(leader.session, policy_state=calm)
    assert leader.look().watch.looks == ()


def test_leader_when_it_fails_looks_no_more() -> None:
    leader = Leader()
    leader.session, _ = fail(leader.session, "a bug", now_ms=NOW_MS)
    assert leader.session.watch is None


def test_member_that_follows_has_nothing_to_look_at() -> None:
    driven: DrivenMember = joining().join(1).sync(THREE)
    session = Session(member=driven.member)
    checked = LagsChecked(number=1, looks=(("m", 9),), request=REQUEST)
    session, effects = step(session, checked, now_ms=driven.now_ms)
    assert session.member.state is MemberState.STABLE
    assert effects == ()
