"""A group that plays rounds against a policy: the leader decides, the others follow.

Members are plain Python values; only the leader's own code decides. After each round the drill
checks that no resource has two members working on it, and that the leader's safety check refused
no round.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from coopgroup.assignors import StickyAssignor
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.leader import (
    NO_LAGS,
    Lags,
    RoundDecision,
    decide_round,
    member_assignments,
)
from coopgroup.core.model import MemberClaim, ResourceSet, resolve_claims
from coopgroup.policies import DeferredPolicy, Policy, PolicyState, RoundContext
from tests.support.groups import Indices, Told

T1 = 60_000


@attrs.define(kw_only=True)
class Actor:
    """The true state of a member.

    Attributes:
        instance_id: static id, or None.
        rejoins_at_ms: end of the delay that it knows of, None for none.
        waits_until_ms: end of the wait for lost owners that it knows of, None for none.
        slow: resources with a slow stop.
        told_to_stop: resources that its last round told it to stop.
        readable: whether the leader can read its subscription.
    """

    owned: ResourceSet
    topics: tuple[str, ...]
    generation: int
    instance_id: str | None = None
    rejoins_at_ms: int | None = None
    waits_until_ms: int | None = None
    slow: ResourceSet = attrs.field(factory=ResourceSet)
    told_to_stop: ResourceSet = attrs.field(factory=ResourceSet)
    readable: bool = True

    def rejoin_in_ms(self, now_ms: int) -> int | None:
        return None if self.rejoins_at_ms is None else max(0, self.rejoins_at_ms - now_ms)

    def loss_ends_in_ms(self, now_ms: int) -> int | None:
        return None if self.waits_until_ms is None else max(0, self.waits_until_ms - now_ms)


@attrs.define(kw_only=True)
class Drill:
    """A group under one policy.

    Attributes:
        generation: generation of the last round.
        completed: last generation that the leader completed as a member.
        state: the leader's memory.
        timeout_ms: the delay that the last round announced, 0 for none.
        lags: lags of partitions by name and number; None if they were not looked up.
    """

    policy: Policy
    existing: Indices = attrs.field(factory=lambda: {"T": range(1, 5)})
    assignor: Assignor = attrs.field(factory=StickyAssignor)
    actors: dict[str, Actor] = attrs.field(factory=dict)
    generation: int = 0
    leader: str = ""
    completed: int = 0
    state: PolicyState | None = None
    decided: RoundDecision | None = None
    timeout_ms: int = 0
    lags: Mapping[str, Mapping[int, int]] | None = None

    def join(
        self,
        member_id: str,
        owned: Indices | None = None,
        *,
        topics: Iterable[str] = ("T",),
        instance_id: str | None = None,
    ) -> Self:
        """Let a member come; an earlier one with its static id is fenced, as by the coordinator."""
        if instance_id is not None:
            same = [one for one, actor in self.actors.items() if actor.instance_id == instance_id]
            self.leave(*same)
        self.actors[member_id] = Actor(
            owned=ResourceSet(owned),
            topics=tuple(sorted(topics)),
            generation=self.generation if owned else -1,
            instance_id=instance_id,
        )
        return self

    def settle(self, now_ms: int = 0, **owned: Iterable[int]) -> None:
        """Build a group of members that own partitions of T, led by the first member."""
        for member_id, indices in owned.items():
            self.join(member_id, {"T": indices})
        self.round(now_ms)

    def leave(self, *member_ids: str) -> Self:
        """Let members disappear, with all their resources."""
        for member_id in member_ids:
            del self.actors[member_id]
        return self

    def round(
        self,
        now_ms: int,
        *,
        leader: str | None = None,
        missed: Iterable[str] = (),
        balance: bool = False,
    ) -> dict[str, Told]:
        """Play a round: all members join, the leader decides, all members follow.

        Args:
            now_ms: the leader's clock, which all members share here.
            leader: the leader; by default the same as before, or the first member.
            missed: members whose SyncGroup fails: they never hear of the round.
            balance: whether the leader asked for the round because lags are uneven.
        """
        if leader is None:
            leader = self.leader if self.leader in self.actors else min(self.actors)
        if leader != self.leader:
            self.leader, self.state = leader, None
            self.completed = self.actors[leader].generation
        lags = NO_LAGS if self.lags is None else Lags.from_mapping(self.lags)
        context = RoundContext(
            leader_id=leader,
            generation=self.completed,
            now_ms=now_ms,
            state=self.state,
            balance=balance,
            lags=None if self.lags is None else lags,
        )
        claims = [self._claim(member_id, now_ms) for member_id in self.actors]
        self.decided = decide_round(
            resolve_claims(claims, ResourceSet(self.existing)),
            lags,
            assignor=self.assignor,
            policy=self.policy,
            context=context,
        )
        assert not self.decided.refused, self.decided.records
        self.state = self.decided.state
        self.generation += 1
        if leader not in missed:
            self.completed = self.generation
        return self._take_effect(self.decided, now_ms, frozenset(missed))

    def finish_stops(self, member_id: str) -> None:
        actor = self.actors[member_id]
        actor.owned -= actor.slow
        actor.slow = ResourceSet()

    def finish_stops_told(self, member_id: str) -> None:
        """Let a member finish the stops of its last round, and be quick from now on."""
        actor = self.actors[member_id]
        actor.owned -= actor.told_to_stop & actor.slow
        actor.slow = ResourceSet()

    @property
    def memory(self) -> PolicyState:
        assert self.state is not None
        return self.state

    def owned(self, name: str = "T") -> dict[str, list[int]]:
        return {m: actor.owned.indices(name).tolist() for m, actor in sorted(self.actors.items())}

    def listed(self, field: str) -> dict[str, list[int]]:
        assert self.decided is not None
        mask = getattr(self.decided.plan, field)
        return self.decided.group.resources.take(mask).to_dict()

    def _claim(self, member_id: str, now_ms: int) -> MemberClaim:
        actor = self.actors[member_id]
        if not actor.readable:
            return MemberClaim(member_id=member_id, topics=(), readable=False)
        return MemberClaim(
            member_id=member_id,
            topics=actor.topics,
            owned=actor.owned,
            generation=actor.generation,
            instance_id=actor.instance_id,
            rejoin_in_ms=actor.rejoin_in_ms(now_ms),
            loss_ends_in_ms=actor.loss_ends_in_ms(now_ms),
        )

    def _take_effect(
        self, decided: RoundDecision, now_ms: int, missed: frozenset[str]
    ) -> dict[str, Told]:
        told: dict[str, Told] = {}
        for member_id, answer in zip(
            decided.group.member_ids, member_assignments(decided), strict=True
        ):
            self.timeout_ms = answer.rejoin_in_ms or 0
            assert answer.assigned is not None
            revoked = None if answer.revoked is None else answer.revoked.to_dict()
            told[member_id] = (answer.assigned.to_dict(), revoked)
            if member_id in missed:
                continue
            actor = self.actors[member_id]
            actor.told_to_stop = actor.owned - answer.assigned
            actor.owned = answer.assigned | (actor.owned & actor.slow)
            actor.generation = self.generation
            if self.timeout_ms:
                actor.rejoins_at_ms = now_ms + self.timeout_ms
                ends_in_ms = answer.loss_ends_in_ms
                actor.waits_until_ms = None if ends_in_ms is None else now_ms + ends_in_ms
            elif answer.revoked is None:  # without a follow-up round, a member keeps its knowledge
                actor.rejoins_at_ms = actor.waits_until_ms = None
            elif actor.rejoins_at_ms is not None and actor.rejoins_at_ms <= now_ms:
                actor.rejoins_at_ms = actor.waits_until_ms  # the pause is over, the wait continues
        self.check_single_owners()
        return told

    def check_single_owners(self) -> None:
        owners = Counter(
            (resource.name, resource.index)
            for actor in self.actors.values()
            for resource in actor.owned
        )
        assert [resource for resource, count in owners.items() if count > 1] == []


def steady(told: Mapping[str, Told]) -> bool:
    """Return whether no member has to rejoin immediately."""
    return all(revoked is None for _, revoked in told.values())


def four(**options: int) -> Drill:
    """Design II: "Initial group and assignment: A(T1), B(T2), C(T3), D(T4)"; a delay of T1."""
    drill = Drill(policy=DeferredPolicy(**{"scheduled_rebalance_timeout_ms": T1, **options}))
    drill.settle(A=[1], B=[2], C=[3], D=[4])
    return drill
