"""A leader uses the lags of one moment for all rounds of a rebalance, or it never ends."""

from collections.abc import Callable
from random import Random
from typing import cast

import numpy as np
import pytest
from attrs import define, field

from coopgroup.assignors.lag.assignor import LagAwareAssignor
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.leader import Lags, TopicMetadata
from coopgroup.member.events import RejoinRequested
from coopgroup.model import ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.policies.base import Policy, RoundContext
from coopgroup.policies.incremental import IncrementalPolicy
from coopgroup.policies.simple import SimplePolicy
from coopgroup.policies.state import PolicyState
from coopgroup.protocol import Subscription, decode_assignment, encode_subscription
from coopgroup.session import DecideRound, RoundDecided
from tests.support.by_hand import Hand

ROUNDS_MAX = 8


@define
class BusyTopic:
    """A topic with small lags that differ in each look-up, as in a group at rest."""

    partitions: int = 17
    looks: int = 0
    random: Random = field(factory=lambda: Random(1))

    def metadata(self, _topics: object) -> TopicMetadata:
        return TopicMetadata(resources=ResourceSet({"orders": range(self.partitions)}))

    def lags(self, resources: ResourceSet) -> Lags:
        self.looks += 1
        values = [self.random.randrange(6) for _ in resources]
        return Lags(resources=resources, values=np.array(values, dtype=np.int64))

    def close(self) -> None:
        pass


@define
class Group:
    """Six members that follow each assignment immediately, and their leader.

    Attributes:
        now_ms: clock; each pause that the leader announces advances it.
    """

    hand: Hand
    topic: BusyTopic
    owned: dict[str, ResourceSet]
    policy: Policy = field(factory=SimplePolicy)
    now_ms: int = 0
    generation: int = 0
    state: PolicyState | None = None
    posted: list[RoundDecided | RejoinRequested] = field(factory=list)
    leader: RoundLeader = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.leader = RoundLeader(
            assignor=LagAwareAssignor(scope="group"),
            policy=self.policy,
            lookup=cast("ClusterLookup", self.topic),
            timeout_ms=10_000,
            post=self.posted.append,
            sink=TelemetrySink("group"),
        )

    def play_round(self) -> bool:
        """Play a round; return whether another one follows."""
        self.generation += 1
        duty = DecideRound(
            generation=self.generation,
            members=tuple(self._joined(name) for name in sorted(self.owned)),
            context=RoundContext(
                leader_id="a", generation=self.generation - 1, now_ms=self.now_ms, state=self.state
            ),
        )
        self.leader.start(duty)
        self.hand.run()
        answer = cast("RoundDecided", self.posted[-1])
        self.state = answer.decision.state
        follows = False
        for name, content in answer.decision.assignments:
            assignment = decode_assignment(content)
            self.owned[name] = assignment.assigned
            pause_ms = assignment.scheduled_rebalance_timeout_ms
            follows = follows or assignment.revoked is not None or pause_ms > 0
            self.now_ms += pause_ms
        return follows

    def rebalance(self) -> int:
        """Play rounds until none follows; return their number."""
        for count in range(1, ROUNDS_MAX + 1):
            if not self.play_round():
                return count
        raise AssertionError("the rebalance does not end")

    def _joined(self, name: str) -> JoinedMember:
        subscription = Subscription(
            topics=("orders",), owned=self.owned[name], generation=self.generation - 1
        )
        return JoinedMember(
            member_id=name, group_instance_id=None, metadata=encode_subscription(subscription)
        )


def group(hand: Hand, policy: Policy | None = None) -> Group:
    """Return a group whose first member owns everything; the others have just joined."""
    topic = BusyTopic()
    owned = {name: ResourceSet() for name in "abcdef"}
    owned["a"] = ResourceSet({"orders": range(topic.partitions)})
    return Group(hand=hand, topic=topic, owned=owned, policy=policy or SimplePolicy())


RATIONED = IncrementalPolicy(
    max_moves_per_round=6, move_interval_ms=500, scheduled_rebalance_timeout_ms=9_000
)


@pytest.mark.parametrize("policy", [SimplePolicy(), RATIONED])
@pytest.mark.parametrize("seed", range(20))
def test_rebalance_ends_although_lags_change_from_round_to_round_or_in_its_pauses(
    hand: Hand, policy: Policy, seed: int
) -> None:
    members = group(hand, policy)
    members.topic.random.seed(seed)
    assert members.rebalance() <= ROUNDS_MAX


def test_next_rebalance_looks_the_lags_up_again(hand: Hand) -> None:
    members = group(hand)
    members.rebalance()
    looks = members.topic.looks
    members.rebalance()
    assert members.topic.looks > looks


def _led_by_another(members: Group) -> None:
    members.generation += 1


def _grow(members: Group) -> None:
    members.topic.partitions += 1


@pytest.mark.parametrize("happen", [_led_by_another, _grow])
def test_lags_are_looked_up_again_when_something_happened_meanwhile(
    hand: Hand, happen: Callable[[Group], None]
) -> None:
    members = group(hand)
    assert members.play_round()
    happen(members)
    looks = members.topic.looks
    members.play_round()
    assert members.topic.looks == looks + 1
