"""`PolicyState`: what a leader remembers from the round that it led last.

It lives in the leader's memory, and in the `state` field of `coopgroup plan` as JSON. It is
written anew by each round and never changed in place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from coopgroup.errors import ConfigurationError
from coopgroup.model import EMPTY, ResourceSet

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PolicyState", "state_from_json", "state_to_json"]

_STATE_VERSION: Final = 1


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
    """

    generation: int
    members: tuple[str, ...]
    known: ResourceSet = EMPTY
    granted: ResourceSet = EMPTY
    released: ResourceSet = EMPTY
    silent: tuple[str, ...] = ()


def state_to_json(state: PolicyState) -> dict[str, Any]:
    """Turn a state into an object that `json.dumps` takes."""
    return {
        "version": _STATE_VERSION,
        "generation": state.generation,
        "members": list(state.members),
        "known": state.known.to_dict(),
        "granted": state.granted.to_dict(),
        "released": state.released.to_dict(),
        "silent": list(state.silent),
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
    except (KeyError, TypeError, AttributeError, ValueError) as cause:
        raise ConfigurationError("state", row, "the state of an earlier output line") from cause


def _read(row: Mapping[str, Any]) -> PolicyState:
    if row["version"] != _STATE_VERSION:
        raise ConfigurationError("state.version", row["version"], f"{_STATE_VERSION}")
    return PolicyState(
        generation=int(row["generation"]),
        members=tuple(str(member) for member in row["members"]),
        known=ResourceSet(row["known"]),
        granted=ResourceSet(row["granted"]),
        released=ResourceSet(row["released"]),
        silent=tuple(str(member) for member in row["silent"]),
    )
