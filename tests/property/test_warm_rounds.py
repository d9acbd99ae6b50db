"""Any group with warm-ups comes to rest, and no working resource moves to a cold member.

Members join, leave, restart with another memory, become warm or cool, lie about what they are warm
for, and miss assignments. Leaders change. The rules are checked here on the decoded messages.

Some groups have resources that belong together. The rule of `Warmup.co_partition`: "a bundle has
one owner, and it warms up and moves as a whole".
"""

from collections.abc import Iterator, Mapping

import attrs
import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import LagAwareAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import RoundDecision
from coopgroup.core.model import EMPTY, NOBODY, ResourceSet
from coopgroup.core.policies.policy import Policy
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    SimplePolicy,
    Warmup,
)
from tests.support.groups import target_of
from tests.support.warm_group import WarmGroup, WarmMember

# 200 stories of up to 120 rounds only compute. Beside other jobs they took more than two minutes.
pytestmark = pytest.mark.timeout(600)

NAMES = tuple("abcdef")
TOPICS = ("T", "U", "V")
ROUNDS_MAX = 120
DELAY_MS = 1_000

options_of = st.builds(
    Warmup,
    max_concurrent=st.integers(1, 5),
    per_member=st.integers(1, 3),
    timeout_ms=st.sampled_from((50, 1_000_000)),
    standbys=st.integers(0, 2),
    co_partition=st.just([])
    | st.sampled_from(([("T", "U")], [("U", "T", "V")], [("V", "U", "gone")])),
)


policies: st.SearchStrategy[Policy] = st.one_of(
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
several = st.fixed_dictionaries({name: st.integers(0, 6) for name in TOPICS})
counts_of = st.integers(1, 12).map(lambda count: {"T": count, "U": 0, "V": 0}) | several
subscriptions = st.sampled_from((TOPICS, TOPICS, TOPICS, ("T",), ("U", "V")))
sets = st.builds(
    ResourceSet,
    st.fixed_dictionaries({name: st.frozensets(st.integers(0, 12), max_size=6) for name in TOPICS}),
)
names = st.sampled_from(NAMES)
joins = st.tuples(st.just("join"), names, st.just(TOPICS), st.just(EMPTY) | st.none() | sets)
steps = st.one_of(
    joins,
    joins,
    st.tuples(st.just("join"), names, subscriptions, st.just(EMPTY) | st.none()),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("warm"), names, st.integers(0, 5)),
    st.tuples(st.just("lie"), names, sets),
    st.tuples(st.just("forget"), names),
    st.tuples(st.just("hand over"), names),
    st.tuples(st.just("lose"), names, sets),
    st.tuples(st.just("topics"), several),
    st.tuples(st.just("subscribe"), names, subscriptions),
    st.tuples(st.just("miss"), names),
    st.tuples(st.just("leader")),
    st.tuples(st.just("wait"), st.sampled_from((10, 60, 1_100))),
)


def existing(counts: Mapping[str, int]) -> ResourceSet:
    return ResourceSet({name: range(count) for name, count in counts.items()})


def option_of(group: WarmGroup) -> Warmup:
    option = warmup_of(group.policy)
    assert option is not None
    return option


def bundles(group: WarmGroup) -> Iterator[tuple[str, ...]]:
    """Yield the lists of topics that apply: each member subscribes to all of them, or to none."""
    for topics in option_of(group).co_partition:
        there = tuple(topic for topic in topics if topic in group.existing.names)
        if all(len({t in one.topics for t in there}) == 1 for one in group.members.values()):
            yield there


def in_bundles(group: WarmGroup, resources: ResourceSet) -> set[tuple[str, int]]:
    label = {topic: topics[0] for topics in bundles(group) for topic in topics}
    return {(label.get(topic, topic), int(index)) for topic, index in resources}


@attrs.define
class Watch:
    """Checks each round of a group, and remembers when each warm-up began."""

    group: WarmGroup
    since_ms: dict[tuple[str, str, int], int] = attrs.field(factory=dict)

    def play(self, after_ms: int = 1) -> RoundDecision:
        group = self.group
        before = {name: attrs.evolve(one) for name, one in group.members.items()}
        decision = group.round(after_ms=after_ms)
        self._check_together()
        self._check_limits(before)
        if not option_of(group).co_partition:
            self._check_moves(option_of(group), decision, before)
        running: dict[tuple[str, str, int], int] = {}
        for name, told in group.told.items():
            warmups = told.warmups
            assert warmups.isdisjoint(told.assigned)
            for pair in warmups:
                key = (name, pair[0], int(pair[1]))
                running[key] = self.since_ms.get(key, group.now_ms)
        self.since_ms = running
        return decision

    def _check_together(self) -> None:
        told = self.group.told
        for topics in bundles(self.group):
            for index in range(6):
                parts = {(topic, index) for topic in topics}
                owners = [name for name, one in told.items() if parts & {*one.assigned}]
                assert len(owners) <= 1, (topics, index, owners)

    def _check_limits(self, before: Mapping[str, WarmMember]) -> None:
        """Assert the limits of cold warm-ups, which count bundles.

        A member that gives up a bundle has its state. A part that was created meanwhile has none.
        """
        cold = []
        for name, told in self.group.told.items():
            owned, warm = before[name].owned, before[name].warm
            warmups = told.warmups
            assert warm is not None or not warmups
            lacks = in_bundles(self.group, warmups - (warm or EMPTY))
            cold.append(len(lacks - in_bundles(self.group, owned)))
        option = option_of(self.group)
        assert max(cold, default=0) <= option.per_member
        assert sum(cold) <= option.max_concurrent

    def _check_moves(
        self,
        option: Warmup,
        decision: RoundDecision,
        before: Mapping[str, WarmMember],
    ) -> None:
        group, plan = decision.group, decision.plan
        taken = group.assignable & (group.owner != NOBODY) & (plan.assigned != group.owner)
        for position in np.flatnonzero(taken).tolist():
            target = int(plan.target[position])
            if target == NOBODY:
                continue  # the last member gives up everything
            name = group.member_ids[target]
            ((topic, index),) = group.resources.take(np.arange(len(group.resources)) == position)
            warm = before[name].warm
            if warm is None or (topic, index) in warm:
                continue
            begun = self.since_ms.get((name, topic, int(index)), self.group.now_ms)
            late = self.group.now_ms - begun >= option.timeout_ms
            assert late, (name, topic, index, self.group.now_ms - begun)


def do(group: WarmGroup, step: tuple[object, ...]) -> int:
    """Carry out one step and return the time until the next round, in ms."""
    match step:
        case ("join", str(name), tuple() as topics, warm) if name not in group.members:
            member = group.add(name, topics=topics)
            member.warm = warm if isinstance(warm, ResourceSet) else None
        case ("leave", str(name)) if len(group.members) > 1:
            group.members.pop(name, None)
        case ("topics", dict() as counts):
            group.existing = existing(counts)
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
        case ("subscribe", _, tuple() as topics) if not member.hands_over:
            member.topics = topics
            member.owned = member.owned.restrict_names(topics)
        case ("lose", _, ResourceSet() as lost):
            member.owned -= lost
        case _ if member.warm is None:
            return
        case ("warm", _, int(count)):
            member.warm |= ResourceSet.from_pairs([*(member.warmups - member.warm)][: count + 1])
        case ("lie", _, ResourceSet() as lies):
            member.warm |= lies
        case ("forget", _):
            member.warm = EMPTY
        case _:
            pass


def come_to_rest(watch: Watch) -> None:
    """Play rounds in which all warm-ups succeed until nothing changes, however long that takes."""
    members = watch.group.members
    before = None
    for number in range(ROUNDS_MAX):
        decision = watch.play(after_ms=DELAY_MS if number % 2 else 30)
        for member in members.values():
            if member.warm is not None:
                member.warm |= member.warmups
        now = [(one.owned, one.warmups) for one in members.values()]
        if now == before and not decision.plan.follow_up and number > 6:
            return
        before = now
    raise AssertionError(members)


@given(
    policy=policies,
    assignor=assignors,
    first=st.lists(names, min_size=1, max_size=4, unique=True),
    story=st.lists(steps, min_size=3, max_size=25),
    counts=counts_of,
)
def test_group_when_its_members_warm_up_comes_to_rest(
    policy: Policy,
    assignor: Assignor,
    first: list[str],
    story: list[tuple[object, ...]],
    counts: dict[str, int],
) -> None:
    group = WarmGroup(existing=existing(counts), policy=policy, assignor=assignor)
    for name in first:
        group.add(name, topics=TOPICS)
    watch = Watch(group)
    watch.play()
    for step in story:
        note(f"{step} {group.members}")
        watch.play(after_ms=do(group, step))
    come_to_rest(watch)
    leavers = [name for name, one in group.members.items() if one.hands_over]
    members = {name: one for name, one in group.members.items() if not one.hands_over}
    if not members:
        return
    topics = {topic for one in members.values() for topic in one.topics}
    for name in leavers:
        assert not group.members.pop(name).owned.restrict_names(topics)
    come_to_rest(watch)
    owned = [one.owned for one in members.values()]
    assert ResourceSet.union_all(owned) == group.existing.restrict_names(topics)
    assert sum(map(len, owned)) == len(ResourceSet.union_all(owned))
    option = option_of(group)
    if option.timeout_ms < ROUNDS_MAX * DELAY_MS:
        return  # a member that timed out is not chosen again, so that the group can stay uneven
    if len({one.topics for one in members.values()}) == 1:
        if not option.co_partition:
            check_standbys(members, option)
        if isinstance(assignor, StickyAssignor):
            assert np.ptp([len(in_bundles(group, held)) for held in owned]) <= 1, owned
    if isinstance(policy, SimplePolicy) and not option.co_partition:
        assert group.decision is not None
        assert (group.decision.plan.target == group.decision.plan.assigned).all()
        check_target(group)


def check_standbys(members: Mapping[str, WarmMember], option: Warmup) -> None:
    takers = sum(member.warm is not None for member in members.values())
    for owner, member in members.items():
        for pair in member.owned:
            standbys = [name for name, one in members.items() if pair in one.warmups]
            others = takers - (member.warm is not None)
            assert len(standbys) == min(option.standbys, others), (owner, pair, standbys)


def check_target(group: WarmGroup) -> None:
    """Assert that the assignor, asked about the group at rest, moves nothing."""
    assert group.decision is not None
    view = group.decision.group
    target = target_of(group.assignor, view, np.zeros(len(view.resources), dtype=np.int64))
    assert np.array_equal(target, view.owner)
