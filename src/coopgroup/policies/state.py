"""`PolicyState`: what a leader remembers from the round that it led last.

It lives in the leader's memory, and in the `state` field of `coopgroup plan` as JSON. It is
written anew by each round and never changed in place. Of the JSON, version 1, which ends with
`silent`, version 2, which ends with `next_round_ms`, and version 3, which ends with
`subscription_of`, are still read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
from attrs import field, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.resource_set import Int32Array

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "NO_CLAIMS",
    "NO_HOLDINGS",
    "Claims",
    "Holdings",
    "Loss",
    "PolicyState",
    "state_from_json",
    "state_to_json",
]

_STATE_VERSION: Final = 4
_VERSIONS: Final = (1, 2, 3, 4)
_WITHOUT_PLANS: Final = 2
_WITHOUT_PROMISES: Final = 3
_GENERATION_MAX: Final = 2**31 - 1
_TIME_MS_MAX: Final = 2**63 - 1


_SAME_ARRAY: Final = attrs.cmp_using(eq=np.array_equal)


@frozen(kw_only=True)
class Holdings:
    """Who has which resource; no resource has two holders.

    Attributes:
        resources: N resources that have a holder.
        holder: int32 (N,): positions in a sequence that stands beside it, in the order of
            `resources`.
    """

    resources: ResourceSet
    holder: Int32Array = field(eq=_SAME_ARRAY, hash=False)


@frozen(kw_only=True)
class Claims:
    """Who claims which resource; a resource may have several claimants.

    Attributes:
        resources: N resources, each with a claim.
        resource: int32 (K,): positions in `resources`, ascending.
        claimant: int32 (K,): positions in a sequence that stands beside it; ascending within a
            resource.
    """

    resources: ResourceSet
    resource: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    claimant: Int32Array = field(eq=_SAME_ARRAY, hash=False)


_NONE: Final = np.zeros(0, dtype=np.int32)
NO_HOLDINGS: Final = Holdings(resources=EMPTY, holder=_NONE)
NO_CLAIMS: Final = Claims(resources=EMPTY, resource=_NONE, claimant=_NONE)


@frozen(kw_only=True)
class Loss:
    """What one member left behind, and until when it is kept for it.

    A loss is remembered until somebody claims what was lost, also after it was given to a member:
    if that one soon leaves again, before it ever claimed it, the old deadline still counts.

    Attributes:
        owner: member id of who owned it; None when that is not known.
        instance_id: static id of the owner, None for a dynamic member.
        deadline_ms: when the wait for the owner ends, on the leader's clock.
        given_ms: when it was last given to a member; None while it waits.
    """

    owner: str | None
    instance_id: str | None
    deadline_ms: int
    given_ms: int | None = None


@frozen(kw_only=True, slots=False)  # for `replaced`
class PolicyState:
    """Memory of a leader.

    Attributes:
        generation: last generation that the leader had completed when it decided the round.
        members: member ids of the round, ascending.
        known: resources that were owned at any time, as far as this leader has seen, and that the
            metadata had in the round.
        granted: never owned before, and granted in the round. Whether they are owned from then on
            the next round's claims tell.
        released: claimed by nobody any more, or told to be stopped, and left without a holder by
            the round: nobody is expected to come back for them.
        silent: members whose subscription could not be read in the round. They were told to hold
            nothing, so they count as owning nothing when they come again.
        instance_ids: (member id, static id) of those of `members` that have one, ascending.
        holdings: who of `members` held what after the round.
        losses: what departed members left, by deadline and owner.
        lost: which of `losses` a resource that nobody has claimed since is part of.
        stopping: which of `members` were told to stop what.
        moves_due_ms: before that time nothing is taken from an owner that could keep it; None
            when it may be at any time.
        moves_pending: whether the group has changed for good, and what that led to is not done.
        initial_until_ms: until when the first members of the group wait for others; None for not.
        next_round_ms: earliest time at which a round should come though nothing happens; None for
            none. The leader itself can ask for it where no delay could be announced.
        planned: what is to be taken from owners that could keep it, and was put off.
        blind: whether something has waited ever since a round that its leader had no memory in.
        subscriptions: the distinct sets of subscribed names in the round; none where not known.
        subscription_of: which of these each of `members` had.
        promised: which of `members` is to get what was taken from its owner to even lags out, and
            is still being stopped.
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


def state_to_json(state: PolicyState, *, version: int = _STATE_VERSION) -> dict[str, Any]:
    """Turn a state into an object that `json.dumps` takes.

    Args:
        state: the state.
        version: of the JSON; version 1 leaves out what it did not have.
    """
    row = {
        "version": version,
        "generation": state.generation,
        "members": list(state.members),
        "known": state.known.to_dict(),
        "granted": state.granted.to_dict(),
        "released": state.released.to_dict(),
        "silent": list(state.silent),
    }
    if version == 1:
        return row
    row |= {
        "instance_ids": dict(state.instance_ids),
        "holdings": _holdings_to_json(state.holdings),
        "losses": [attrs.asdict(loss) for loss in state.losses],
        "lost": _holdings_to_json(state.lost),
        "stopping": {
            "resources": state.stopping.resources.to_dict(),
            "resource": state.stopping.resource.tolist(),
            "claimant": state.stopping.claimant.tolist(),
        },
        "moves_due_ms": state.moves_due_ms,
        "moves_pending": state.moves_pending,
        "initial_until_ms": state.initial_until_ms,
        "next_round_ms": state.next_round_ms,
    }
    if version == _WITHOUT_PLANS:
        return row
    row |= {
        "planned": state.planned.to_dict(),
        "blind": state.blind,
        "subscriptions": [list(names) for names in state.subscriptions],
        "subscription_of": list(state.subscription_of),
    }
    if version == _WITHOUT_PROMISES:
        return row
    return row | {"promised": _holdings_to_json(state.promised)}


def state_from_json(row: Mapping[str, Any] | None) -> PolicyState | None:
    """Read what `state_to_json` wrote.

    Raises:
        ConfigurationError: it was not written by `state_to_json`.
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
    if row["version"] not in _VERSIONS:
        raise ConfigurationError("state.version", row["version"], f"{_STATE_VERSION}")
    members = tuple(str(member) for member in row["members"])
    if list(members) != sorted(set(members)):
        raise ConfigurationError("state.members", row["members"], "ids in order, each once")
    state = PolicyState(
        generation=_read_generation(row["generation"]),
        members=members,
        known=ResourceSet(row["known"]),
        granted=ResourceSet(row["granted"]),
        released=ResourceSet(row["released"]),
        silent=tuple(str(member) for member in row["silent"]),
    )
    if row["version"] == 1:
        return state
    strangers = row["instance_ids"].keys() - set(members)
    if strangers:
        raise ConfigurationError("state.instance_ids", min(strangers), "ids of members only")
    state = attrs.evolve(
        state,
        instance_ids=tuple(sorted((str(m), str(i)) for m, i in row["instance_ids"].items())),
        holdings=_read_holdings(row["holdings"], "holdings", len(state.members)),
        losses=tuple(_read_loss(loss) for loss in row["losses"]),
        lost=_read_holdings(row["lost"], "lost", len(row["losses"])),
        stopping=_read_claims(row["stopping"], len(state.members)),
        moves_due_ms=_read_time(row["moves_due_ms"]),
        moves_pending=bool(row["moves_pending"]),
        initial_until_ms=_read_time(row["initial_until_ms"]),
        next_round_ms=_read_time(row["next_round_ms"]),
    )
    if row["version"] == _WITHOUT_PLANS:
        return state
    state = attrs.evolve(
        state,
        planned=ResourceSet(row["planned"]),
        blind=bool(row["blind"]),
        subscriptions=tuple(tuple(str(n) for n in names) for names in row["subscriptions"]),
        subscription_of=_read_subscription_of(row, len(members)),
    )
    if row["version"] == _WITHOUT_PROMISES:
        return state
    return attrs.evolve(
        state, promised=_read_holdings(row["promised"], "promised", len(state.members))
    )


def _holdings_to_json(holdings: Holdings) -> dict[str, Any]:
    return {"resources": holdings.resources.to_dict(), "holder": holdings.holder.tolist()}


def _read_loss(row: Mapping[str, Any]) -> Loss:
    return Loss(
        owner=None if row["owner"] is None else str(row["owner"]),
        instance_id=None if row["instance_id"] is None else str(row["instance_id"]),
        deadline_ms=_within(int(row["deadline_ms"])),
        given_ms=_read_time(row["given_ms"]),
    )


def _read_holdings(row: Mapping[str, Any], place: str, count: int) -> Holdings:
    resources = ResourceSet(row["resources"])
    return Holdings(
        resources=resources,
        holder=_read_numbers(row["holder"], f"{place}.holder", len(resources), count),
    )


def _read_claims(row: Mapping[str, Any], member_count: int) -> Claims:
    resources = ResourceSet(row["resources"])
    count = len(row["resource"])
    claims = Claims(
        resources=resources,
        resource=_read_numbers(row["resource"], "stopping.resource", count, len(resources)),
        claimant=_read_numbers(row["claimant"], "stopping.claimant", count, member_count),
    )
    pairs = claims.resource.astype(np.int64) * member_count + claims.claimant
    if (np.diff(pairs) <= 0).any():
        raise ConfigurationError("state.stopping", row["resource"], "claims in order, each once")
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
