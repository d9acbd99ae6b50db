"""The groups that assignors are measured with.

A group depends only on its case and its size. Partitions are owned in turns (resource r by member r
modulo their number). That is balanced, and it is not the placement of any assignor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from coopgroup.core.assignors.pools import Pool
from coopgroup.core.model import (
    EMPTY,
    NOBODY,
    GroupSnapshot,
    MemberClaim,
    ResourceSet,
    resolve_claims,
)

__all__ = [
    "CASES",
    "Case",
    "Group",
    "claims_of",
    "draw",
    "drawn_lags",
    "pools_of",
    "racks_by_name",
    "snapshot_of",
]

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

GENERATION: Final = 7
MEMBERS_MAX: Final = 2_000
TOPIC_PARTITIONS: Final = 1_000
TOPICS_MIN: Final = 10
BUCKETS: Final = 5
RANDOM_TOPICS: Final = 20
SKEWED_TOPICS: Final = 100
RACKS: Final = ("rack-a", "rack-b", "rack-c")
REPLICAS: Final = 2
LOG_LAG_MEAN: Final = 8.0
LOG_LAG_DEVIATION: Final = 1.5


@frozen(kw_only=True, eq=False)
class Group:
    """A group with M members, C distinct subscriptions, T topics and R partitions.

    Attributes:
        topics: name and number of partitions of each topic, names ascending.
        subscriptions: the C subscriptions, as numbers of topics.
        members: ids of members, ascending.
        class_of: int32 (M,): position in `subscriptions`.
        owner: int32 (R,): member number, or `NOBODY`.
        member_racks: int32 (M,): position in `RACKS`, -1 for none.
        replica_racks: int32 (R, k): positions in `RACKS` of the replicas; k is 0 without racks.
    """

    topics: tuple[tuple[str, int], ...]
    subscriptions: tuple[tuple[int, ...], ...]
    members: tuple[str, ...]
    class_of: Int32Array
    owner: Int32Array
    member_racks: Int32Array
    replica_racks: Int32Array


@frozen(kw_only=True)
class Case:
    """A kind of group, and an event.

    Attributes:
        title: row of a table.
        event: "full" (no partition has an owner), "join", "leave", or "bounce" (a member came back
            under another id).
        mix: "uniform" (all subscribe to all), "buckets" (five disjoint parts of
            uneven sizes) or "random".
        skewed: whether topics differ in size; else they have about a thousand partitions each.
        racks: whether racks are known.
        partitions_per_member: used unless it gives more members than are allowed.
    """

    title: str
    event: str = "full"
    mix: str = "uniform"
    skewed: bool = False
    racks: bool = False
    partitions_per_member: int = 100


CASES: Final[Mapping[str, Case]] = {
    "full": Case(title="first assignment"),
    "join": Case(title="a member joins", event="join"),
    "leave": Case(title="a member leaves", event="leave"),
    "bounce": Case(title="a step of a rolling bounce", event="bounce"),
    "racks": Case(title="first assignment, racks known", racks=True),
    "buckets": Case(
        title="a member joins, five disjoint subscriptions",
        event="join",
        mix="buckets",
        partitions_per_member=10,
    ),
    "random": Case(title="a member joins, random subscriptions", event="join", mix="random"),
    "skewed": Case(title="a member joins, topics of uneven sizes", event="join", skewed=True),
}


def draw(case: Case, partitions: int, *, members_max: int = MEMBERS_MAX) -> Group:
    """Draw the group of a case, with about so many partitions: topics have whole sizes."""
    chance = np.random.default_rng(partitions)
    members = max(BUCKETS + 1, min(partitions // case.partitions_per_member, members_max))
    topics = _topics(case, partitions)
    subscriptions, class_of = _subscriptions(case, len(topics), members, chance)
    total = sum(count for _, count in topics)
    group = Group(
        topics=topics,
        subscriptions=subscriptions,
        members=tuple(f"member-{number:05d}" for number in range(members)),
        class_of=class_of,
        owner=np.full(total, NOBODY, dtype=np.int32),
        member_racks=np.full(members, -1, dtype=np.int32),
        replica_racks=np.empty((total, 0), dtype=np.int32),
    )
    if case.racks:
        first = chance.integers(len(RACKS), size=(total, 1))
        group = evolve(
            group,
            member_racks=np.arange(members, dtype=np.int32) % len(RACKS),
            replica_racks=((first + np.arange(REPLICAS)) % len(RACKS)).astype(np.int32),
        )
    if case.event == "full":
        return group
    return evolve(group, owner=_owners(group, case.event))


def drawn_lags(count: int) -> Int64Array:
    """Log-normal lags: int64 (count,)."""
    chance = np.random.default_rng(count)
    return chance.lognormal(LOG_LAG_MEAN, LOG_LAG_DEVIATION, count).astype(np.int64)


def claims_of(group: Group) -> tuple[list[MemberClaim], ResourceSet]:
    """Return the claims of the members, and the existing partitions."""
    existing = ResourceSet({name: range(count) for name, count in group.topics})
    names = [tuple(group.topics[number][0] for number in one) for one in group.subscriptions]
    snapshot = resolve_claims(
        [MemberClaim(member_id=member, topics=()) for member in group.members], existing
    )
    claims = [
        MemberClaim(
            member_id=member,
            topics=names[number],
            owned=owned or EMPTY,
            generation=GENERATION,
            rack=None if rack < 0 else RACKS[rack],
        )
        for member, number, owned, rack in zip(
            group.members,
            group.class_of.tolist(),
            snapshot.by_member(group.owner),
            group.member_racks.tolist(),
            strict=True,
        )
    ]
    return claims, existing


def snapshot_of(group: Group) -> GroupSnapshot:
    """Return the group as our leader sees it."""
    claims, existing = claims_of(group)
    return resolve_claims(claims, existing, racks_by_name(group))


def racks_by_name(group: Group) -> Mapping[str, Mapping[int, list[str]]] | None:
    """Return the racks of the replicas by topic and partition; None if they are unknown."""
    if not group.replica_racks.shape[1]:
        return None
    rows = iter(group.replica_racks.tolist())
    return {
        name: {index: [RACKS[rack] for rack in next(rows)] for index in range(count)}
        for name, count in group.topics
    }


def pools_of(group: Group) -> list[Pool]:
    """Return the pools: all partitions of a pool have the same subscribers."""
    subscribed = np.zeros((len(group.subscriptions), len(group.topics)), dtype=np.bool_)
    for number, topics in enumerate(group.subscriptions):
        subscribed[number, list(topics)] = True
    patterns, pool_of_topic = np.unique(subscribed, axis=1, return_inverse=True)
    counts = [count for _, count in group.topics]
    pool_of = np.repeat(pool_of_topic.reshape(-1), counts)
    return [
        Pool(
            subscribers=np.flatnonzero(pattern[group.class_of]).astype(np.int32),
            resources=np.flatnonzero(pool_of == number),
        )
        for number, pattern in enumerate(patterns.T)
        if pattern.any()
    ]


def _topics(case: Case, partitions: int) -> tuple[tuple[str, int], ...]:
    if case.skewed or case.mix == "buckets":
        # Equal buckets would favour assignors that first ask whether all counts are equal.
        ranks = np.arange(1, (SKEWED_TOPICS if case.skewed else BUCKETS) + 1)
        shares = 1.0 / ranks if case.skewed else ranks
        sizes = np.maximum(1, np.round(partitions * shares / shares.sum())).astype(int).tolist()
    else:
        count = max(TOPICS_MIN, partitions // TOPIC_PARTITIONS)
        if case.mix == "random":
            count = RANDOM_TOPICS
        sizes = [partitions // count] * count
    return tuple((f"topic-{number:05d}", size) for number, size in enumerate(sizes))


def _subscriptions(
    case: Case, topics: int, members: int, chance: np.random.Generator
) -> tuple[tuple[tuple[int, ...], ...], Int32Array]:
    if case.mix == "uniform":
        return (tuple(range(topics)),), np.zeros(members, dtype=np.int32)
    if case.mix == "buckets":
        parts = tuple(tuple(range(first, topics, BUCKETS)) for first in range(BUCKETS))
        return parts, np.arange(members, dtype=np.int32) % BUCKETS
    drawn = chance.random((members, topics)) < 1 / 2
    drawn[np.arange(topics) % members, np.arange(topics)] = True  # every member has a topic
    drawn[~drawn.any(axis=1), 0] = True
    rows, class_of = np.unique(drawn, axis=0, return_inverse=True)
    subscriptions = tuple(tuple(np.flatnonzero(row).tolist()) for row in rows)
    return subscriptions, class_of.reshape(-1).astype(np.int32)


def _owners(group: Group, event: str) -> Int32Array:
    """Return the owners before the event, pool by pool: int32 (R,)."""
    owner = np.full(group.owner.size, NOBODY, dtype=np.int32)
    newcomer = len(group.members) // 2
    for pool in pools_of(group):
        takers = pool.subscribers
        if event == "join":
            takers = takers[takers != newcomer]
        elif event == "leave":
            takers = np.append(takers, np.int32(NOBODY))
        if takers.size:
            owner[pool.resources] = takers[np.arange(pool.resources.size) % takers.size]
    if event == "bounce":
        owner[owner == newcomer] = NOBODY
    return owner
