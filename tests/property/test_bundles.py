"""Resources that belong together are never assigned to two members, whatever happens.

The rule of `Warmup.co_partition`: "a bundle has one owner, and it warms up and moves as a whole".
The rules are checked on the decoded assignments of each round.
"""

from collections.abc import Iterator

import numpy as np
from hypothesis import given, note
from hypothesis import strategies as st

from coopgroup.assignors import LagAwareAssignor, RangeAssignor, RoundRobinAssignor, StickyAssignor
from coopgroup.assignors.base import Assignor
from coopgroup.leader import RoundDecision
from coopgroup.model import ResourceSet
from coopgroup.policies import DeferredPolicy, IncrementalPolicy, SimplePolicy, Warmup
from coopgroup.policies.base import Policy
from coopgroup.policies.warming.option import warmup_of
from tests.support.warm_group import WarmGroup, WarmMember

NAMES = tuple("abcde")
TOPICS = ("T", "U", "V")
ROUNDS_MAX = 120
DELAY_MS = 1_000

options_of = st.builds(
    Warmup,
    max_concurrent=st.integers(1, 5),
    per_member=st.integers(1, 3),
    timeout_ms=st.sampled_from((50, 1_000_000)),
    standbys=st.integers(0, 2),
    on_timeout=st.sampled_from(("move", "cancel")),
    co_partition=st.sampled_from(([("T", "U")], [("U", "T", "V")], [("V", "U", "gone")])),
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
assignors = st.sampled_from(
    (StickyAssignor(), LagAwareAssignor(), RangeAssignor(), RoundRobinAssignor())
)
counts_of = st.fixed_dictionaries({name: st.integers(0, 6) for name in TOPICS})
subscriptions = st.sampled_from((TOPICS, TOPICS, TOPICS, ("T",), ("U", "V")))
sets = st.builds(
    ResourceSet,
    st.fixed_dictionaries({name: st.frozensets(st.integers(0, 5), max_size=4) for name in TOPICS}),
)
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("join"), names, subscriptions, st.booleans()),
    st.tuples(st.just("join"), names, st.just(TOPICS), st.booleans()),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("warm"), names, st.integers(0, 5)),
    st.tuples(st.just("lie"), names, sets),
    st.tuples(st.just("lose"), names, sets),
    st.tuples(st.just("topics"), counts_of),
    st.tuples(st.just("subscribe"), names, subscriptions),
    st.tuples(st.just("miss"), names),
    st.tuples(st.just("leader")),
    st.tuples(st.just("wait"), st.sampled_from((10, 60, 1_100))),
)


def existing(counts: dict[str, int]) -> ResourceSet:
    return ResourceSet({name: range(count) for name, count in counts.items()})


def bundles(group: WarmGroup) -> Iterator[tuple[str, ...]]:
    """Yield the lists of topics that apply: each member subscribes to all of them, or to none."""
    option = warmup_of(group.policy)
    assert option is not None
    for topics in option.co_partition:
        there = tuple(topic for topic in topics if topic in group.existing.names)
        if all(len({t in one.topics for t in there}) == 1 for one in group.members.values()):
            yield there


def check_together(group: WarmGroup) -> None:
    for topics in bundles(group):
        for index in range(6):
            parts = {(topic, index) for topic in topics}
            owners = [name for name, told in group.told.items() if parts & {*told.assigned}]
            assert len(owners) <= 1, (topics, index, owners)


def check_limits(group: WarmGroup, before: dict[str, WarmMember]) -> None:
    """Assert the limits of cold warm-ups, which count bundles.

    A member that gives up a bundle has its state. A part that was created meanwhile has none.
    """
    option = warmup_of(group.policy)
    assert option is not None
    label = {topic: topics[0] for topics in bundles(group) for topic in topics}
    cold = []
    for name, told in group.told.items():
        left = (told.warmups or ResourceSet()) - (before[name].warm or ResourceSet())
        cold.append(len(in_bundles(left, label) - in_bundles(before[name].owned, label)))
    assert max(cold, default=0) <= option.per_member
    assert sum(cold) <= option.max_concurrent


def in_bundles(resources: ResourceSet, label: dict[str, str]) -> set[tuple[str, int]]:
    return {(label.get(topic, topic), int(index)) for topic, index in resources}


def play(group: WarmGroup, after_ms: int = 1) -> RoundDecision:
    before = {
        name: WarmMember(owned=one.owned, warm=one.warm) for name, one in group.members.items()
    }
    decision = group.round(after_ms=after_ms)
    check_together(group)
    check_limits(group, before)
    return decision


def do(group: WarmGroup, step: tuple[object, ...]) -> int:
    """Carry out one step and return the time until the next round, in ms."""
    match step:
        case ("join", str(name), tuple() as topics, bool(takes_part)):
            if name not in group.members:
                group.add(name, warm=() if takes_part else None, topics=topics)
        case ("leave", str(name)):
            if len(group.members) > 1:
                group.members.pop(name, None)
        case ("topics", dict() as counts):
            group.existing = existing(counts)
        case ("leader",):
            group.state = None
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
        case ("subscribe", _, tuple() as topics):
            member.topics = topics
            member.owned = member.owned.restrict_names(topics)
        case ("lose", _, ResourceSet() as lost):
            member.owned -= lost
        case ("warm", _, int(count)) if member.warm is not None:
            member.warm |= ResourceSet.from_pairs([*(member.warmups - member.warm)][: count + 1])
        case ("lie", _, ResourceSet() as lies) if member.warm is not None:
            member.warm |= lies
        case _:
            pass


def come_to_rest(group: WarmGroup) -> None:
    before = None
    for number in range(ROUNDS_MAX):
        decision = play(group, after_ms=DELAY_MS if number % 2 else 30)
        for member in group.members.values():
            if member.warm is not None:
                member.warm |= member.warmups
        now = [(one.owned, one.warmups) for one in group.members.values()]
        if now == before and not decision.plan.follow_up and number > 6:
            return
        before = now
    raise AssertionError(group.members)


@given(
    policy=policies,
    assignor=assignors,
    first=st.lists(names, min_size=1, max_size=4, unique=True),
    story=st.lists(steps, min_size=3, max_size=20),
    counts=counts_of,
)
def test_resources_that_belong_together_have_one_owner(
    policy: Policy,
    assignor: Assignor,
    first: list[str],
    story: list[tuple[object, ...]],
    counts: dict[str, int],
) -> None:
    group = WarmGroup(existing=existing(counts), policy=policy, assignor=assignor)
    for name in first:
        group.add(name, topics=TOPICS)
    play(group)
    for step in story:
        note(f"{step} {group.members}")
        play(group, after_ms=do(group, step))
    come_to_rest(group)
    owned = [one.owned for one in group.members.values()]
    topics = {topic for one in group.members.values() for topic in one.topics}
    assert ResourceSet.union_all(owned) == group.existing.restrict_names(topics)
    assert sum(map(len, owned)) == len(ResourceSet.union_all(owned))
    option = warmup_of(policy)
    assert option is not None
    same = len({one.topics for one in group.members.values()}) == 1
    if isinstance(assignor, StickyAssignor) and same and option.timeout_ms > ROUNDS_MAX * DELAY_MS:
        check_even(group)


def check_even(group: WarmGroup) -> None:
    """Assert that the numbers of bundles differ by one at most."""
    label = {topic: topics[0] for topics in bundles(group) for topic in topics}
    counts = [len(in_bundles(one.owned, label)) for one in group.members.values()]
    assert np.ptp(counts) <= 1, counts
