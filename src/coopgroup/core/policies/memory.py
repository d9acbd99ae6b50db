"""`PolicyState`: a leader's memory of the last round that it led.

Three tables, in columns, are most of this memory:

    members    the members of the round
    resources  what the round left of each resource
    pairs      a resource and a member: told to stop, warming up, warm, refused, or taken from it

Each round writes a new value, and `recall` reads it as arrays of the next round's group. The field
`state` of `coopgroup plan` is this memory as JSON.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np
import numpy.typing as npt
from attrs import field, frozen

from coopgroup.core.model import EMPTY, NOBODY, ResourceSet
from coopgroup.core.model.pairs import pair_keys
from coopgroup.core.model.positions import ABSENT
from coopgroup.core.model.resource_set import BoolArray, Int32Array, Int64Array
from coopgroup.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model import GroupSnapshot

_STATE_VERSION: Final = 5
_GENERATION_MAX: Final = 2**31 - 1
_TIME_MS_MAX: Final = 2**63 - 1
_POLLS: Final = 3  # of a member until it has stopped what it claims wrongly

_SAME_ARRAY: Final = attrs.cmp_using(eq=np.array_equal)


class Past(IntEnum):
    """The owners of a resource so far, as far as a leader knows.

    The members are in order: what a leader knows of a bundle is the largest value of its parts.
    """

    NEVER_OWNED = 0
    FIRST_GRANT = 1  # in the last round; the claims of the next round show whether it has an owner
    OWNED = 2
    RELEASED = 3  # the last round left it without an owner on purpose: no return is expected


class PairKind(IntEnum):
    """The relation of a resource and a member that does not keep it."""

    TOLD = 0  # the member must stop it
    WARMING = 1
    WARM = 2
    REFUSED = 3  # the warm-up timed out, and was cancelled
    TAKEN = 4  # the member could have kept it, and was told to stop it


@frozen(kw_only=True)
class RememberedMembers:
    """The members of a round; N members.

    Attributes:
        ids: ascending.
        instance_ids: static id of each member, None for a dynamic one.
        subscriptions: the distinct sets of subscribed names; empty if unknown.
        class_of: position in `subscriptions` of each member's subscription; empty if unknown.
    """

    ids: tuple[str, ...] = ()
    instance_ids: tuple[str | None, ...] = field()
    subscriptions: tuple[tuple[str, ...], ...] = ()
    class_of: tuple[int, ...] = ()

    @instance_ids.default
    def _all_dynamic(self) -> tuple[None, ...]:
        return (None,) * len(self.ids)

    @classmethod
    def of(cls, group: GroupSnapshot) -> RememberedMembers:
        """Return the members of a group."""
        return cls(
            ids=group.member_ids,
            instance_ids=tuple([member.instance_id for member in group.members]),
            subscriptions=group.subscriptions,
            class_of=tuple(group.class_of.tolist()),
        )


@frozen(kw_only=True)
class RememberedResources:
    """The R resources after a round. Members are positions in `RememberedMembers`.

    Attributes:
        names: the resources.
        past: int8 (R,): `Past`.
        holder: int32 (R,): owner after the round, `NOBODY` without one.
        loss: int32 (R,): position in `PolicyState.losses` of each resource that is still unclaimed,
            `NOBODY` for none.
        receiver: int32 (R,): receiver of an unfinished move, `NOBODY` without one. Rounds without
            warm-ups remember only promised ones.
        promised: bool (R,): it was stopped for the receiver, which has not got it yet; or the
            receiver warms up for it, to balance lags.
        planned: bool (R,): to take later from an owner that could keep it.
    """

    names: ResourceSet
    past: npt.NDArray[np.int8] = field(eq=_SAME_ARRAY, hash=False)
    holder: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    loss: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    receiver: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    promised: BoolArray = field(eq=_SAME_ARRAY, hash=False)
    planned: BoolArray = field(eq=_SAME_ARRAY, hash=False)

    def __attrs_post_init__(self) -> None:
        """Refuse columns that do not fit the resources.

        Raises:
            ValueError: there is not one value per resource.
        """
        for column in _COLUMNS:
            if getattr(self, column).shape != (len(self.names),):
                raise ValueError(f"{column}: expected one value per resource")

    @classmethod
    def unknown(cls, names: ResourceSet) -> RememberedResources:
        """Return the rows of unknown resources."""
        nobody = np.full(len(names), NOBODY, dtype=np.int32)
        none = np.zeros(len(names), dtype=np.bool_)
        return cls(
            names=names,
            past=np.full(len(names), Past.NEVER_OWNED, dtype=np.int8),
            holder=nobody,
            loss=nobody,
            receiver=nobody,
            promised=none,
            planned=none,
        )

    def aligned(self, names: ResourceSet) -> RememberedResources:
        """Return the rows of other resources, in their order."""
        if names == self.names:
            return self
        positions = names.positions(self.names)
        return _laid_over(RememberedResources.unknown(names), self, positions)

    def take(self, mask: BoolArray) -> RememberedResources:
        """Return some of the rows."""
        columns = {column: getattr(self, column)[mask] for column in _COLUMNS}
        return RememberedResources(names=self.names.take(mask), **columns)

    def over(self, other: RememberedResources) -> RememberedResources:
        """Return the rows of both. If both have a resource, this table's row counts."""
        if other.names <= self.names:
            return self
        names = self.names | other.names
        return _laid_over(other.aligned(names), self, names.positions(self.names))

    @property
    def owned(self) -> ResourceSet:
        """The resources that had an owner, as far as the leader knows, or were granted to one."""
        return self.names.take(self.past != Past.NEVER_OWNED)


def _laid_over(
    below: RememberedResources, rows: RememberedResources, positions: Int64Array
) -> RememberedResources:
    """Return rows with others at the given positions; a negative position leaves a row out."""
    columns, there = {}, positions >= 0
    for column in _COLUMNS:
        columns[column] = getattr(below, column).copy()
        columns[column][positions[there]] = getattr(rows, column)[there]
    return attrs.evolve(below, **columns)


_COLUMNS: Final = ("past", "holder", "loss", "receiver", "promised", "planned")


@frozen(kw_only=True)
class RememberedPairs:
    """K pairs of a resource and a member; ascending by kind, resource, and member.

    Attributes:
        kind: int8 (K,): `PairKind`.
        resource: int32 (K,): position in `RememberedResources.names`.
        member: int32 (K,): position in `RememberedMembers.ids`; `NOBODY` for a newcomer of a
            refused round, which remembers the members of the round before it.
        since_ms: int64 (K,): when a warm-up began, on the leader's clock; 0 for other kinds.
    """

    kind: npt.NDArray[np.int8] = field(eq=_SAME_ARRAY, hash=False)
    resource: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    member: Int32Array = field(eq=_SAME_ARRAY, hash=False)
    since_ms: Int64Array = field(eq=_SAME_ARRAY, hash=False)

    @classmethod
    def of(
        cls,
        kind: PairKind,
        resource: npt.NDArray[np.integer],
        member: npt.NDArray[np.integer],
        since_ms: Int64Array | None = None,
    ) -> RememberedPairs:
        """Return pairs of one kind."""
        return cls(
            kind=np.full(resource.size, kind, dtype=np.int8),
            resource=resource.astype(np.int32),
            member=member.astype(np.int32),
            since_ms=np.zeros(resource.size, dtype=np.int64) if since_ms is None else since_ms,
        )

    def are(self, *kinds: PairKind) -> BoolArray:
        """Return which pairs are of these kinds: bool (K,)."""
        found: BoolArray = np.isin(self.kind, kinds)
        return found

    def take(self, mask: BoolArray | Int64Array) -> RememberedPairs:
        """Return some of the pairs."""
        return RememberedPairs(
            kind=self.kind[mask],
            resource=self.resource[mask],
            member=self.member[mask],
            since_ms=self.since_ms[mask],
        )

    def renumbered(
        self, resource: npt.NDArray[np.integer], member: npt.NDArray[np.integer] | None = None
    ) -> RememberedPairs:
        """Return the pairs with other numbers, each pair once.

        Args:
            resource: int (K,): position of each pair's resource; negative to leave the pair out.
            member: int (K,): position of each pair's member, None for no change.
        """
        member = self.member if member is None else member
        there = np.flatnonzero(resource >= 0)
        rows = np.stack([self.kind, resource, member])[:, there]
        _, first = np.unique(rows, axis=1, return_index=True)
        chosen = there[first]
        return attrs.evolve(
            self.take(chosen),
            resource=resource[chosen].astype(np.int32),
            member=member[chosen].astype(np.int32),
        )

    @classmethod
    def all_of(cls, *tables: RememberedPairs) -> RememberedPairs:
        """Return the pairs of several tables, which are given in the order of their kinds."""
        return cls(
            **{
                name: np.concatenate([getattr(table, name) for table in tables])
                for name in _PAIR_COLUMNS
            }
        )


_PAIR_COLUMNS: Final = ("kind", "resource", "member", "since_ms")
NO_MEMBERS: Final = RememberedMembers()
NO_RESOURCES: Final = RememberedResources.unknown(EMPTY)
_NO_NUMBERS: Final = np.zeros(0, dtype=np.int32)
NO_REMEMBERED_PAIRS: Final = RememberedPairs.of(PairKind.TOLD, _NO_NUMBERS, _NO_NUMBERS)


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

    def lapses_at_ms(self, timeout_ms: int) -> int | None:
        """Return when the claim no longer counts, on the leader's clock; None for never.

        An honest member may have owned the resources, although the leader does not know it. Within
        `max.poll.interval.ms` each, its application hears of the stop, stops, and polls again.
        """
        return None if self.is_owner else self.since_ms + _POLLS * timeout_ms


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
        members: the members of the round.
        resources: what the round left of each resource.
        pairs: what members must stop, warm-ups, and what was taken from its owner.
        losses: resources of departed members, by deadline and owner.
        silent: ids of members whose subscription was unreadable in the round. They were assigned
            nothing, so they count as owning nothing in the next round.
        moves_due_ms: time before which no resource is taken from an owner that could keep it; None
            for no limit.
        moves_pending: whether the group has changed permanently, and the resulting moves are not
            done.
        initial_until_ms: until when the first members of the group wait for others; None for not at
            all.
        next_round_ms: when the leader itself starts a round even if nothing happens; None for
            never. A static leader that restarts without `coopgroup.state.dir` forgets it.
        blind: whether a resource waits that already waited in a round without memory.
        memory: `StagedRound.memory` of the round: of a policy written by a user, and not in the
            JSON.
        given: what each member may own after the round; empty if unknown. Not in the JSON.
        given_in: generation of the round.
        given_before: what each member could own after the last round that the leader completed;
            empty if that round is the one before `given_in`.
        given_before_in: generation of that round.
    """

    generation: int
    members: RememberedMembers = NO_MEMBERS
    resources: RememberedResources = NO_RESOURCES
    pairs: RememberedPairs = NO_REMEMBERED_PAIRS
    losses: tuple[Loss, ...] = ()
    silent: tuple[str, ...] = ()
    moves_due_ms: int | None = None
    moves_pending: bool = False
    initial_until_ms: int | None = None
    next_round_ms: int | None = None
    blind: bool = False
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

    def is_at_rest(self, now_ms: int) -> bool:
        """Return whether the group is settled: no resource waits, moves or stops.

        Args:
            now_ms: the leader's monotonic clock.
        """
        rows = self.resources
        waits = (rows.loss != NOBODY).any() or self.initial_until_ms is not None or self.blind
        stops = self.pairs.are(PairKind.TOLD).any()
        moves = self.moves_pending or rows.planned.any() or stops
        resting = self.moves_due_ms is None or self.moves_due_ms <= now_ms
        return bool(resting and not waits and not moves)


# --- as arrays of a group ------------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class Recalled:
    """A leader's memory of N members, as arrays of a group with R resources.

    A leader without memory recalls no members, and nothing of the resources.

    Attributes:
        group: the group.
        number_of: int32 (N + 1,): number in the group of each remembered member, `NOBODY` for
            absent ones. The last entry is `NOBODY`, so that `NOBODY` as an index stays `NOBODY`.
        remembered: the rows of the group's resources; members are positions in the memory.
        place_of: int64: position in the group of each remembered resource, `ABSENT` for others.
        holder: int32 (R,): number of each resource's last holder, `NOBODY` if it is absent.
        receiver: int32 (R,): number of the receiver of each unfinished move, likewise.
        pairs: the remembered pairs.
    """

    group: GroupSnapshot
    number_of: Int32Array
    remembered: RememberedResources
    place_of: Int64Array
    holder: Int32Array
    receiver: Int32Array
    pairs: RememberedPairs

    @property
    def past(self) -> npt.NDArray[np.int8]:
        """Past of each resource: int8 (R,)."""
        return self.remembered.past

    @property
    def promised_to(self) -> Int32Array:
        """Receivers for which an earlier round stopped resources: int32 (R,), `NOBODY` for none."""
        return np.where(self.remembered.promised, self.receiver, NOBODY).astype(np.int32)

    @property
    def has_departed(self) -> bool:
        """Whether a member of the last round is absent."""
        return bool((self.number_of[:-1] == NOBODY).any())

    def pairs_of(self, *kinds: PairKind) -> tuple[Int64Array, RememberedPairs]:
        """Find remembered pairs in the group.

        Returns:
            The keys of the pairs whose resource and member are present, ascending; and these pairs.
        """
        found = self.pairs.take(self.pairs.are(*kinds))
        member, place = self.number_of[found.member], self.place_of[found.resource]
        there = np.flatnonzero((member != NOBODY) & (place != ABSENT))
        keys = pair_keys(self.group, place[there], member[there])
        # The parts of a new bundle may be both warm and warming.
        keys, first = np.unique(keys, return_index=True)
        return keys, found.take(there[first])


def recall(group: GroupSnapshot, state: PolicyState | None) -> Recalled:
    """Return a leader's memory, which may be None, as arrays of a group."""
    members = NO_MEMBERS if state is None else state.members
    rows = NO_RESOURCES if state is None else state.resources
    numbers = [group.number_of_member.get(member, NOBODY) for member in members.ids]
    number_of = np.array([*numbers, NOBODY], dtype=np.int32)
    remembered = rows.aligned(group.resources)
    return Recalled(
        group=group,
        number_of=number_of,
        remembered=remembered,
        place_of=np.arange(len(rows.names))
        if rows is remembered
        else group.resources.positions(rows.names),
        holder=number_of[remembered.holder],
        receiver=number_of[remembered.receiver],
        pairs=NO_REMEMBERED_PAIRS if state is None else state.pairs,
    )


# --- as JSON --------------------------------------------------------------------------------------
# A column of numbers is a list, or one number if all are equal. A column of truths is the list of
# the positions at which it is true.


def state_to_json(state: PolicyState) -> dict[str, Any]:
    """Convert a state, except for `memory` and `given`, to an object for `json.dumps`."""
    members, rows, pairs = state.members, state.resources, state.pairs
    return {
        "version": _STATE_VERSION,
        "generation": state.generation,
        "members": {
            "ids": list(members.ids),
            "instance_ids": {
                one: static
                for one, static in zip(members.ids, members.instance_ids, strict=True)
                if static is not None
            },
            "subscriptions": [list(names) for names in members.subscriptions],
            "class_of": list(members.class_of),
        },
        "resources": {
            "names": rows.names.to_dict(),
            "past": _numbers_to_json(rows.past),
            "holder": _numbers_to_json(rows.holder),
            "loss": _numbers_to_json(rows.loss),
            "receiver": _numbers_to_json(rows.receiver),
            "promised": np.flatnonzero(rows.promised).tolist(),
            "planned": np.flatnonzero(rows.planned).tolist(),
        },
        "pairs": {name: getattr(pairs, name).tolist() for name in _PAIR_COLUMNS},
        "losses": [attrs.asdict(loss) for loss in state.losses],
        "silent": list(state.silent),
        "moves_due_ms": state.moves_due_ms,
        "moves_pending": state.moves_pending,
        "initial_until_ms": state.initial_until_ms,
        "next_round_ms": state.next_round_ms,
        "blind": state.blind,
    }


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
    members = _read_members(row["members"])
    losses = tuple(_read_loss(loss) for loss in row["losses"])
    rows = _read_resources(row["resources"], len(members.ids), len(losses))
    return PolicyState(
        generation=_read_generation(row["generation"]),
        members=members,
        resources=rows,
        pairs=_read_pairs(row["pairs"], len(rows.names), len(members.ids)),
        losses=losses,
        silent=tuple(str(member) for member in row["silent"]),
        moves_due_ms=_read_time(row["moves_due_ms"]),
        moves_pending=bool(row["moves_pending"]),
        initial_until_ms=_read_time(row["initial_until_ms"]),
        next_round_ms=_read_time(row["next_round_ms"]),
        blind=bool(row["blind"]),
    )


def _read_members(row: Mapping[str, Any]) -> RememberedMembers:
    ids = tuple(str(member) for member in row["ids"])
    if list(ids) != sorted(set(ids)):
        raise ConfigurationError("state.members.ids", row["ids"], "ids in order, each once")
    static = row["instance_ids"]
    strangers = static.keys() - set(ids)
    if strangers:
        raise ConfigurationError(
            "state.members.instance_ids", min(strangers), "ids of members only"
        )
    subscriptions = tuple(tuple(str(n) for n in names) for names in row["subscriptions"])
    count = len(ids) if subscriptions else 0
    class_of = _read_numbers(row["class_of"], "members.class_of", count, 0, len(subscriptions))
    return RememberedMembers(
        ids=ids,
        instance_ids=tuple(str(static[one]) if one in static else None for one in ids),
        subscriptions=subscriptions,
        class_of=tuple(class_of.tolist()),
    )


def _read_resources(
    row: Mapping[str, Any], member_count: int, loss_count: int
) -> RememberedResources:
    names = ResourceSet(row["names"])

    def numbers(column: str, least: int, below: int) -> Int64Array:
        return _read_numbers(row[column], f"resources.{column}", len(names), least, below)

    def truths(column: str) -> BoolArray:
        found = np.zeros(len(names), dtype=np.bool_)
        value = row[column]
        found[_read_numbers(value, f"resources.{column}", len(value), 0, len(names))] = True
        return found

    return RememberedResources(
        names=names,
        past=numbers("past", 0, len(Past)).astype(np.int8),
        holder=numbers("holder", NOBODY, member_count).astype(np.int32),
        loss=numbers("loss", NOBODY, loss_count).astype(np.int32),
        receiver=numbers("receiver", NOBODY, member_count).astype(np.int32),
        promised=truths("promised"),
        planned=truths("planned"),
    )


def _read_pairs(row: Mapping[str, Any], resource_count: int, member_count: int) -> RememberedPairs:
    count = len(row["kind"])
    kind = _read_numbers(row["kind"], "pairs.kind", count, 0, len(PairKind))
    resource = _read_numbers(row["resource"], "pairs.resource", count, 0, resource_count)
    member = _read_numbers(row["member"], "pairs.member", count, NOBODY, member_count)
    since_ms = [_within(int(str(time_ms))) for time_ms in row["since_ms"]]
    if len(since_ms) != count:
        raise ConfigurationError("state.pairs.since_ms", row["since_ms"], f"{count} times in ms")
    keys = (kind * resource_count + resource) * (member_count + 1) + member
    if (np.diff(keys) <= 0).any():
        raise ConfigurationError("state.pairs", row["resource"], "pairs in order, each once")
    return RememberedPairs(
        kind=kind.astype(np.int8),
        resource=resource.astype(np.int32),
        member=member.astype(np.int32),
        since_ms=np.array(since_ms, dtype=np.int64),
    )


def _read_loss(row: Mapping[str, Any]) -> Loss:
    return Loss(
        owner=None if row["owner"] is None else str(row["owner"]),
        instance_id=None if row["instance_id"] is None else str(row["instance_id"]),
        deadline_ms=_within(int(row["deadline_ms"])),
        given_ms=_read_time(row["given_ms"]),
        shared=bool(row["shared"]),
    )


def _numbers_to_json(numbers: npt.NDArray[np.integer]) -> list[int] | int:
    if numbers.size and (numbers == numbers[0]).all():
        return int(numbers[0])
    each: list[int] = numbers.tolist()
    return each


def _read_numbers(value: object, column: str, count: int, least: int, below: int) -> Int64Array:
    numbers = np.array(value)
    if type(value) is int:
        numbers = np.full(count, numbers)
    whole = numbers.dtype.kind == "i" or not numbers.size
    if not whole or numbers.shape != (count,) or ((numbers < least) | (numbers >= below)).any():
        expected = f"{count} numbers from {least} to {below - 1}"
        raise ConfigurationError(f"state.{column}", value, expected)
    return numbers.astype(np.int64)


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
