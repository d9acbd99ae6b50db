"""Read an input line of `coopgroup plan`.

The format is fixed (docs: plan). Each field has its own reader. A refusal is one sentence that
names the field, the value (shortened) and a correct value. Readers are strict: they refuse unknown
fields, repeated keys, and `true` for 1.
"""

from __future__ import annotations

import json
import reprlib
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import numpy as np
from attrs import frozen

from coopgroup.assignors.registry import create_assignor
from coopgroup.errors import ConfigurationError
from coopgroup.leader import Lags, TopicMetadata
from coopgroup.model import NO_LOSS, MemberClaim, ResourceSet
from coopgroup.policies.base import RoundContext
from coopgroup.policies.registry import create_policy
from coopgroup.policies.state import state_from_json, state_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from coopgroup.assignors.base import Assignor
    from coopgroup.model.group import Float64Array
    from coopgroup.model.resource_set import Int32Array
    from coopgroup.policies.base import Policy
    from coopgroup.policies.state import PolicyState

__all__ = ["RESOURCES_MAX", "Defaults", "PlanLine", "parse_line", "read_line"]

RESOURCES_MAX: Final = 10_000_000
"""Most partitions that one line's `topics` may count: a slip there must not eat the memory."""

_Row: TypeAlias = "Mapping[str, Any]"

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_RATE_MAX: Final = 10**15
_A_RATE: Final = f"numbers from 0 to {_RATE_MAX}"
_LINE_FIELDS: Final = (
    "id",
    "topics",
    "racks",
    "lags",
    "arrivals_per_s",
    "members",
    "assignor",
    "policy",
    "generation",
    "leader",
    "now_ms",
    "state",
)
_MEMBER_FIELDS: Final = (
    "topics",
    "owned",
    "generation",
    "instance_id",
    "rack",
    "remaining_delay_ms",
    "remaining_loss_ms",
    "consumption_rate_per_s",
)


@frozen(kw_only=True)
class Defaults:
    """Defaults for lines without these fields.

    Attributes:
        assignor: name of the assignor.
        policy: name of the policy.
    """

    assignor: str
    policy: str


@frozen(kw_only=True, eq=False)
class PlanLine:
    """A validated input line."""

    claims: tuple[MemberClaim, ...]
    metadata: TopicMetadata
    lags: Lags
    assignor: Assignor
    policy: Policy
    context: RoundContext


@frozen(kw_only=True)
class _Shown:
    """A value in messages: shortened, with constants as in JSON."""

    value: object

    def __repr__(self) -> str:
        """Shorten the value."""
        if self.value is None or isinstance(self.value, bool):
            return json.dumps(self.value)
        return reprlib.repr(self.value)


@frozen
class _Missing:
    """The value of a missing field."""

    def __repr__(self) -> str:
        """Return the text after "got"."""
        return "nothing"


def _refuse(field: str, value: object, expected: str) -> NoReturn:
    raise ConfigurationError(field, _Shown(value=value), expected)


# --- JSON --------------------------------------------------------------------------------------


def parse_line(raw: bytes) -> tuple[dict[str, Any], ConfigurationError | None]:
    """Parse a line as strict JSON.

    Args:
        raw: the line, with or without its line end.

    Returns:
        The object, and an error of the whole line: a repeated key, `NaN` or an infinity. The object
        is returned in either case, so that the answer can echo its `id`.

    Raises:
        ConfigurationError: the line is not one JSON object in UTF-8.
    """
    problems: list[ConfigurationError] = []

    def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            problems.append(ConfigurationError("line", twice, "every key once in an object"))
        return row

    def no_number(constant: str) -> None:
        problems.append(ConfigurationError("line", constant, "numbers that JSON has"))

    try:
        row = json.loads(raw.decode(), object_pairs_hook=once_each, parse_constant=no_number)
    except UnicodeDecodeError as error:
        _refuse("line", raw[error.start : error.start + 1], f"UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        _refuse(
            "line", raw.decode().strip(), f"one JSON object ({error.msg}, column {error.colno})"
        )
    except RecursionError:
        _refuse("line", raw[:80].decode(errors="replace"), "one JSON object, not so deeply nested")
    except ValueError:  # Python refuses integers of more than 4300 digits
        _refuse("line", raw[:80].decode(errors="replace"), "numbers of reasonable length")
    if not isinstance(row, dict):
        _refuse("line", row, "one JSON object")
    return row, problems[0] if problems else None


# --- plain fields ------------------------------------------------------------------------------


def _known_fields(row: _Row, known: Collection[str], place: str) -> None:
    for name in row:
        if name not in known:
            _refuse(f"{place}{name}", row[name], f"no such field; there are {', '.join(known)}")


def _object(value: object, field: str, expected: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(field, value, expected)
    return value


def _required(row: _Row, name: str, place: str, expected: str) -> object:
    if name not in row:
        raise ConfigurationError(f"{place}{name}", _Missing(), expected)
    return row[name]


def _integer(value: object, field: str, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:  # `True` must not count as 1
        _refuse(field, value, f"an integer from {low} to {high}")
    return value


def _string(value: object, field: str) -> str:
    if not isinstance(value, str):
        _refuse(field, value, "a string")
    return value


def _string_or_null(value: object, field: str) -> str | None:
    return None if value is None else _string(value, field)


def _strings(value: object, field: str) -> list[str]:
    if not isinstance(value, list) or not set(map(type, value)) <= {str}:
        _refuse(field, value, "a list of strings")
    return value


def _within_int32(indices: list[int]) -> bool:
    low, high = _INT32
    return not indices or (low <= min(indices) and max(indices) <= high)


def _indices(value: object, field: str) -> Int32Array:
    """Return a list of partition numbers as int32, in the given order."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        _refuse(field, value, "a list of integers")
    if not _within_int32(value):
        _refuse(field, value, f"integers from {_INT32[0]} to {_INT32[1]}")
    return np.array(value, dtype=np.int32)


# --- topics, racks, lags -----------------------------------------------------------------------


def _topics(value: object) -> dict[str, Int32Array]:
    """Return the indices of each topic, in the order of `racks` and `lags`."""
    expected = "an object of counts or lists of indices"
    topics = {
        name: _topic(given, f"topics.{name}")
        for name, given in _object(value, "topics", expected).items()
    }
    total = sum(indices.size for indices in topics.values())
    if total > RESOURCES_MAX:
        raise ConfigurationError(
            "topics", f"{total} partitions", f"at most {RESOURCES_MAX} in one line"
        )
    return topics


def _topic(value: object, field: str) -> Int32Array:
    if not isinstance(value, list):
        if type(value) is not int or not 0 <= value <= RESOURCES_MAX:
            _refuse(field, value, f"a count from 0 to {RESOURCES_MAX}, or a list of indices")
        return np.arange(value, dtype=np.int32)
    indices = _indices(value, field)
    if np.unique(indices).size < indices.size:
        _refuse(field, value, "every index once")
    return indices


def _per_partition(
    row: _Row, name: str, topics: Mapping[str, Int32Array]
) -> dict[str, tuple[Int32Array, list[Any]]]:
    """Read a field with one entry per partition, together with the partitions' indices."""
    expected = "an object of lists, one item per partition"
    listed = {}
    for topic, items in _object(row.get(name, {}), name, expected).items():
        field = f"{name}.{topic}"
        if topic not in topics:
            _refuse(field, items, "a name that topics has")
        if not isinstance(items, list) or len(items) != topics[topic].size:
            _refuse(field, items, f"a list of {topics[topic].size}, one item per partition")
        listed[topic] = topics[topic], items
    return listed


def _racks(
    row: _Row, topics: Mapping[str, Int32Array]
) -> dict[str, dict[int, tuple[str, ...]]] | None:
    if "racks" not in row:
        return None
    return {
        topic: {
            index: tuple(_strings(names, f"racks.{topic}.{place}"))
            for place, (index, names) in enumerate(zip(indices.tolist(), items, strict=True))
        }
        for topic, (indices, items) in _per_partition(row, "racks", topics).items()
    }


def _rate(value: object) -> bool:
    """Return whether user data can carry this rate."""
    return type(value) in (int, float) and 0 <= value <= _RATE_MAX  # type: ignore[operator]


def _arrivals(row: _Row, topics: Mapping[str, Int32Array], resources: ResourceSet) -> Float64Array:
    """Return the records per second of N resources, 0 without an entry: float64 (N,)."""
    arrivals = np.zeros(len(resources))
    listed = _per_partition(row, "arrivals_per_s", topics)
    for topic, (indices, items) in listed.items():
        figures = [0 if item is None else item for item in items]
        if not all(map(_rate, figures)):
            _refuse(f"arrivals_per_s.{topic}", items, f"a list of {_A_RATE} or null")
        places = resources.positions(ResourceSet({topic: indices}))
        arrivals[places] = np.array(figures, dtype=np.float64)[np.argsort(indices)]
    return arrivals


def _lags(row: _Row, topics: Mapping[str, Int32Array]) -> Lags:
    lags = _given_lags(row, topics)
    if "arrivals_per_s" not in row:
        return lags
    resources = ResourceSet(topics)
    values = lags.aligned(resources)
    return Lags(
        resources=resources, values=values, arrivals_per_s=_arrivals(row, topics, resources)
    )


def _given_lags(row: _Row, topics: Mapping[str, Int32Array]) -> Lags:
    listed = _per_partition(row, "lags", topics)
    values = [np.zeros(0, dtype=np.int64)]
    for topic, (indices, items) in sorted(listed.items()):
        low, high = _INT64
        figures = [0 if item is None else item for item in items]
        if not set(map(type, figures)) <= {int}:
            _refuse(f"lags.{topic}", items, "a list of integers or null")
        if figures and not (low <= min(figures) and max(figures) <= high):
            _refuse(f"lags.{topic}", items, f"integers from {low} to {high}")
        values.append(np.array(figures, dtype=np.int64)[np.argsort(indices)])
    resources = ResourceSet({topic: indices for topic, (indices, _) in listed.items()})
    return Lags(resources=resources, values=np.concatenate(values))


# --- members -----------------------------------------------------------------------------------


def _claims(members: _Row) -> tuple[MemberClaim, ...]:
    """Read the claims of all members, ascending by member id."""
    known: dict[tuple[str, ...], tuple[str, ...]] = {}  # most members share a subscription
    return tuple(_member(member_id, value, known) for member_id, value in sorted(members.items()))


def _owned(value: object, field: str) -> ResourceSet:
    """Read a member's claims into one set; a set per topic would cost more than the JSON."""
    owned = _object(value, field, "an object of lists of indices")
    if not _all_int32_lists(owned.values()):
        return ResourceSet(
            {name: _indices(indices, f"{field}.{name}") for name, indices in owned.items()}
        )
    names = sorted(name for name, indices in owned.items() if indices)
    ascending = [sorted(set(owned[name])) for name in names]
    starts = np.zeros(len(names) + 1, dtype=np.int64)
    np.cumsum([len(indices) for indices in ascending], out=starts[1:])
    flat = np.array(list(chain.from_iterable(ascending)), dtype=np.int32)
    return ResourceSet.from_flat(tuple(names), starts, flat)


def _all_int32_lists(lists: Collection[Any]) -> bool:
    if not set(map(type, lists)) <= {list}:
        return False
    flat = list(chain.from_iterable(lists))
    return set(map(type, flat)) <= {int} and _within_int32(flat)


def _member(
    member_id: str, value: object, known: dict[tuple[str, ...], tuple[str, ...]]
) -> MemberClaim:
    place = f"members.{member_id}."
    row = _object(value, place[:-1], "an object that describes the member")
    _known_fields(row, _MEMBER_FIELDS, place)
    topics = _strings(
        _required(row, "topics", place, "a list of the subscribed topics"), f"{place}topics"
    )
    subscription = tuple(topics)
    if subscription not in known:
        known[subscription] = tuple(sorted(set(topics)))
    delay, loss = row.get("remaining_delay_ms"), row.get("remaining_loss_ms")
    rate = row.get("consumption_rate_per_s")
    if rate is not None and not _rate(rate):
        _refuse(f"{place}consumption_rate_per_s", rate, f"null, or a number from 0 to {_RATE_MAX}")
    return MemberClaim(
        member_id=member_id,
        topics=known[subscription],
        owned=_owned(row.get("owned", {}), f"{place}owned"),
        generation=_integer(row.get("generation", -1), f"{place}generation", -1, _INT32[1]),
        instance_id=_string_or_null(row.get("instance_id"), f"{place}instance_id"),
        rack=_string_or_null(row.get("rack"), f"{place}rack"),
        remaining_delay_ms=None
        if delay is None
        else _integer(delay, f"{place}remaining_delay_ms", 0, _INT32[1]),
        remaining_loss_ms=None
        if loss is None
        else _integer(loss, f"{place}remaining_loss_ms", NO_LOSS, _INT32[1]),
        consumption_rate_per_s=None if rate is None else float(rate),
    )


def _leader(row: _Row, members: Mapping[str, Any]) -> str:
    if "leader" not in row:
        return min(members, default="")
    leader = _string(row["leader"], "leader")
    if leader not in members:
        _refuse("leader", leader, "the id of one of the members")
    return leader


# --- assignor, policy, state -------------------------------------------------------------------


def _chosen(
    row: _Row, name: str, default: str, create: Callable[[str, Mapping[str, Any]], Any]
) -> Any:  # noqa: ANN401 - an assignor or a policy, as `create` makes it
    value = row.get(name, default)
    if isinstance(value, str):
        return _created(create, value, {})
    options = dict(_object(value, name, "a name, or an object with a name and options"))
    chosen = _string(
        _required(options, "name", f"{name}.", f"the name of the {name}"), f"{name}.name"
    )
    del options["name"]
    return _created(create, chosen, options)


def _created(
    create: Callable[[str, Mapping[str, Any]], Any], name: str, options: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - see `_chosen`
    try:
        return create(name, options)
    except ConfigurationError as error:
        # shown as in JSON, not as in Python
        if error.value is None or isinstance(error.value, bool):
            _refuse(error.field, error.value, error.expected)
        raise


def _state(value: object) -> PolicyState | None:
    if value is None:
        return None
    expected = "null or the state of an earlier output line"
    row = _object(value, "state", expected)
    try:
        state = state_from_json(row)
    except ValueError:
        _refuse("state", row, expected)
    if state is None or state_to_json(state, version=row["version"]) != row:
        _refuse("state", row, expected)
    return state


def read_line(row: _Row, defaults: Defaults) -> PlanLine:
    """Read the fields of a line.

    Args:
        row: the line's object.
        defaults: assignor and policy for a line that names none.

    Raises:
        ConfigurationError: a field is missing, unknown, or has an invalid value.
    """
    _known_fields(row, _LINE_FIELDS, "")
    if "id" in row:
        _string(row["id"], "id")
    topics = _topics(_required(row, "topics", "", "an object of counts or lists of indices"))
    members = _object(
        _required(row, "members", "", "an object of members"), "members", "an object of members"
    )
    state = _state(row.get("state"))
    # A leader that has its last answer's state has completed that round.
    generation = 0 if state is None else state.generation + 1
    return PlanLine(
        claims=_claims(members),
        metadata=TopicMetadata(resources=ResourceSet(topics), racks=_racks(row, topics)),
        lags=_lags(row, topics),
        assignor=_chosen(row, "assignor", defaults.assignor, create_assignor),
        policy=_chosen(row, "policy", defaults.policy, create_policy),
        context=RoundContext(
            leader_id=_leader(row, members),
            generation=_integer(row.get("generation", generation), "generation", -1, _INT32[1]),
            now_ms=_integer(row.get("now_ms", 0), "now_ms", *_INT64),
            state=state,
        ),
    )
