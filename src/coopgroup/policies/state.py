"""`PolicyState`: what a leader remembers from the round that it led last.

It lives in the leader's memory, and in the `state` field of `coopgroup plan` as JSON. It is
written anew by each round and never changed in place. Version 1 of the JSON, which ends with
`silent`, is still read.
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
    "NO_HOLDINGS",
    "Holdings",
    "Loss",
    "PolicyState",
    "state_from_json",
    "state_to_json",
]

_STATE_VERSION: Final = 2
_VERSIONS: Final = (1, 2)


@frozen(kw_only=True)
class Holdings:
    """Who held what after a round.

    Attributes:
        resources: N resources that had a holder.
        holder: int32 (N,): positions in the members of the round, in the order of `resources`.
    """

    resources: ResourceSet
    holder: Int32Array = field(eq=attrs.cmp_using(eq=np.array_equal), hash=False)


NO_HOLDINGS: Final = Holdings(resources=EMPTY, holder=np.zeros(0, dtype=np.int32))


@frozen(kw_only=True)
class Loss:
    """What one member left behind, and until when it is kept for it.

    A loss is remembered until somebody claims what was lost, also after it was given to a member:
    if that one soon leaves again, before it ever claimed it, the old deadline still counts.

    Attributes:
        owner: member id of who owned it; None when that is not known.
        instance_id: static id of the owner, None for a dynamic member.
        resources: what nobody has claimed since.
        deadline_ms: when the wait for the owner ends, on the leader's clock.
        given_ms: when it was last given to a member; None while it waits.
    """

    owner: str | None
    instance_id: str | None
    resources: ResourceSet
    deadline_ms: int
    given_ms: int | None = None


@frozen(kw_only=True)
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
        holdings: who held what after the round.
        losses: what departed members left, by deadline and owner.
        stopping: (member id, claims) that the round told members to stop, ascending.
        moves_due_ms: before that time nothing is taken from an owner that could keep it; None
            when it may be at any time.
        moves_pending: whether such moves were wanted and put off.
        initial_until_ms: until when the first members of the group wait for others; None for not.
        next_round_ms: earliest time at which a round should come though nothing happens; None for
            none. The leader itself can ask for it where no delay could be announced.
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
    stopping: tuple[tuple[str, ResourceSet], ...] = ()
    moves_due_ms: int | None = None
    moves_pending: bool = False
    initial_until_ms: int | None = None
    next_round_ms: int | None = None


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
    return row | {
        "instance_ids": dict(state.instance_ids),
        "holdings": {
            "resources": state.holdings.resources.to_dict(),
            "holder": state.holdings.holder.tolist(),
        },
        "losses": [_loss_to_json(loss) for loss in state.losses],
        "stopping": {member: claims.to_dict() for member, claims in state.stopping},
        "moves_due_ms": state.moves_due_ms,
        "moves_pending": state.moves_pending,
        "initial_until_ms": state.initial_until_ms,
        "next_round_ms": state.next_round_ms,
    }


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
    state = PolicyState(
        generation=int(row["generation"]),
        members=tuple(str(member) for member in row["members"]),
        known=ResourceSet(row["known"]),
        granted=ResourceSet(row["granted"]),
        released=ResourceSet(row["released"]),
        silent=tuple(str(member) for member in row["silent"]),
    )
    if row["version"] == 1:
        return state
    return attrs.evolve(
        state,
        instance_ids=tuple(sorted((str(m), str(i)) for m, i in row["instance_ids"].items())),
        holdings=_read_holdings(row["holdings"], len(state.members)),
        losses=tuple(_read_loss(loss) for loss in row["losses"]),
        stopping=tuple(sorted((str(m), ResourceSet(c)) for m, c in row["stopping"].items())),
        moves_due_ms=_read_time(row["moves_due_ms"]),
        moves_pending=bool(row["moves_pending"]),
        initial_until_ms=_read_time(row["initial_until_ms"]),
        next_round_ms=_read_time(row["next_round_ms"]),
    )


def _loss_to_json(loss: Loss) -> dict[str, Any]:
    return {
        "owner": loss.owner,
        "instance_id": loss.instance_id,
        "resources": loss.resources.to_dict(),
        "deadline_ms": loss.deadline_ms,
        "given_ms": loss.given_ms,
    }


def _read_loss(row: Mapping[str, Any]) -> Loss:
    return Loss(
        owner=None if row["owner"] is None else str(row["owner"]),
        instance_id=None if row["instance_id"] is None else str(row["instance_id"]),
        resources=ResourceSet(row["resources"]),
        deadline_ms=int(row["deadline_ms"]),
        given_ms=_read_time(row["given_ms"]),
    )


def _read_holdings(row: Mapping[str, Any], member_count: int) -> Holdings:
    resources = ResourceSet(row["resources"])
    holder = np.array(row["holder"], dtype=np.int64)
    if holder.shape != (len(resources),) or ((holder < 0) | (holder >= member_count)).any():
        raise ConfigurationError(
            "state.holdings.holder", row["holder"], "the number of a member for each resource"
        )
    return Holdings(resources=resources, holder=holder.astype(np.int32))


def _read_time(value: object) -> int | None:
    return None if value is None else int(str(value))
