"""Read an input line of `coopgroup plan`.

The format is fixed (docs: simulator). `coopgroup.reading` checks the fields. A field with one item
per partition is checked here, because the order of its items is that of `topics`. Such a list is
checked as a whole, because it may have a million items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from attrs import Attribute, Factory, evolve, field, frozen

from coopgroup.core.assignors.base import Assignor
from coopgroup.core.assignors.registry import choose_assignor
from coopgroup.core.leader import Lags, TopicMetadata
from coopgroup.core.model import EMPTY, MemberClaim, ResourceSet
from coopgroup.core.model.group import Float64Array
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.policies.built_in import choose_policy
from coopgroup.core.policies.memory import PolicyState, state_from_json, state_to_json
from coopgroup.core.policies.policy import Policy, RoundContext
from coopgroup.errors import ConfigurationError, one_line
from coopgroup.reading import (
    INT32_MAX,
    NOTHING,
    Row,
    StrictConverter,
    are_traits,
    between,
    int32_list,
    joined,
    parse_json,
    structure,
    wrong,
)

__all__ = ["RESOURCES_MAX", "Defaults", "PlanLine", "parse_line", "read_line"]

RESOURCES_MAX: Final = 10_000_000
"""Limit of the partitions in one line's `topics`: a typing error must not use up the memory."""

_INT64: Final = (-(2**63), 2**63 - 1)
_RATE_MAX: Final = 10**15


@frozen(kw_only=True)
class Defaults:
    """Defaults for lines without these fields: a name, or a row of name and options."""

    assignor: str | Row
    policy: str | Row


@frozen(kw_only=True, eq=False)
class PlanLine:
    """A validated input line."""

    claims: tuple[MemberClaim, ...]
    metadata: TopicMetadata
    lags: Lags
    assignor: Assignor
    policy: Policy
    context: RoundContext


# --- the fields of a line -----------------------------------------------------------------------


def _rate(_: object, attribute: Attribute[Any], value: float | None) -> None:
    if value is not None and not 0 <= value <= _RATE_MAX:
        raise wrong(attribute.name, value, f"null, or a number from 0 to {_RATE_MAX}")


def _hands_over(member: _Member, attribute: Attribute[bool], value: bool) -> None:  # noqa: FBT001
    if value and member.topics:
        raise wrong(attribute.name, value, "no topics beside it")


@frozen(kw_only=True)
class _Member:
    topics: tuple[str, ...]
    owned: ResourceSet = EMPTY
    generation: int = field(default=-1, validator=between(-1, INT32_MAX))
    instance_id: str | None = None
    rack: str | None = None
    remaining_delay_ms: int | None = field(default=None, validator=between(0, INT32_MAX))
    loss_ends_in_ms: int | None = field(
        default=Factory(lambda self: self.remaining_delay_ms, takes_self=True),
        validator=between(0, INT32_MAX),
    )
    consumption_rate_per_s: float | None = field(default=None, validator=_rate)
    warm: ResourceSet | None = None
    hands_over: bool = field(default=False, validator=_hands_over)
    traits: Mapping[str, object] = field(factory=dict, validator=are_traits)


_Indices: TypeAlias = Annotated[Int32Array, "a count, or a list of indices"]


def _indices(value: Any, _: Any) -> Int32Array:  # noqa: ANN401
    if isinstance(value, list):
        indices = int32_list(value)
        if np.unique(indices).size < indices.size:
            raise wrong("", value, "every index once")
        return indices
    if type(value) is not int or not 0 <= value <= RESOURCES_MAX:
        raise wrong("", value, f"a count from 0 to {RESOURCES_MAX}, or a list of indices")
    return np.arange(value, dtype=np.int32)


def _state(value: Any, _: Any) -> PolicyState:  # noqa: ANN401
    try:
        state = state_from_json(value) if isinstance(value, dict) else None
    except ValueError:
        state = None
    if state is None or state_to_json(state) != value:
        raise wrong("", value, "null or the state of an earlier output line")
    return state


_Choice: TypeAlias = Annotated[Row, "a name, or an object with a name and options"]


def _choice(value: Any, _: Any) -> Row:  # noqa: ANN401
    row = {"name": value} if isinstance(value, str) else value
    if not isinstance(row, dict):
        raise wrong("", value, "a name, or an object with a name and options")
    name = row.get("name", NOTHING)
    if name is NOTHING:
        raise wrong("name", name, "a value, as this key is required")
    if not isinstance(name, str):
        raise wrong("name", name, "a string")
    return row


@frozen(kw_only=True, eq=False)
class _Line:
    id: str = ""
    topics: dict[str, _Indices]
    racks: dict[str, tuple[tuple[str, ...], ...]] | None = None
    lags: dict[str, tuple[object, ...]] = field(factory=dict)
    arrivals_per_s: dict[str, tuple[object, ...]] | None = None
    members: dict[str, _Member]
    assignor: _Choice
    policy: _Choice
    generation: int | None = field(default=None, validator=between(-1, INT32_MAX))
    leader: str | None = None
    now_ms: int = field(default=0, validator=between(*_INT64))
    state: PolicyState | None = None
    memory: object = None


def _converter() -> StrictConverter:
    converter = StrictConverter("an object")
    converter.register_structure_hook_func(lambda kind: kind == _Indices, _indices)
    converter.register_structure_hook_func(lambda kind: kind == _Choice, _choice)
    converter.register_structure_hook(PolicyState, _state)
    return converter


_CONVERTER: Final = _converter()


def parse_line(raw: bytes) -> tuple[Row, ConfigurationError | None]:
    """Parse a line as strict JSON, see `parse_json`."""
    return parse_json(raw, "line")


def read_line(row: Mapping[str, Any], defaults: Defaults) -> PlanLine:
    """Read the fields of a line.

    Raises:
        ConfigurationError: a field is missing, unknown, or has an invalid value.
    """
    for name in ("racks", "arrivals_per_s", "generation", "leader"):
        if name in row and row[name] is None:  # absent and null are not the same
            raise wrong(name, None, "a value, or no such key at all")
    named = {"assignor": defaults.assignor, "policy": defaults.policy}
    line = structure(_CONVERTER, named | dict(row), _Line)
    total = sum(indices.size for indices in line.topics.values())
    if total > RESOURCES_MAX:
        raise ConfigurationError(
            "topics", f"{total} partitions", f"at most {RESOURCES_MAX} in one line"
        )
    policy = _created(choose_policy, line.policy)
    # A leader that has its last answer's state has completed that round.
    completed = 0 if line.state is None else line.state.generation + 1
    return PlanLine(
        claims=_claims(line.members),
        metadata=TopicMetadata(resources=ResourceSet(line.topics), racks=_racks(line)),
        lags=_lags(line),
        assignor=_created(choose_assignor, line.assignor),
        policy=policy,
        context=RoundContext(
            leader_id=_leader(line),
            generation=completed if line.generation is None else line.generation,
            now_ms=line.now_ms,
            state=_with_memory(line, policy),
        ),
    )


def _with_memory(line: _Line, policy: Policy) -> PolicyState | None:
    """Return the leader's memory with that of the policy."""
    if line.memory is None:
        return line.state
    if line.state is None:
        raise wrong("memory", line.memory, "a state beside it")
    read = getattr(policy, "memory_from_json", lambda value: value)
    try:
        return evolve(line.state, memory=read(line.memory))
    except Exception as error:  # noqa: BLE001 - of a user's policy
        expected = f"the memory of an earlier output line ({one_line(error)})"
        raise wrong("memory", line.memory, expected) from None


# --- one item per partition ---------------------------------------------------------------------


def _per_partition(
    line: _Line, key: str, lists: Mapping[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Int32Array, tuple[Any, ...]]]:
    """Yield each topic of a field with the indices and the items of its partitions."""
    for topic, items in lists.items():
        if topic not in line.topics:
            raise wrong(joined(key, topic), _plain(items), "a name that topics has")
        indices = line.topics[topic]
        if len(items) != indices.size:
            expected = f"a list of {indices.size}, one item per partition"
            raise wrong(joined(key, topic), _plain(items), expected)
        yield topic, indices, items


def _plain(items: tuple[Any, ...]) -> list[Any]:
    return [list(item) if isinstance(item, tuple) else item for item in items]


def _racks(line: _Line) -> dict[str, dict[int, tuple[str, ...]]] | None:
    if line.racks is None:
        return None
    return {
        topic: dict(zip(indices.tolist(), racks, strict=True))
        for topic, indices, racks in _per_partition(line, "racks", line.racks)
    }


def _lags(line: _Line) -> Lags:
    values = [np.zeros(0, dtype=np.int64)]
    listed: dict[str, Int32Array] = {}
    for topic, indices, items in _per_partition(line, "lags", dict(sorted(line.lags.items()))):
        lags = _filled("lags", topic, items, _INT64, int)
        values.append(np.array(lags, dtype=np.int64)[np.argsort(indices)])
        listed[topic] = indices
    given = Lags(resources=ResourceSet(listed), values=np.concatenate(values))
    if line.arrivals_per_s is None:
        return given
    resources = ResourceSet(line.topics)
    arrivals = _arrivals(line, line.arrivals_per_s, resources)
    return Lags(resources=resources, values=given.aligned(resources), arrivals_per_s=arrivals)


def _arrivals(
    line: _Line, lists: Mapping[str, tuple[Any, ...]], resources: ResourceSet
) -> Float64Array:
    """Return the records per second of N resources, 0 without an entry: float64 (N,)."""
    arrivals = np.zeros(len(resources))
    for topic, indices, items in _per_partition(line, "arrivals_per_s", lists):
        rates = _filled("arrivals_per_s", topic, items, (0, _RATE_MAX), int, float)
        positions = resources.positions(ResourceSet({topic: indices}))
        arrivals[positions] = np.array(rates, dtype=np.float64)[np.argsort(indices)]
    return arrivals


def _filled(
    key: str, topic: str, items: tuple[Any, ...], limits: tuple[int, int], *kinds: type
) -> list[Any]:
    """Return the items, with 0 for null."""
    filled = [0 if item is None else item for item in items]
    if not _are_within(filled, limits, kinds):
        place = next(at for at, item in enumerate(filled) if not _are_within([item], limits, kinds))
        what = "an integer" if kinds == (int,) else "a number"
        expected = f"{what} from {limits[0]} to {limits[1]}, or null"
        raise wrong(joined(key, topic, place), items[place], expected)
    return filled


def _are_within(items: list[Any], limits: tuple[int, int], kinds: tuple[type, ...]) -> bool:
    if not set(map(type, items)) <= set(kinds):  # `true` is no number
        return False
    return not items or (limits[0] <= min(items) and max(items) <= limits[1])


# --- members, assignor, policy ------------------------------------------------------------------


def _claims(members: Mapping[str, _Member]) -> tuple[MemberClaim, ...]:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # most members share a subscription
    for member in members.values():
        if member.topics not in known:
            known[member.topics] = tuple(sorted(set(member.topics)))
    return tuple(
        MemberClaim(
            member_id=member_id,
            topics=known[member.topics],
            owned=member.owned,
            generation=member.generation,
            instance_id=member.instance_id,
            rack=member.rack,
            rejoin_in_ms=member.remaining_delay_ms,
            loss_ends_in_ms=member.loss_ends_in_ms,
            consumption_rate_per_s=member.consumption_rate_per_s,
            warm=member.warm,
            hands_over=member.hands_over,
            traits=member.traits,
        )
        for member_id, member in sorted(members.items())
    )


def _leader(line: _Line) -> str:
    if line.leader is None:
        return min(line.members, default="")
    if line.leader not in line.members:
        raise wrong("leader", line.leader, "the id of one of the members")
    return line.leader


def _created(choose: Callable[[Mapping[str, Any]], Any], choice: Row) -> Any:  # noqa: ANN401
    try:
        return choose(choice)
    except ConfigurationError as error:
        raise wrong(error.field, error.value, error.expected) from None  # shown as in JSON
