"""Programs of group requests, drawn by Hypothesis: the actions of several clients of one group.

A step names a client, a request, and ids relative to what the client was told before ("its own",
"that of another", "one it had"). The player finds the real ids (`conformance`). So a program means
the same to a broker and to a model with different ids. Times are in units, which a player stretches
on a slow machine.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from attrs import frozen
from hypothesis import strategies as st

CLIENTS_MAX = 4
STEPS_MAX = 14


class Request(enum.Enum):
    """The requests other than JoinGroup."""

    FIND_COORDINATOR = "FindCoordinator"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    OFFSET_COMMIT = "OffsetCommit"


class Id(enum.Enum):
    """The member id in a request."""

    OWN = "own"
    EMPTY = "empty"
    ANOTHERS = "another's"
    EARLIER = "earlier"
    """One that the client had and lost."""
    INVENTED = "invented"


class Instance(enum.Enum):
    """The static id in a request."""

    OWN = "own"
    ABSENT = "absent"
    ANOTHERS = "another's"
    INVENTED = "invented"


class Generation(enum.Enum):
    """The generation in a request, relative to the client's generation."""

    OWN = "own"
    BEFORE = "before"
    AFTER = "after"
    NONE = "none"


class Protocols(enum.Enum):
    """The protocols that a join offers, most wanted first; the wishes of two members cannot tie."""

    BOTH = ("first", "second")
    ONE = ("second",)
    FOREIGN = ("third",)
    NONE = ()


class Patience(enum.Enum):
    """A time-out, in units (see `conformance`)."""

    LONG = "never runs out in a program"
    SHORT = "runs out in a wait"
    BELOW_MINIMUM = "less than the broker allows"
    ABOVE_MAXIMUM = "more than the broker allows"


@frozen(kw_only=True)
class Proceed:
    """A client sends a member's next request: join, join with its id, sync, heartbeat."""

    client: int


@frozen(kw_only=True)
class Round:
    """All clients except `absent` proceed until the group is stable, or waits for the others.

    Of two clients with one static id only the first takes part: they would fence each other for
    ever.

    Attributes:
        absent: the clients that do nothing.
    """

    absent: frozenset[int] = frozenset()


@frozen(kw_only=True)
class Join:
    """A client joins, maybe wrongly.

    Attributes:
        protocol_type: their type.
        changed: whether its subscription differs from the last.
        session: session timeout, None for that of the client.
    """

    client: int
    member: Id = Id.OWN
    instance: Instance = Instance.OWN
    protocols: Protocols = Protocols.BOTH
    protocol_type: str = "raw"
    changed: bool = False
    session: Patience | None = None


@frozen(kw_only=True)
class Ask:
    """A client sends another request, maybe wrongly.

    Attributes:
        protocol_name: protocol in a sync, "" for the protocol that the client was told.
    """

    client: int
    request: Request
    member: Id = Id.OWN
    instance: Instance = Instance.OWN
    generation: Generation = Generation.OWN
    protocol_name: str = ""


@frozen(kw_only=True)
class HangUp:
    """A client closes the connection of its waiting join or sync, and never gets the answer."""

    client: int


@frozen(kw_only=True)
class Wait:
    """All clients are idle for a number of units."""

    units: int


Step: TypeAlias = Proceed | Round | Join | Ask | HangUp | Wait


@frozen(kw_only=True)
class Program:
    """The actions of the clients of one group.

    Attributes:
        instances: static id of each client, None for a dynamic member.
        sessions: session timeout of each client.
        rebalances: rebalance timeout of each client.
    """

    instances: tuple[str | None, ...]
    sessions: tuple[Patience, ...]
    rebalances: tuple[Patience, ...]
    steps: tuple[Step, ...]


# --- strategies --------------------------------------------------------------------------------

# Modulo the number of clients: the client; the quotient: the client that it imitates.
_CLIENTS = st.integers(0, CLIENTS_MAX * (CLIENTS_MAX - 1) - 1)
_LINE_UPS = st.sampled_from(
    (
        (None, None),
        (None, None, None),
        (None, "alpha"),
        ("alpha", "beta"),
        (None, "alpha", "alpha"),
        ("alpha", "alpha", "beta"),
        (None, None, "alpha", "alpha"),
        (None, None, None, "alpha"),
    )
)


_RIGHT = 12


def _mostly(right: enum.Enum, times: int = _RIGHT) -> st.SearchStrategy[enum.Enum]:
    """Draw the right choice `times` times as often as each other choice."""
    return st.sampled_from((*[right] * times, *(one for one in type(right) if one is not right)))


_MEMBERS = _mostly(Id.OWN)
_INSTANCES = _mostly(Instance.OWN)
_PROCEED = st.builds(Proceed, client=_CLIENTS)
_ROUND = st.builds(Round, absent=st.frozensets(st.integers(0, 2), max_size=1))
_HANG_UP = st.builds(HangUp, client=_CLIENTS)
_JOIN = st.builds(
    Join,
    client=_CLIENTS,
    member=_MEMBERS,
    instance=_INSTANCES,
    protocols=st.sampled_from((*[Protocols.BOTH] * _RIGHT, *Protocols)),
    protocol_type=st.sampled_from((*["raw"] * _RIGHT, "cooked", "")),
    changed=st.booleans(),
    session=st.sampled_from((*[None] * _RIGHT, Patience.BELOW_MINIMUM, Patience.ABOVE_MAXIMUM)),
)
_ASK = st.builds(
    Ask,
    client=_CLIENTS,
    request=st.sampled_from((*[*Request][1:] * 2, Request.FIND_COORDINATOR)),
    member=_MEMBERS,
    instance=_INSTANCES,
    generation=_mostly(Generation.OWN, 5),
    protocol_name=st.sampled_from((*[""] * _RIGHT, "third")),
)
_QUICK_STEPS = st.one_of(_PROCEED, _ROUND, _JOIN, _JOIN, _ASK, _ASK, _ASK, _HANG_UP)
_WAIT = st.builds(Wait, units=st.sampled_from((4, 10, 16)))
_TIMED_STEPS = st.one_of(_PROCEED, _PROCEED, _ROUND, _JOIN, _ASK, _ASK, _WAIT, _WAIT)


@st.composite
def _programs(
    draw: st.DrawFn,
    steps: st.SearchStrategy[Step],
    patience: st.SearchStrategy[Patience],
    steps_max: int,
) -> Program:
    instances = draw(_LINE_UPS)
    each = st.tuples(*[patience] * len(instances))
    begin = draw(st.sampled_from(((), (Round(),))))
    return Program(
        instances=instances,
        sessions=draw(each),
        rebalances=draw(each),
        steps=(*begin, *draw(st.lists(steps, min_size=4, max_size=steps_max))),
    )


def quick_programs() -> st.SearchStrategy[Program]:
    """Draw programs without time-outs."""
    return _programs(_QUICK_STEPS, st.just(Patience.LONG), STEPS_MAX)


def timed_programs() -> st.SearchStrategy[Program]:
    """Draw programs with waits in which sessions, joins and syncs time out."""
    patience = st.sampled_from((Patience.LONG, Patience.SHORT, Patience.SHORT))
    return _programs(_TIMED_STEPS, patience, STEPS_MAX - 4)
