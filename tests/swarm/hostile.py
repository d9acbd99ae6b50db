"""Runs with hostile members (Byzantine faults): what they say as members, and decide as leaders.

    run = draw_hostile(seed)
    played = play(run)          # of the module `play`, as any other run

A hostile process joins the group of honest members, sends its heartbeats, and never works. It
claims partitions that it was never assigned, and gives nothing up. It leads if it comes first, or
after the leader has ended. `Act.lies` names what it does, for example `topics=none claims=all
generation=newest`. What is not named changes at random from message to message.

`witness` checks what the honest members keep.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.protocol.reader import INT16, INT32, INT64
from coopgroup.core.protocol.resource_array import packed_nullable_resources, packed_resources
from coopgroup.core.protocol.user_data import MAGIC
from coopgroup.core.protocol.writer import packed_nullable_string
from coopgroup.protocol import (
    USER_DATA_VERSION,
    Assignment,
    Subscription,
    UserData,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.simulator.scenario import LEADER, Choice, Identity
from tests.swarm.runs import TOPICS, Act, ActKind, Faults, SwarmRun
from tests.swarm.warm import draw_warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.simulator.simulation import Simulation

HOSTILE: Final = "hostile"
"""Stands for hostile processes in place of the protocols of other clients."""

UNWANTED: Final = "V"
"""A topic that exists, and that no honest member subscribes to."""

_GHOST: Final = "ghost"  # a topic that does not exist
_NEWEST: Final = 2**31 - 1
_OLDEST: Final = -(2**31)
_FAR: Final = (97, 98)  # partitions that do not exist
_HUGE: Final = 0.01  # share of the processes; a leader takes long for each
_REJOINS: Final = 0.03  # share of the heartbeats: about once in 1.3 s

_WAYS: Final = {
    "topics": ("none", "all", "all", "one", "strange"),
    "claims": ("none", "all", "all", "another's", "some", "strange"),
    "generation": ("newest", "next", "last", "last", "old", "none", "negative"),
    "traits": ("none", "plain", "mad", "mad", "torn"),
    "form": ("plain", "plain", "plain", "plain", "garbage", "torn"),
    "version": ("3", "3", "3", "2", "1", "0"),
    "leads": ("other", "missing", "twice", "mine", "nothing", "nobody", "garbage", "mad", "silent"),
}
"""What a hostile process can do; each has one way in a whole run, or another in each message."""


@define(eq=False)
class Lies:
    """The lies of one process.

    Attributes:
        simulation: the group that it lies to.
        dice: all random decisions.
        ways: what it always does, by the keys of `_WAYS`.
    """

    simulation: Simulation
    dice: random.Random
    ways: dict[str, str] = field(factory=dict)

    @property
    def rejoins(self) -> bool:
        """Whether it now causes a round by itself."""
        return self.dice.random() < _REJOINS

    def _way(self, what: str) -> str:
        return self.ways.get(what) or self.dice.choice(_WAYS[what])

    # --- as a member ------------------------------------------------------------------------------

    def subscription(self, last: int) -> bytes:
        """Return what it says when it joins."""
        form = self._way("form")
        if form == "garbage":
            return self._garbage()
        if form == "huge":
            return _huge_subscription()
        said = Subscription(
            topics=self._topics(),
            user_data=self._user_data(),
            owned=self._claims(),
            generation=self._generation(last),
        )
        written = encode_subscription(said, int(self._way("version")))
        return written[: self.dice.randrange(len(written))] if form == "torn" else written

    def _topics(self) -> tuple[str, ...]:
        match self._way("topics"):
            case "none":
                return ()
            case "all":
                return TOPICS
            case "one":
                return (self.dice.choice(TOPICS),)
            case _:
                return (_GHOST, UNWANTED, self.dice.choice(TOPICS))

    def _claims(self) -> ResourceSet:
        existing = self.simulation.brokers.existing()
        match self._way("claims"):
            case "none":
                return EMPTY
            case "all":
                return existing
            case "another's":
                owned = [process.session.member.owned for process in self.simulation.alive]
                return self.dice.choice([*owned, EMPTY])
            case "some":
                return self._some(existing)
            case _:
                return self._some(existing) | _strange()

    def _generation(self, last: int) -> int:
        # It may have missed rounds, and can guess the number.
        known = max(last, self.simulation.brokers.coordinator.group.generation)
        match self._way("generation"):
            case "newest":
                return _NEWEST
            case "next":
                return known + self.dice.choice((1, 1, 2, 10))
            case "last":
                return known
            case "old":
                return max(known - self.dice.randint(1, 3), 0)
            case "none":
                return -1
            case _:
                return self.dice.choice((_OLDEST, -2))

    def _user_data(self) -> bytes | None:
        match self._way("traits"):
            case "none":
                return None
            case "plain":
                return encode_user_data(UserData())
            case "torn":
                written = self._mad_data()
                return written[: self.dice.randrange(len(written))]
            case _:
                return self._mad_data()

    def _mad_data(self) -> bytes:
        """Return rates, deadlines and warm sets that no honest member reports."""
        dice = self.dice
        existing = self.simulation.brokers.existing()
        warm = dice.choice((None, EMPTY, existing, existing | _strange()))
        declined = dice.choice((EMPTY, existing))
        fields = (
            INT32.pack(dice.choice((-1, 0, 300, _NEWEST))),
            INT32.pack(dice.choice((-1, 0, 300, _NEWEST))),
            INT64.pack(dice.choice((-1, 0, 1, 2**63 - 1))),
            INT64.pack(-1),
            packed_nullable_resources(warm, "warm", index_min=0),
            packed_nullable_string(host := dice.choice((None, "h" * 9)), "host"),
            packed_resources(declined, "declined", index_min=0),
            INT32.pack(dice.choice((0, 1))),
            packed_nullable_string(None if host is None else '{"places":-1,"tags":3}', "traits"),
            packed_resources(declined, "declined_warmups", index_min=0),
            packed_nullable_string(host, "policy"),
            INT64.pack(2**63 - 1),
            packed_nullable_string("p" * 999, "assignor"),
            INT64.pack(-1),
        )
        return MAGIC + INT16.pack(USER_DATA_VERSION) + b"".join(fields)

    # --- as a leader ------------------------------------------------------------------------------

    def decided(
        self, my_id: str, members: Sequence[JoinedMember]
    ) -> tuple[tuple[str, bytes], ...] | None:
        """Return the assignments of a round that it leads; None for no answer at all."""
        ids = [member.member_id for member in members]
        existing = self.simulation.brokers.existing()
        wanted = existing.restrict_names(TOPICS)
        way = self._way("leads")
        given: dict[str, ResourceSet] = {}
        match way:
            case "silent":
                return None
            case "nobody":
                return ()
            case "garbage":
                return tuple((one, self._garbage()) for one in ids)
            case "other":
                given = {one: self._some(existing) | _strange() for one in ids}
            case "missing":
                given = dict.fromkeys(ids, wanted | ResourceSet.from_pairs(("T", i) for i in _FAR))
            case "twice":
                given = {one: self._some(wanted) for one in ids}
            case "mine":
                given = {my_id: wanted}
            case "mad":
                owned = {one.member_id: _owned(one.metadata) for one in members}
                given = {one: owned[one] | self._some(wanted) for one in ids}
            case _:
                pass
        return tuple((one, self._assignment(way, given.get(one, EMPTY))) for one in ids)

    def _assignment(self, way: str, assigned: ResourceSet) -> bytes:
        dice = self.dice
        if way != "mad":
            return encode_assignment(Assignment(assigned=assigned))
        existing = self.simulation.brokers.existing()
        return encode_assignment(
            Assignment(
                assigned=assigned,
                revoked=dice.choice((None, None, self._some(existing), assigned)),
                rejoin_in_ms=dice.choice((None, 1, 300, _NEWEST)),
                loss_ends_in_ms=dice.choice((None, 1, 300, _NEWEST)),
                warmups=dice.choice((EMPTY, existing | _strange())),
            )
        )

    def _garbage(self) -> bytes:
        return self.dice.randbytes(self.dice.choice((0, 1, 6, 40)))

    def _some(self, resources: ResourceSet) -> ResourceSet:
        return ResourceSet.from_pairs(one for one in resources if self.dice.random() < 0.5)


def _owned(metadata: bytes) -> ResourceSet:
    try:
        return decode_subscription(metadata).owned
    except Exception:  # noqa: BLE001 - the message of another hostile process
        return EMPTY


def _strange() -> ResourceSet:
    """Return partitions of other topics, and partitions that do not exist."""
    rows = [
        (_GHOST, 0),
        (_GHOST, 1),
        (UNWANTED, 0),
        *((topic, i) for topic in TOPICS for i in _FAR),
    ]
    return ResourceSet.from_pairs(sorted(rows))


def prepare(simulation: Simulation) -> None:
    """Let members work on partitions that do not exist; these have no records."""
    for topic, index in _strange():
        simulation.load.produce(topic, index, (0.0,), 0)


@cache
def _huge_subscription() -> bytes:
    """Return a readable subscription of 1.5 MB; the leader decodes it once."""
    names = tuple(f"{_GHOST}-{number:08d}" for number in range(40_000))
    claims = ResourceSet(dict.fromkeys(names[:20000], (0, _NEWEST)))
    return encode_subscription(
        Subscription(topics=(*names, *TOPICS), owned=claims, generation=_NEWEST)
    )


# --- what happens ---------------------------------------------------------------------------------

_GAPS_MS: Final = (0, 30, 100, 300, 800)
_TIMES_MS: Final = (1, 50, 200, 800)
_HONEST_MAX: Final = 4
_HOSTILE_MAX: Final = 2
_ASSIGNORS: Final = ("sticky", "sticky", "cooperative-sticky", "lag-aware", "drain-time")


def draw_hostile(seed: int) -> SwarmRun:
    """Draw a run with one or two hostile processes among honest members."""
    chance = random.Random(f"swarm/hostile/{seed}")
    is_calm = chance.random() < 0.5
    faults = Faults(
        delay_ms_max=chance.choice((2, 10, 40)),
        slow=chance.choice((0.0, 0.0, 0.3)),
        slow_ms_max=400,
        lead_ms_max=chance.choice((10, 10, 200)),
        awaits_commits=chance.random() < 0.5,
    )
    policy = _policy(chance)
    if chance.random() < 0.2:
        warm = draw_warm(chance.randrange(10_000))
        policy = warm.policy
        faults = attrs.evolve(faults, restore_ms_max=min(warm.faults.restore_ms_max, 100))
    return SwarmRun(
        seed=seed,
        policy=policy,
        assignor=chance.choice(_ASSIGNORS),
        rebalance_timeout_ms=chance.choice((600, 1_500)),
        faults=faults,
        acts=tuple(_acts(chance, is_calm=is_calm)),
        healed_after_ms=chance.choice((300, 1_500)),
        theirs=HOSTILE,
    )


def _policy(chance: random.Random) -> Choice:
    waits: dict[str, Any] = {"scheduled_rebalance_timeout_ms": chance.choice((0, 300, 1_500))}
    match chance.choice(("simple", "deferred", "incremental")):
        case "deferred":
            return Choice(name="deferred", options=waits)
        case "incremental":
            ration = {"max_moves_per_round": chance.choice((1, 2)), "move_interval_ms": 200}
            return Choice(name="incremental", options=waits | ration)
        case _:
            return Choice(name="simple")


def _acts(chance: random.Random, *, is_calm: bool) -> Iterator[Act]:
    """Yield topics, the first processes in any order, and then starts and ends of both kinds."""
    sizes = {"T": chance.randint(2, 6), "U": chance.randint(1, 3), UNWANTED: 2}
    for topic, number in sizes.items():
        yield Act(kind=ActKind.RESIZE, topics=(topic,), number=number)
    topics = chance.choice((("T",), TOPICS))
    honest = [f"p{number}" for number in range(1, chance.randint(2, 3) + 1)]
    hostile = [f"h{number}" for number in range(1, chance.randint(1, _HOSTILE_MAX) + 1)]
    first = [*honest, *hostile]
    if chance.random() < 0.6:
        yield from (_start(chance, name, topics) for name in honest)
        first = hostile
    chance.shuffle(first)
    yield from (_start(chance, name, topics) for name in first)
    for _ in range(chance.randint(0, 5)):
        name = chance.choice((*honest, *honest, *hostile, *hostile, LEADER))
        act = Act(after_ms=chance.choice(_GAPS_MS), kind=ActKind.CRASH, process=name)
        match chance.choice(("end", "end", "come", "come", "change", "trouble")):
            case "end":
                kind = chance.choice((ActKind.CLOSE, ActKind.CRASH))
                back_ms = 0 if name in hostile else chance.choice((0, *_TIMES_MS))
                yield attrs.evolve(act, kind=kind, for_ms=back_ms)
            case "come":
                names = (f"p{chance.randint(1, _HONEST_MAX)}", *hostile)
                yield _start(chance, chance.choice(names), topics)
            case "change" if not is_calm:
                count = chance.randint(1, 6)
                yield attrs.evolve(act, kind=ActKind.RESIZE, topics=("T",), number=count)
            case "trouble" if not is_calm:
                yield _trouble(chance, act)
            case _:
                yield attrs.evolve(act, kind=ActKind.STALL)


def _start(chance: random.Random, name: str, topics: tuple[str, ...]) -> Act:
    act = Act(after_ms=chance.choice(_GAPS_MS), kind=ActKind.START, process=name, topics=topics)
    if name.startswith("p"):
        return attrs.evolve(act, identity=chance.choice((Identity.NONE, *Identity)))
    constant = [what for what in _WAYS if chance.random() < 0.6]
    lies = " ".join(f"{what}={chance.choice(_WAYS[what])}" for what in constant)
    if chance.random() < _HUGE:
        lies = "form=huge"
    return attrs.evolve(act, client="other", lies=lies)


def _trouble(chance: random.Random, act: Act) -> Act:
    match chance.choice(("move", "pause", "cut", "subscribe")):
        case "move":
            for_ms = chance.choice((0, 0, 200))
            return attrs.evolve(
                act, kind=ActKind.MOVE, process="", number=chance.randint(1, 3), for_ms=for_ms
            )
        case "pause":
            return attrs.evolve(act, kind=ActKind.PAUSE, for_ms=chance.choice((300, 700)))
        case "cut":
            return attrs.evolve(act, kind=ActKind.CUT, for_ms=chance.choice((300, 700)))
        case _:
            return attrs.evolve(act, kind=ActKind.SUBSCRIBE, topics=chance.choice((("T",), TOPICS)))
