"""`PolicyState`: a leader's memory of the last round that it led.

It is kept in the leader's memory, and as JSON in the `state` field of `coopgroup plan`. Each round
writes a new value.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
from attrs import field, frozen

from coopgroup.core.model import EMPTY, NOBODY, ResourceSet
from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model import GroupSnapshot


_STATE_VERSION: Final = 4
_GENERATION_MAX: Final = 2**31 - 1
_TIME_MS_MAX: Final = 2**63 - 1


_SAME_ARRAY: Final = attrs.cmp_using(eq=np.array_equal)


@frozen(kw_only=True)
class Holdings:
    """The holder of each resource; a resource has at most one.

    Attributes:
        resources: N resources with a holder.
        holder: int32 (N,): positions in an accompanying sequence, in the order of `resources`.
    """

    resources: ResourceSet
    holder: Int32Array = field(eq=_SAME_ARRAY, hash=False)


@frozen(kw_only=True)
class Claims:
    """The claimants of each resource; a resource can have several.

    Attributes:
        resources: N resources, each with a claim; after a refused round perhaps without one.
        resource: int32 (K,): positions in `resources`, ascending.
        claimant: int32 (K,): positions in an accompanying sequence, ascending within a resource.
    """

    resources: ResourceSet
    resource: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    claimant: Int32Array = field(eq=_SAME_ARRAY, hash=False)


@frozen(kw_only=True)
class RunningWarmups:
    """The warm-ups of a round.

    Attributes:
        pairs: K pairs; the claimants are the members that warm up or stay warm.
        since_ms: int64 (K,): when each warm-up began on the leader's clock.
        warm: bool (K,): whether the member was warm. If it cools, its time begins anew.
    """

    pairs: Claims
    since_ms: Int64Array = field(eq=_SAME_ARRAY, hash=False)
    warm: BoolArray = field(eq=_SAME_ARRAY, hash=False)


_NONE: Final = np.zeros(0, dtype=np.int32)
NO_HOLDINGS: Final = Holdings(resources=EMPTY, holder=_NONE)
NO_CLAIMS: Final = Claims(resources=EMPTY, resource=_NONE, claimant=_NONE)
NO_WARMUPS: Final = RunningWarmups(
    pairs=NO_CLAIMS, since_ms=np.zeros(0, dtype=np.int64), warm=np.zeros(0, dtype=np.bool_)
)


@frozen(kw_only=True)
class Loss:
    """The resources of one departed member, and how long they wait for it.

    A loss is remembered until a member claims its resources. It is still remembered after they were
    granted: to the owner, its replacement or, after the wait, any member. If the receiver leaves
    before it has claimed them, the old deadline still counts.

    Attributes:
        owner: member id of the owner; None if unknown.
        instance_id: static id of the owner, None for a dynamic member.
        deadline_ms: end of the wait, on the leader's clock.
        given_ms: time of the last grant; None while the loss waits.
        shared: whether warm members took a part, so that the rest may be less than a fair share.
    """

    owner: str | None
    instance_id: str | None
    deadline_ms: int
    given_ms: int | None = None
    shared: bool = False

    @property
    def given_late(self) -> bool:
        """Return whether the resources were granted after the wait had ended."""
        return self.given_ms is not None and self.given_ms >= self.deadline_ms


@frozen(kw_only=True)
class Revoked:
    """Claims of one member that it was told to stop, and that it has not given up.

    Attributes:
        since_ms: when it was first told, on the leader's clock.
        is_owner: whether it was known to own them. Otherwise it claimed them with another member in
            one generation, or against a newer claim, or without a subscription.
    """

    resources: ResourceSet
    since_ms: int
    is_owner: bool


@frozen(kw_only=True)
class Given:
    """What one member may own after a round, as far as its leader knows.

    Attributes:
        assigned: what the round assigned to it, or what it may have owned before if its claims were
            unreadable; None if that is unknown, and it may own what no other member was assigned.
        revoked: what it must stop.
        earlier: what it may own instead if it has missed the round; None if unknown.
        is_refused: whether the leader ignored a claim of it.
    """

    member_id: str
    instance_id: str | None
    assigned: ResourceSet | None
    revoked: tuple[Revoked, ...] = ()
    earlier: ResourceSet | None = EMPTY
    is_refused: bool = False


@frozen(kw_only=True)
class PolicyState:
    """Memory of a leader.

    Attributes:
        generation: last generation that the leader had completed when it decided the round.
        members: member ids of the round, ascending.
        known: resources in the round's metadata that were owned at any time, as far as this leader
            knows.
        granted: never owned before, and granted in the round. The next round's claims show whether
            they are owned.
        released: unclaimed or revoked, and left without a holder by the round: no return is
            expected.
        silent: members whose subscription was unreadable in the round. They were assigned nothing,
            so they count as owning nothing in the next round.
        instance_ids: (member id, static id) of those of `members` that have one, ascending.
        holdings: positions in `members` of the holders after the round.
        losses: resources of departed members, by deadline and owner.
        lost: number in `losses` of each resource that is still unclaimed.
        stopping: positions in `members` of the members that must stop each resource.
        moves_due_ms: time before which no resource is taken from an owner that could keep it; None
            for no limit.
        moves_pending: whether the group has changed permanently, and the resulting moves are not
            done.
        initial_until_ms: until when the first members of the group wait for others; None for not at
            all.
        next_round_ms: earliest time at which a round should start even if nothing happens; None for
            never. The leader itself can start it if no delay could be announced.
        planned: resources to take later from owners that could keep them.
        blind: whether a resource has waited ever since a round without memory.
        subscriptions: the distinct sets of subscribed names in the round; empty if unknown.
        subscription_of: position in `subscriptions` of each member's subscription.
        promised: positions in `members` of the receivers of resources that were revoked to balance
            lags, and that are still being stopped.
        warmups: the round's warm-ups; the members are positions in `members`.
        receivers: positions in `members` of the receivers of moves that the round did not finish;
            only in a round with warm-ups.
        refused: warm-ups that timed out and were cancelled, as positions in `members`.
        memory: `StagedRound.memory` of the round: of a policy written by a user, and not in the
            JSON.
        given: what each member may own after the round; empty if unknown. Not in the JSON.
        given_in: generation of the round.
        given_before: as `given`, for the last round that the leader completed, unless this
            is the round before `given_in`.
        given_before_in: generation of that round.
    """

    generation: int
    members: tuple[str, ...]
    known: ResourceSet = EMPTY
    granted: ResourceSet = EMPTY
    released: ResourceSet = EMPTY
    silent: tuple[str, ...] = ()
    instance_ids: tuple[tuple[str, str], ...] = ()
    holdings: Holdings = NO_HOLDINGS
    losses: tuple[Loss, ...] = ()
    lost: Holdings = NO_HOLDINGS
    stopping: Claims = NO_CLAIMS
    moves_due_ms: int | None = None
    moves_pending: bool = False
    initial_until_ms: int | None = None
    next_round_ms: int | None = None
    planned: ResourceSet = EMPTY
    blind: bool = False
    subscriptions: tuple[tuple[str, ...], ...] = ()
    subscription_of: tuple[int, ...] = ()
    promised: Holdings = NO_HOLDINGS
    warmups: RunningWarmups = NO_WARMUPS
    receivers: Holdings = NO_HOLDINGS
    refused: Claims = NO_CLAIMS
    memory: object = None
    given: tuple[Given, ...] = ()
    given_in: int = -1
    given_before: tuple[Given, ...] = ()
    given_before_in: int = -1

    @cached_property
    def told_to_stop(self) -> tuple[tuple[Given, Revoked], ...]:
        """Members of `given` that had to stop resources, once for each of their `revoked`.

        The leader looks at them in every step.
        """
        return tuple((given, one) for given in self.given for one in given.revoked)


def member_numbers(group: GroupSnapshot, member_ids: tuple[str, ...]) -> Int32Array:
    """Return the numbers in this group of another round's members, `NOBODY` for absent ones.

    Args:
        group: the group.
        member_ids: N member ids.

    Returns:
        int32 (N + 1,): the last entry is `NOBODY`, so that `NOBODY` as an index stays `NOBODY`.
    """
    number_of = group.number_of_member
    numbers = [number_of.get(member, NOBODY) for member in member_ids]
    return np.array([*numbers, NOBODY], dtype=np.int32)


def returned_numbers(group: GroupSnapshot, state: PolicyState, there: Int32Array) -> Int32Array:
    """Return the numbers of the last round's members, and of returned static ones: int32 (N + 1,).

    A static member that was fenced returns under another member id.

    Args:
        group: the group.
        state: the leader's memory of a last round with N members.
        there: int32 (N + 1,), `member_numbers` of these members.
    """
    instance_of = dict(state.instance_ids)
    if not instance_of:
        return there
    by_instance = {m.instance_id: number for number, m in enumerate(group.members)}
    numbers = there.copy()
    for position, member_id in enumerate(state.members):
        if there[position] == NOBODY and member_id in instance_of:
            numbers[position] = by_instance.get(instance_of[member_id], NOBODY)
    return numbers


def state_to_json(state: PolicyState) -> dict[str, Any]:
    """Convert a state, except for `memory` and `given`, to an object for `json.dumps`."""
    return {
        "version": _STATE_VERSION,
        "generation": state.generation,
        "members": list(state.members),
        "known": state.known.to_dict(),
        "granted": state.granted.to_dict(),
        "released": state.released.to_dict(),
        "silent": list(state.silent),
        "instance_ids": dict(state.instance_ids),
        "holdings": _holdings_to_json(state.holdings),
        "losses": [_loss_to_json(loss) for loss in state.losses],
        "lost": _holdings_to_json(state.lost),
        "stopping": _claims_to_json(state.stopping),
        "moves_due_ms": state.moves_due_ms,
        "moves_pending": state.moves_pending,
        "initial_until_ms": state.initial_until_ms,
        "next_round_ms": state.next_round_ms,
        "planned": state.planned.to_dict(),
        "blind": state.blind,
        "subscriptions": [list(names) for names in state.subscriptions],
        "subscription_of": list(state.subscription_of),
        "promised": _holdings_to_json(state.promised),
    } | _warmups_to_json(state)


def state_from_json(row: Mapping[str, Any] | None) -> PolicyState | None:
    """Read an object that `state_to_json` wrote.

    Raises:
        ConfigurationError: the object was not written by `state_to_json`.
    """
    if row is None:
        return None
    try:
        return _read(row)
    except ConfigurationError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as cause:
        raise ConfigurationError("state", row, "the state of an earlier output line") from cause


def _read(row: Mapping[str, Any]) -> PolicyState:
    if row["version"] != _STATE_VERSION:
        raise ConfigurationError("state.version", row["version"], f"{_STATE_VERSION}")
    members = tuple(str(member) for member in row["members"])
    if list(members) != sorted(set(members)):
        raise ConfigurationError("state.members", row["members"], "ids in order, each once")
    strangers = row["instance_ids"].keys() - set(members)
    if strangers:
        raise ConfigurationError("state.instance_ids", min(strangers), "ids of members only")
    return PolicyState(
        generation=_read_generation(row["generation"]),
        members=members,
        known=ResourceSet(row["known"]),
        granted=ResourceSet(row["granted"]),
        released=ResourceSet(row["released"]),
        silent=tuple(str(member) for member in row["silent"]),
        instance_ids=tuple(sorted((str(m), str(i)) for m, i in row["instance_ids"].items())),
        holdings=_read_holdings(row["holdings"], "holdings", len(members)),
        losses=tuple(_read_loss(loss) for loss in row["losses"]),
        lost=_read_holdings(row["lost"], "lost", len(row["losses"])),
        stopping=_read_claims(row["stopping"], "stopping", len(members)),
        moves_due_ms=_read_time(row["moves_due_ms"]),
        moves_pending=bool(row["moves_pending"]),
        initial_until_ms=_read_time(row["initial_until_ms"]),
        next_round_ms=_read_time(row["next_round_ms"]),
        planned=ResourceSet(row["planned"]),
        blind=bool(row["blind"]),
        subscriptions=tuple(tuple(str(n) for n in names) for names in row["subscriptions"]),
        subscription_of=_read_subscription_of(row, len(members)),
        promised=_read_holdings(row["promised"], "promised", len(members)),
        warmups=_read_warmups(row.get("warmups"), len(members)),
        receivers=_read_holdings(row["receivers"], "receivers", len(members))
        if "receivers" in row
        else NO_HOLDINGS,
        refused=_read_claims(row["refused"], "refused", len(members))
        if "refused" in row
        else NO_CLAIMS,
    )


def _read_warmups(row: Mapping[str, Any] | None, member_count: int) -> RunningWarmups:
    if row is None:
        return NO_WARMUPS
    pairs = _read_claims(row, "warmups", member_count)
    since_ms = [_within(int(str(time_ms))) for time_ms in row["since_ms"]]
    warm = [bool(one) for one in row["warm"]]
    for name, items in (("since_ms", since_ms), ("warm", warm)):
        if len(items) != pairs.resource.size:
            expected = f"{pairs.resource.size} items"
            raise ConfigurationError(f"state.warmups.{name}", row[name], expected)
    return RunningWarmups(
        pairs=pairs,
        since_ms=np.array(since_ms, dtype=np.int64),
        warm=np.array(warm, dtype=np.bool_),
    )


def _warmups_to_json(state: PolicyState) -> dict[str, Any]:
    """Return the keys of warm-ups: those that are not empty."""
    row: dict[str, Any] = {}
    if state.warmups.since_ms.size:
        row["warmups"] = _claims_to_json(state.warmups.pairs) | {
            "since_ms": state.warmups.since_ms.tolist(),
            "warm": state.warmups.warm.tolist(),
        }
    if state.receivers.resources:
        row["receivers"] = _holdings_to_json(state.receivers)
    if state.refused.resources:
        row["refused"] = _claims_to_json(state.refused)
    return row


def _claims_to_json(claims: Claims) -> dict[str, Any]:
    return {
        "resources": claims.resources.to_dict(),
        "resource": claims.resource.tolist(),
        "claimant": claims.claimant.tolist(),
    }


def _holdings_to_json(holdings: Holdings) -> dict[str, Any]:
    return {"resources": holdings.resources.to_dict(), "holder": holdings.holder.tolist()}


def _loss_to_json(loss: Loss) -> dict[str, Any]:
    row = attrs.asdict(loss)
    if not loss.shared:  # only warm-ups need the key
        del row["shared"]
    return row


def _read_loss(row: Mapping[str, Any]) -> Loss:
    return Loss(
        owner=None if row["owner"] is None else str(row["owner"]),
        instance_id=None if row["instance_id"] is None else str(row["instance_id"]),
        deadline_ms=_within(int(row["deadline_ms"])),
        given_ms=_read_time(row["given_ms"]),
        shared=bool(row.get("shared", False)),
    )


def _read_holdings(row: Mapping[str, Any], position: str, count: int) -> Holdings:
    resources = ResourceSet(row["resources"])
    return Holdings(
        resources=resources,
        holder=_read_numbers(row["holder"], f"{position}.holder", len(resources), count),
    )


def _read_claims(row: Mapping[str, Any], position: str, member_count: int) -> Claims:
    resources = ResourceSet(row["resources"])
    count = len(row["resource"])
    claims = Claims(
        resources=resources,
        resource=_read_numbers(row["resource"], f"{position}.resource", count, len(resources)),
        claimant=_read_numbers(row["claimant"], f"{position}.claimant", count, member_count),
    )
    pairs = claims.resource.astype(np.int64) * member_count + claims.claimant
    if (np.diff(pairs) <= 0).any():
        raise ConfigurationError(f"state.{position}", row["resource"], "claims in order, each once")
    return claims


def _read_numbers(value: object, field_: str, count: int, below: int) -> Int32Array:
    numbers = np.array(value, dtype=np.int64)
    if numbers.shape != (count,) or ((numbers < 0) | (numbers >= below)).any():
        raise ConfigurationError(f"state.{field_}", value, f"{count} numbers from 0 to {below - 1}")
    return numbers.astype(np.int32)


def _read_subscription_of(row: Mapping[str, Any], member_count: int) -> tuple[int, ...]:
    count = member_count if row["subscriptions"] else 0
    numbers = _read_numbers(
        row["subscription_of"], "subscription_of", count, len(row["subscriptions"])
    )
    return tuple(numbers.tolist())


def _read_generation(value: object) -> int:
    generation = int(str(value))
    if not -1 <= generation <= _GENERATION_MAX:
        raise ConfigurationError(
            "state.generation", value, f"an integer from -1 to {_GENERATION_MAX}"
        )
    return generation


def _read_time(value: object) -> int | None:
    return None if value is None else _within(int(str(value)))


def _within(time_ms: int) -> int:
    if not -_TIME_MS_MAX - 1 <= time_ms <= _TIME_MS_MAX:
        raise ConfigurationError("state", time_ms, f"times in ms up to {_TIME_MS_MAX}")
    return time_ms
