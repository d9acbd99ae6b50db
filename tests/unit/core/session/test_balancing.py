"""A leader's lag checks between rounds, and the rounds that follow from them."""

from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from attrs import frozen

from coopgroup.assignors import LagAwareAssignor, StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import Lags
from coopgroup.core.leader.lag_checks import check_lags
from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import Report
from coopgroup.core.member.events import RejoinRequested, Woken
from coopgroup.core.model import GroupSnapshot, ResourceSet
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.session import (
    CheckLags,
    LagsChecked,
    LagWatch,
    fail,
    session_deadline_ms,
)
from coopgroup.core.session.balancing import next_watch
from coopgroup.policies import (
    IncrementalPolicy,
    Loss,
    Offer,
    Policy,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)
from coopgroup.telemetry import BalanceRequested
from tests.support.driven_session import THREE, DrivenSession
from tests.support.groups import at_rest, claim, group_of
from tests.support.members import joining

NOW_MS = 10_000
INTERVAL_MS = 500
POLICY = IncrementalPolicy(
    max_moves_per_round=2,
    move_interval_ms=0,
    lag_check_interval_ms=INTERVAL_MS,
    lag_imbalance_min=100,
    lag_cooldown_ms=5_000,
)
RULE = POLICY.balance
ASSIGNOR = LagAwareAssignor()
REQUEST = BalanceRequested(overloaded=("m",), lags=(900,), mean_lag=300)


def duty_of(watch: LagWatch) -> CheckLags:
    return CheckLags(number=7, watch=watch, context=at_rest(watch.group))


def look(
    watch: LagWatch, *lags: int, assignor: Assignor = ASSIGNOR, policy: Policy = POLICY
) -> LagsChecked:
    """Check the lags of T's partitions."""
    figures = Lags.from_mapping({"T": dict(enumerate(lags))})
    return check_lags(duty_of(watch), figures, assignor=assignor, policy=policy)


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


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_look_when_it_has_lasted_asks_for_a_round_and_says_why(delay_ms: int) -> None:
    watch = attrs.evolve(TWO_HOT, looks=(("A", 2),))
    policy = attrs.evolve(POLICY, scheduled_rebalance_timeout_ms=delay_ms)
    checked = look(watch, 500, 500, 10, 20, 30, 30, policy=policy)
    assert checked.looks == (("A", 3),)
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
    checked = check_lags(duty_of(watch), None, assignor=ASSIGNOR, policy=POLICY)
    assert (checked.number, checked.looks, checked.request) == (7, (("A", 1),), None)
    assert checked.lags is watch.lags


def test_look_counts_moves_that_wait_for_a_warm_receiver_and_all_parts_of_bundles() -> None:
    """The look is a round: it knows warm-ups and bundles."""
    both = {"A": [0, 1], "B": [2, 3], "C": [4, 5]}
    claims = [
        claim(member, {"T": has, "U": has}, topics=("T", "U"), warm=ResourceSet())
        for member, has in both.items()
    ]
    group = group_of({"T": range(6), "U": range(6)}, *claims)
    watch = attrs.evolve(TWO_HOT, group=group, looks=(("A", 2),))
    policy = attrs.evolve(POLICY, warmup=Warmup(co_partition=[("T", "U")]))
    request = look(watch, 500, 500, 10, 20, 30, 30, policy=policy).request
    assert request is not None
    moves = request.resources.to_dict()
    assert moves["T"] == moves["U"]
    assert len(moves["T"]) == 2


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


@frozen
class Unwilling:
    """A user's policy that fails in each round."""

    name = "unwilling"

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        raise ValueError("no")

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        raise NotImplementedError


def test_look_when_the_policy_fails_asks_for_nothing() -> None:
    watch = attrs.evolve(TWO_HOT, looks=(("A", 5),))
    assert look(watch, 500, 500, 0, 0, 0, 0, policy=Unwilling()).request is None


def test_look_counts_the_moves_of_a_policy_that_chooses_them_itself() -> None:
    """A user's policy may move whatever it likes in a round for balance."""
    watch = attrs.evolve(TWO_HOT, looks=(("A", 5),))
    request = look(watch, 500, 500, 10, 10, 10, 10, policy=SimplePolicy()).request
    assert request is not None
    assert len(request.resources) == 2


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


def leader(policy: Policy = POLICY, assignor: Assignor = ASSIGNOR) -> DrivenSession:
    """Return a session whose member leads its own group."""
    driven = DrivenSession.of(joining())
    driven.policy, driven.assignor = policy, assignor
    driven.complete()
    return driven


def checks(driven: DrivenSession) -> list[CheckLags]:
    """Return the lag checks that the last step asked of the host."""
    return driven.duties(CheckLags)


def next_check(driven: DrivenSession) -> CheckLags:
    """Wait until the next check."""
    (duty,) = checks(driven.wait(INTERVAL_MS))
    return duty


def asking() -> DrivenSession:
    """Return a leader that wants a round, because one of its members is overloaded."""
    driven = leader()
    number = next_check(driven).number
    return driven.give(LagsChecked(number=number, looks=(("m", 2),), request=REQUEST))


def test_leader_looks_once_an_interval() -> None:
    driven = leader()
    assert driven.member.state is MemberState.STABLE
    assert session_deadline_ms(driven.session) == NOW_MS + INTERVAL_MS
    assert checks(driven.wait(INTERVAL_MS - 1)) == []
    (duty,) = checks(driven.wait(1))
    assert duty.resources == THREE
    assert duty.watch.group.claimed().all(), "also what this round granted"
    assert (duty.context.balance, duty.context.state) == (True, driven.session.policy_state)
    assert checks(driven.give(Woken())) == []
    assert len(checks(driven.wait(INTERVAL_MS))) == 1


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
    driven = leader(policy, assignor)
    assert driven.session.watch is None
    assert checks(driven.wait(60_000)) == []


def test_leader_when_a_round_is_wanted_asks_for_it_once_and_tells_the_policy() -> None:
    driven = asking()
    assert driven.member.state is MemberState.JOINING
    assert driven.found(Report)[0].record is REQUEST
    assert checks(driven.wait(INTERVAL_MS)) == []
    assert driven.complete(2).balance
    assert not driven.session.asks_balance
    assert checks(driven.wait(4_999 - INTERVAL_MS)) == []
    assert len(checks(driven.wait(INTERVAL_MS + 1))) == 1
    driven.give(RejoinRequested(reason="something else"))
    assert not driven.complete(3).balance


def test_outcome_when_a_round_was_led_meanwhile_is_void() -> None:
    """The outcome describes an older group."""
    driven = leader()
    number = next_check(driven).number
    driven.give(RejoinRequested(reason="partitions changed")).complete(2)
    driven.give(LagsChecked(number=number, looks=(("m", 2),), request=REQUEST))
    assert (driven.member.state, driven.session.asks_balance) == (MemberState.STABLE, False)


def test_leader_when_another_one_leads_looks_no_more() -> None:
    """A wish must not survive until a much later round of this leader."""
    driven = asking().join(2).sync(THREE)
    assert driven.member.state is MemberState.STABLE
    assert (driven.session.watch, driven.session.asks_balance) == (None, False)
    assert checks(driven.wait(60_000)) == []


def test_leader_when_something_waits_does_not_look_and_begins_anew() -> None:
    """The policy's own memory names losses, slow stops and moves."""
    driven = leader()
    driven.give(LagsChecked(number=next_check(driven).number, looks=(("m", 1),)))
    calm = driven.session.policy_state
    assert calm is not None
    lost = attrs.evolve(
        calm,
        losses=(Loss(owner="x", instance_id=None, deadline_ms=90_000),),
        resources=attrs.evolve(calm.resources, loss=np.zeros(3, dtype=np.int32)),
    )
    assert checks(driven.change(policy_state=lost).wait(INTERVAL_MS)) == []
    assert next_check(driven.change(policy_state=calm)).watch.looks == ()


def test_leader_when_it_fails_looks_no_more() -> None:
    session, _ = fail(leader().session, "a bug", now_ms=NOW_MS)
    assert session.watch is None


def test_member_that_follows_has_nothing_to_look_at() -> None:
    driven = DrivenSession.of(joining().join().sync(THREE))
    driven.give(LagsChecked(number=1, looks=(("m", 9),), request=REQUEST))
    assert (driven.member.state, driven.effects) == (MemberState.STABLE, ())
