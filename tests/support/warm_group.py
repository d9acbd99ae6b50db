"""A group whose members warm up, played round by round through the leader and its bytes."""

from collections.abc import Iterable

from attrs import define, field

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import NO_LAGS, RoundDecision, TopicMetadata, lead, read_members
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.traits import Traits
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import (
    PolicyState,
    RoundContext,
    SimplePolicy,
    Warmup,
    state_from_json,
    state_to_json,
)
from coopgroup.protocol import (
    Assignment,
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)


def partitions(*indices: int) -> ResourceSet:
    return ResourceSet({"T": indices})


@define
class WarmMember:
    """A member: what it owns, is warm for, and is told to warm up."""

    owned: ResourceSet = EMPTY
    warm: ResourceSet | None = EMPTY
    warmups: ResourceSet = EMPTY
    generation: int = -1
    rack: str | None = None
    topics: tuple[str, ...] = ("T",)
    instance_id: str | None = None
    host: str | None = None
    declined: ResourceSet = EMPTY
    declined_warmups: ResourceSet = EMPTY
    hands_over: bool = False
    traits: Traits = field(factory=dict)

    @property
    def takes_part(self) -> bool:
        return self.warm is not None


@define
class WarmGroup:
    """A group of one topic; the state passes through its JSON after each round.

    Attributes:
        completed: generation of the last round whose assignment the leader received.
        deaf: members that miss the assignment of the next round.
    """

    existing: ResourceSet = field(factory=lambda: partitions(*range(4)))
    policy: Policy = field(factory=lambda: SimplePolicy(warmup=Warmup()))
    assignor: Assignor = field(factory=StickyAssignor)
    members: dict[str, WarmMember] = field(factory=dict)
    state: PolicyState | None = None
    leader: str | None = None
    generation: int = 0
    completed: int = 0
    deaf: set[str] = field(factory=set)
    now_ms: int = 0
    decision: RoundDecision | None = None
    told: dict[str, Assignment] = field(factory=dict)

    def add(
        self,
        member_id: str,
        *owned: int,
        warm: Iterable[int] | None = (),
        rack: str | None = None,
        topics: tuple[str, ...] = ("T",),
        instance_id: str | None = None,
        traits: Traits | None = None,
    ) -> WarmMember:
        member = WarmMember(
            owned=partitions(*owned),
            warm=None if warm is None else partitions(*warm),
            generation=self.generation if owned else NO_GENERATION,
            rack=rack,
            topics=topics,
            instance_id=instance_id,
            traits=traits or {},
        )
        self.members[member_id] = member
        return member

    def warms_up(self, member_id: str, *indices: int) -> None:
        """Let a member become warm for all its warm-ups, or for some."""
        member = self.members[member_id]
        assert member.warm is not None
        some = partitions(*indices) if indices else member.warmups
        member.warm |= some - member.declined_warmups

    def declines(self, member_id: str, *indices: int) -> None:
        """Let a member refuse warm-ups until the leader cancels them."""
        member = self.members[member_id]
        member.declined_warmups |= partitions(*indices) & member.warmups

    def hands_over(self, member_id: str) -> None:
        """Let a member leave permanently."""
        member = self.members[member_id]
        member.topics, member.hands_over = (), True

    def round(self, *, after_ms: int = 1) -> RoundDecision:
        """Play one round that all members hear."""
        self.now_ms += after_ms
        leader = min(self.members)
        if leader != self.leader:
            self.leader, self.state, self.completed = leader, None, self.generation
        self.decision = self.decide()
        assert not self.decision.refused, self.decision.records
        self.obey(self.decision)
        return self.decision

    def decide(self, members: Iterable[str] | None = None) -> RoundDecision:
        """Decide a round without playing it."""
        assert self.leader is not None
        joined = [
            JoinedMember(
                member_id=member_id,
                group_instance_id=self.members[member_id].instance_id,
                metadata=self._subscription(self.members[member_id]),
            )
            for member_id in (self.members if members is None else members)
        ]
        return lead(
            read_members(joined),
            TopicMetadata(resources=self.existing),
            NO_LAGS,
            assignor=self.assignor,
            policy=self.policy,
            context=RoundContext(
                leader_id=self.leader,
                generation=self.completed,
                now_ms=self.now_ms,
                state=self.state,
            ),
        )

    def obey(self, decision: RoundDecision) -> None:
        """Let every member carry out its assignment, unless it is deaf."""
        self.generation += 1
        if self.leader not in self.deaf:
            self.completed = self.generation
        self.state = state_from_json(state_to_json(decision.state))
        self.told = {
            member_id: decode_assignment(content, skips_rest=True)
            for member_id, content in decision.assignments
        }
        for member_id in self.told.keys() - self.deaf:
            told = self.told[member_id]
            member = self.members[member_id]
            assert member.takes_part or not told.warmups
            member.warmups = told.warmups
            member.declined_warmups &= member.warmups
            if member.warm is not None:
                stopped = member.owned - told.assigned
                member.warm = (member.warm | stopped) & member.warmups
            member.owned = told.assigned
            member.generation = self.generation
        self.deaf = set()

    def settle(self, rounds_max: int = 10) -> None:
        """Play rounds as long as a follow-up is announced."""
        for _ in range(rounds_max):
            if not self.round().plan.follow_up:
                return
        message = "follow-up rounds without end"
        raise AssertionError(message)

    def owned(self) -> dict[str, list[int]]:
        return {name: list(one.owned.indices("T")) for name, one in sorted(self.members.items())}

    def warmups(self) -> dict[str, list[int]]:
        return {
            name: list(one.warmups.indices("T"))
            for name, one in sorted(self.members.items())
            if one.warmups
        }

    def _subscription(self, member: WarmMember) -> bytes:
        return encode_subscription(
            Subscription(
                topics=member.topics,
                user_data=encode_user_data(
                    UserData(
                        warm=member.warm,
                        host=member.host,
                        declined=member.declined,
                        declined_warmups=member.declined_warmups,
                        hands_over=member.hands_over,
                        traits=member.traits,
                    )
                ),
                owned=member.owned,
                generation=member.generation,
                rack=member.rack,
            )
        )
