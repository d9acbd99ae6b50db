"""Any group with warm-ups comes to rest, and no working resource moves to a cold member.

Members join, leave, restart with another memory, become warm or cool, lie about what they are warm
for, and miss assignments. Leaders change. The rules are checked here on the decoded messages.
"""

from collections.abc import Mapping

import attrs
import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import LagAwareAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from coopgroup.assignors.base import Assignor
from coopgroup.leader import RoundDecision
from coopgroup.model import NOBODY, ResourceSet
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from coopgroup.policies.base import Policy
from tests.support.warm_group import WarmGroup, WarmMember, partitions

NAMES = tuple("abcdef")
ROUNDS_MAX = 120
DELAY_MS = 1_000

options_of = st.builds(
    Warmup,
    max_concurrent=st.integers(1, 5),
    per_member=st.integers(1, 3),
    timeout_ms=st.sampled_from((50, 1_000_000)),
    standbys=st.integers(0, 2),
    on_timeout=st.sampled_from(("move", "cancel")),
)
policies = st.one_of(
    st.builds(SimplePolicy, warmup=options_of),
    st.builds(DeferredPolicy, warmup=options_of, scheduled_rebalance_timeout_ms=st.just(DELAY_MS)),
    st.builds(
        IncrementalPolicy,
        warmup=options_of,
        scheduled_rebalance_timeout_ms=st.just(DELAY_MS),
        max_moves_per_round=st.integers(1, 3),
        move_interval_ms=st.sampled_from((0, 20)),
    ),
)
sticky = st.sampled_from((StickyAssignor(), LagAwareAssignor()))
assignors = sticky | st.sampled_from((RangeAssignor(), RoundRobinAssignor()))
sets = st.frozensets(st.integers(0, 12), max_size=8)
joins = st.tuples(st.just("join"), st.sampled_from(NAMES), st.just(frozenset()) | st.none() | sets)
steps = st.one_of(
    joins,
    joins,
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("warm"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("lie"), st.sampled_from(NAMES), sets),
    st.tuples(st.just("forget"), st.sampled_from(NAMES)),
    st.tuples(st.just("hand over"), st.sampled_from(NAMES)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("miss"), st.sampled_from(NAMES)),
    st.tuples(st.just("leader")),
    st.tuples(st.just("wait"), st.sampled_from((10, 60, 1_100))),
)


@attrs.define
class Watch:
    """Checks each round of a group, and remembers when each warm-up began."""

    group: WarmGroup
    since_ms: dict[tuple[str, str, int], int] = attrs.field(factory=dict)

    def play(self, after_ms: int = 1) -> RoundDecision:
        group = self.group
        before = {name: (one.owned, one.warm) for name, one in group.members.items()}
        decision = group.round(after_ms=after_ms)
        option = getattr(group.policy, "warmup", None)
        assert isinstance(option, Warmup)
        self._check_limits(option, before)
        self._check_moves(option, decision, before)
        running: dict[tuple[str, str, int], int] = {}
        for name, told in group.told.items():
            warmups = told.warmups or ResourceSet()
            assert warmups.isdisjoint(told.assigned)
            for pair in warmups:
                key = (name, pair[0], int(pair[1]))
                running[key] = self.since_ms.get(key, group.now_ms)
        self.since_ms = running
        return decision

    def _check_limits(
        self, option: Warmup, before: Mapping[str, tuple[ResourceSet, ResourceSet | None]]
    ) -> None:
        cold = []
        for name, told in self.group.told.items():
            owned, warm = before[name]
            warmups = told.warmups or ResourceSet()
            assert warm is not None or not warmups
            cold.append(len(warmups - (warm or ResourceSet()) - owned))
        assert max(cold, default=0) <= option.per_member
        assert sum(cold) <= option.max_concurrent

    def _check_moves(
        self,
        option: Warmup,
        decision: RoundDecision,
        before: Mapping[str, tuple[ResourceSet, ResourceSet | None]],
    ) -> None:
        group, plan = decision.group, decision.plan
        taken = group.assignable & (group.owner != NOBODY) & (plan.assigned != group.owner)
        for position in np.flatnonzero(taken).tolist():
            target = int(plan.target[position])
            if target == NOBODY:
                continue  # the last member gives up everything
            name = group.member_ids[target]
            ((topic, index),) = group.resources.take(np.arange(len(group.resources)) == position)
            _, warm = before[name]
            if warm is None or (topic, index) in warm:
                continue
            begun = self.since_ms.get((name, topic, int(index)), self.group.now_ms)
            late = self.group.now_ms - begun >= option.timeout_ms
            leaves = group.members[int(group.owner[position])].hands_over
            assert option.on_timeout == "move" or leaves, (name, topic, index)
            assert late, (name, topic, index, self.group.now_ms - begun)


def do(group: WarmGroup, step: tuple[object, ...]) -> int:
    """Carry out one step and return the time until the next round, in ms."""
    match step:
        case ("join", str(name), warm):
            if name not in group.members:
                group.add(name, warm=warm if isinstance(warm, frozenset) else None)
        case ("leave", str(name)):
            if len(group.members) > 1:
                group.members.pop(name, None)
        case ("leader",):
            group.state = None
        case ("hand over", str(name)) if name in group.members:
            group.hands_over(name)
        case ("miss", str(name)):
            group.deaf = {name}
        case ("wait", int(wait_ms)):
            return wait_ms
        case (_, str(name), *_) if name in group.members:
            change(group.members[name], step)
        case _:
            pass
    return 1


def change(member: WarmMember, step: tuple[object, ...]) -> None:
    match step:
        case ("lose", _):
            member.owned = ResourceSet()
        case _ if member.warm is None:
            return
        case ("warm", _, int(count)):
            some = [*(member.warmups - member.warm)][: count + 1]
            member.warm |= ResourceSet.from_pairs(some)
        case ("lie", _, frozenset() as lies):
            member.warm |= partitions(*lies) | ResourceSet({"U": [1]})
        case _:
            member.warm = ResourceSet()


def come_to_rest(watch: Watch) -> None:
    """Play rounds in which all warm-ups succeed until nothing changes, however long that takes."""
    group = watch.group
    before = None
    for number in range(ROUNDS_MAX):
        decision = watch.play(after_ms=DELAY_MS if number % 2 else 30)
        for name, member in group.members.items():
            if member.warm is not None:
                group.warms_up(name)
        now = (group.owned(), group.warmups())
        if now == before and not decision.plan.follow_up and number > 6:
            return
        before = now
    raise AssertionError((group.owned(), group.warmups()))


@given(
    policy=policies,
    assignor=assignors,
    first=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    story=st.lists(steps, min_size=4, max_size=25),
    count=st.integers(1, 12) | st.integers(6, 12),
)
def test_group_when_its_members_warm_up_comes_to_rest(
    policy: Policy,
    assignor: Assignor,
    first: list[str],
    story: list[tuple[object, ...]],
    count: int,
) -> None:
    group = WarmGroup(existing=partitions(*range(count)), policy=policy, assignor=assignor)
    for name in first:
        group.add(name)
    watch = Watch(group)
    watch.play()
    for step in story:
        note(f"{step} {group.owned()} {group.warmups()}")
        watch.play(after_ms=do(group, step))
    come_to_rest(watch)
    leavers = [name for name, one in group.members.items() if one.hands_over]
    if len(leavers) < len(group.members):
        assert not any(group.members[name].owned for name in leavers)
        for name in leavers:
            del group.members[name]
    else:
        return
    come_to_rest(watch)
    owned = group.owned()
    assert sorted(index for held in owned.values() for index in held) == list(range(count))
    option = getattr(policy, "warmup", None)
    assert isinstance(option, Warmup)
    takers = sum(member.warm is not None for member in group.members.values())
    if option.timeout_ms < ROUNDS_MAX * DELAY_MS:
        return  # a member that timed out is not chosen again, so that the group can stay uneven
    check_standbys(group, option, takers)
    if isinstance(assignor, StickyAssignor):
        counts = [len(held) for held in owned.values()]
        assert max(counts) - min(counts) <= 1
    if isinstance(policy, SimplePolicy):
        assert group.decision is not None
        assert (group.decision.plan.target == group.decision.plan.assigned).all()
        check_target(group)


def check_standbys(group: WarmGroup, option: Warmup, takers: int) -> None:
    warmups = group.warmups()
    for owner, held in group.owned().items():
        for index in held:
            standbys = [name for name, some in warmups.items() if index in some]
            others = takers - (group.members[owner].warm is not None)
            assert len(standbys) == min(option.standbys, others), (owner, index, standbys)


def check_target(group: WarmGroup) -> None:
    """Assert that the assignor, asked about the group at rest, moves nothing."""
    assert group.decision is not None
    view = group.decision.group
    target = group.assignor.assign(view, np.zeros(len(view.resources), dtype=np.int64))
    assert np.array_equal(target, view.owner)
