"""The catalogue of small histories: runs without a fault, in which one thing happens to a group.

    for cell in CELLS:
        run = cell.run()            # a plain run of the swarm
        played = play(run)          # ends at rest, without a violation

A cell is a history with one kind of identity and one policy. Three members share eight partitions,
until the acts of the history begin (`Cell.begins_ms`). `tests.swarm.exhaust` adds every fault to
every message from that time on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import evolve as _evolve
from attrs import field, frozen

from coopgroup.simulator.scenario import LEADER, Choice, Identity
from tests.swarm.chains import resize_of, start_of
from tests.swarm.consumers import CLASSIC, CONSUMER
from tests.swarm.foreign import COOPERATIVE
from tests.swarm.mixed import KIP_848, Client
from tests.swarm.places import LastingPlaces
from tests.swarm.runs import TOPICS, Act, ActKind, Faults, SwarmRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ACT_MS: Final = 400
"""Time at which the acts of a history begin; the first members are then at rest."""
_CONSUMER_ACT_MS: Final = 600  # the first partitions move with heartbeats, not in a round
_FIRST_MS: Final = 5
_HEALED_AFTER_MS: Final = 300  # the moves that the acts cause have commits to make
_COMMIT_MS: Final = 400  # most commits are those of revocations
_RESTORE_MS: Final = 60  # a warm-up outlives a heartbeat, and several fit between two rounds
_WAITS: Final = {"scheduled_rebalance_timeout_ms": 300}
_WARMUP: Final = {"max_concurrent": 2, "per_member": 1, "timeout_ms": 400, "standbys": 0}

POLICIES: Final[Mapping[str, Choice]] = {
    "simple": Choice(name="simple"),
    "deferred": Choice(name="deferred", options=_WAITS),
    "incremental": Choice(
        name="incremental",
        options={**_WAITS, "max_moves_per_round": 1, "move_interval_ms": 100},
    ),
    "warm": Choice(name="deferred", options={**_WAITS, "warmup": _WARMUP}),
    "gathers": Choice(name="deferred", options={**_WAITS, "initial_delay_ms": 100}),
    "balancing": Choice(
        name="incremental",
        options={
            **_WAITS,
            "max_moves_per_round": 2,
            "move_interval_ms": 0,
            "lag_check_interval_ms": 50,
            "lag_imbalance_min": 5,
            "lag_cooldown_ms": 200,
        },
    ),
    "paced": Choice(
        name="incremental",
        options={
            "scheduled_rebalance_timeout_ms": 0,
            "max_moves_per_round": 1,
            "move_interval_ms": 500,
        },
    ),
    CONSUMER: Choice(name="simple"),  # of classic members; a member of KIP-848 has no policy
}
"""The policies of the cells, by name; `CONSUMER` for a group in which the broker assigns."""

_PLAIN: Final = ("simple", "deferred", "incremental")
_BOTH: Final = (*_PLAIN, CONSUMER)


@frozen(kw_only=True)
class History:
    """One thing that happens to a group.

    Attributes:
        acts: from `Cell.begins_ms` on; the first has that time by itself.
        policies: names of those that it is played with.
        identities: kinds of identity that it is played with.
        members: number of the first members; with 0 the group begins with the acts.
        client: of the first members; only with `CONSUMER`.
        faults: fields of `Faults` that differ from those of the other histories.
        rebalance_timeout_ms: as of a run.
        assignor: as of a run.
        theirs: as of a run.
    """

    acts: tuple[Act, ...]
    policies: tuple[str, ...] = _BOTH
    identities: tuple[Identity, ...] = tuple(Identity)
    members: int = 3
    client: str = ""
    faults: Mapping[str, Any] = field(factory=dict)
    rebalance_timeout_ms: int = 1_500
    assignor: str = "sticky"
    theirs: str = ""


def _of(kind: ActKind, process: str = "p2", **values: Any) -> Act:  # noqa: ANN401 - fields of an act
    return Act(kind=kind, process=process, **values)


_SOON_MS: Final = 50
_LATE_MS: Final = 800  # after the session
_STEP_MS: Final = 700  # the group rests between two steps
_DOWN_MS: Final = 100  # a member has stopped, and left
_T: Final = ("T",)
_DYNAMIC: Final = (Identity.NONE,)
_SLOW_STOPS: Final = {"slow": 1.0, "slow_ms_max": 400}


def _other(process: str) -> Act:
    """Return the start of a member of another client."""
    return _evolve(start_of(process, _T), client=Client.OTHER)


def _path_of(assignor: type) -> str:
    return f"{assignor.__module__}:{assignor.__name__}"


def _restarts(client: str) -> Iterator[Act]:
    """Yield the acts of a rolling restart, after which the members have another protocol."""
    for number in (1, 2, 3):
        yield _of(ActKind.CLOSE, f"p{number}", after_ms=_STEP_MS)
        yield _evolve(start_of(f"p{number}", _T), after_ms=_DOWN_MS, client=client)


_SUBSCRIBES_AT_BAD_TIMES: Final = (
    _of(ActKind.SUBSCRIBE, topics=("U",)),
    _of(ActKind.SUBSCRIBE, topics=TOPICS, after_ms=215),  # while it stops
    _of(ActKind.STALL, after_ms=500),
    _of(ActKind.SUBSCRIBE, topics=_T),  # before it has heard of its loss
    _of(ActKind.CRASH, "p3", after_ms=500, for_ms=_SOON_MS),
)

HISTORIES: Final[Mapping[str, History]] = {
    "forms": History(acts=tuple(start_of(f"p{n}", _T, after_ms=5) for n in (1, 2, 3)), members=0),
    "joins": History(acts=(start_of("p4", _T),)),
    "leaves": History(acts=(_of(ActKind.CLOSE),)),
    "bounces": History(acts=(_of(ActKind.CLOSE, for_ms=_SOON_MS),)),
    "crashes": History(acts=(_of(ActKind.CRASH),)),
    "returns": History(acts=(_of(ActKind.CRASH, for_ms=_SOON_MS),)),
    "returns late": History(acts=(_of(ActKind.CRASH, for_ms=_LATE_MS),)),
    "stalls": History(acts=(_of(ActKind.STALL),)),
    "leader leaves": History(acts=(_of(ActKind.CLOSE, LEADER),), policies=_PLAIN),
    "leader crashes": History(acts=(_of(ActKind.CRASH, LEADER),), policies=_PLAIN),
    "leader returns": History(acts=(_of(ActKind.CRASH, LEADER, for_ms=_SOON_MS),), policies=_PLAIN),
    "coordinator moves": History(acts=(_of(ActKind.MOVE, "", number=2),)),
    "coordinator dies": History(acts=(_of(ActKind.MOVE, "", number=2, for_ms=200),)),
    "subscribes": History(acts=(resize_of("U", 2), _of(ActKind.SUBSCRIBE, topics=TOPICS))),
    "unsubscribes": History(acts=(_of(ActKind.SUBSCRIBE, topics=("U",)),)),
    "topic grows": History(acts=(resize_of("T", 10),)),
    "topic shrinks": History(acts=(resize_of("T", 5),)),
    "topic is made again": History(acts=(resize_of("T", 0), resize_of("T", 8, after_ms=100))),
    "swapped": History(acts=(_of(ActKind.CLOSE), start_of("p4", _T))),
    "declines": History(
        acts=(_of(ActKind.DECLINE, topics=_T, number=3, for_ms=300),), policies=_PLAIN
    ),
    "warms up": History(acts=(start_of("p4", _T),), policies=("warm",)),
    "hands over": History(acts=(_of(ActKind.HAND_OVER),), policies=("warm",)),
    "gathers": History(
        acts=tuple(start_of(f"p{n}", _T, after_ms=5) for n in (1, 2, 3)),
        policies=("gathers",),
        members=0,
    ),
    "balances": History(acts=(start_of("p4", _T),), policies=("balancing",), assignor="lag-aware"),
    "has places": History(
        acts=(start_of("p4", _T),), policies=("deferred",), assignor=_path_of(LastingPlaces)
    ),
    "stops slowly": History(
        acts=(_of(ActKind.SUBSCRIBE, topics=("U",)),),
        policies=("simple", CONSUMER),
        faults=_SLOW_STOPS,
    ),
    "stalls while it stops": History(
        acts=(
            _of(ActKind.SUBSCRIBE, topics=("U",)),
            _of(ActKind.STALL, after_ms=240),
        ),
        policies=("simple", CONSUMER),
        faults=_SLOW_STOPS,
    ),
    "joins slowly": History(
        acts=(start_of("p4", _T),), policies=("simple", CONSUMER), faults=_SLOW_STOPS
    ),
    "decides slowly": History(
        acts=(start_of("p4", _T),), policies=("simple",), faults={"lead_ms_max": 400}
    ),
    "changes its mind": History(
        acts=(
            start_of("p4", _T),
            *(
                _of(kind, process, topics=topics, number=number, after_ms=20)
                for number in range(6)
                for process in (LEADER, "p2")
                for kind, topics in (
                    (ActKind.SUBSCRIBE, (_T, TOPICS)[number % 2]),
                    (ActKind.DECLINE, ("U",)),
                )
            ),
        ),
        policies=("simple",),
        faults={"lead_ms_max": 400, **_SLOW_STOPS},
    ),
    "subscribes at bad times": History(
        acts=(
            *_SUBSCRIBES_AT_BAD_TIMES,
            # while it asks whether it is still a member
            _of(ActKind.DECLINE, "p3", topics=("U",), number=1, after_ms=_SOON_MS + 1),
            _of(ActKind.SUBSCRIBE, "p3", topics=TOPICS),
        ),
        policies=("simple",),
        faults=_SLOW_STOPS,
    ),
    "subscribes while it joins": History(
        acts=(
            *_SUBSCRIBES_AT_BAD_TIMES,
            _of(ActKind.SUBSCRIBE, "p3", topics=TOPICS, after_ms=_SOON_MS + 1),  # while it joins
        ),
        policies=(CONSUMER,),
        faults=_SLOW_STOPS,
    ),
    "grows while it decides": History(
        acts=(start_of("p4", _T), resize_of("T", 10, after_ms=300)),
        policies=("simple",),
        identities=_DYNAMIC,
        faults={"lead_ms_max": 400},
    ),
    "grows while it returns": History(
        acts=(
            _of(ActKind.CRASH, LEADER, for_ms=_SOON_MS),
            resize_of("T", 10, after_ms=10),
        ),
        policies=("simple",),
        identities=(Identity.STATE_DIR,),
        faults={"delay_ms_max": 18},  # it still returns when it notices
    ),
    "shrinks while it warms up": History(  # members stop partitions, and others become warm
        acts=(_of(ActKind.HAND_OVER), resize_of("T", 5, after_ms=20)),
        policies=("warm",),
        identities=_DYNAMIC,
        faults=_SLOW_STOPS,
    ),
    "joins at the end of a lease": History(
        acts=(resize_of("U", 2), start_of("p4", _T, after_ms=250)),
        policies=("simple",),
        identities=_DYNAMIC,
        rebalance_timeout_ms=695,
    ),
    "commits late": History(
        acts=(start_of("p4", _T), _of(ActKind.CLOSE, "p4", after_ms=360)),
        policies=("incremental",),
        identities=_DYNAMIC,
        faults={"late_commit_ms": 300},
    ),
    "awaits no commits": History(
        acts=(start_of("p4", _T),),
        policies=("deferred",),
        identities=_DYNAMIC,
        faults={"awaits_commits": False, "commit_interval_ms": 250},
    ),
    "leader follows and leads again": History(
        acts=(
            _of(ActKind.CRASH, "p3"),
            _of(ActKind.STALL, "p1", after_ms=740),  # p2 leads then, and the share of p3 waits
            _of(ActKind.CRASH, "p2", after_ms=190),
        ),
        policies=("deferred",),
        identities=_DYNAMIC,
    ),
    "joins while it decides": History(
        acts=(start_of("p4", _T), start_of("p5", _T, after_ms=200)),
        policies=("paced",),
        identities=_DYNAMIC,
        faults={"lead_ms_max": 400},
    ),
    "static member joins after a crash": History(
        acts=(_of(ActKind.CRASH, "p3"), start_of("p5", _T, identity=Identity.STATIC)),
        policies=("deferred",),
        identities=_DYNAMIC,
    ),
    "newcomer declines": History(
        acts=(start_of("p4", _T), _of(ActKind.DECLINE, "p4", topics=_T, number=8, after_ms=2)),
        policies=("simple",),
        assignor="range",  # its target does not follow the declines
    ),
    "newcomer hesitates": History(
        acts=(
            start_of("p4", _T),
            _of(ActKind.DECLINE, "p4", topics=_T, number=8, for_ms=100, after_ms=125),
        ),
        policies=("incremental",),
        assignor="lag-aware",
    ),
    "unreadable": History(
        acts=(_of(ActKind.GARBLE), start_of("p4", _T)),
        policies=_PLAIN,
        identities=_DYNAMIC,
    ),
    "leader is unreadable": History(
        acts=(
            resize_of("U", 3),
            start_of("p1", _T),
            start_of("p2", TOPICS),
            start_of("p3", ("U",)),
            _of(ActKind.GARBLE, LEADER, after_ms=125),  # between two moves
            start_of("p4", ("U",), after_ms=100),
        ),
        policies=("paced",),
        identities=_DYNAMIC,
        members=0,
        assignor="lag-aware",
    ),
    "equal claims": History(
        acts=(_of(ActKind.FORGE, "p3", number=0), _of(ActKind.CLOSE, LEADER)),
        policies=_PLAIN,
        identities=_DYNAMIC,
    ),
    "old claims": History(
        acts=(_of(ActKind.FORGE, "p3", number=1), _of(ActKind.CLOSE, LEADER)),
        policies=_PLAIN,
        identities=_DYNAMIC,
    ),
    "repeats a generation": History(
        # The members have joined when the group coordinator moves, and no log has their round.
        acts=(
            resize_of("T", 10),
            _of(ActKind.FORGE, "p3", after_ms=196),
            _of(ActKind.MOVE, "", number=2),
            _of(ActKind.CRASH, LEADER),
        ),
        policies=_PLAIN,
        identities=_DYNAMIC,
    ),
    "beside eager members": History(
        acts=(_other("f1"), _of(ActKind.CLOSE, "f1", after_ms=_STEP_MS)),
        policies=("simple", "deferred"),
        theirs="range",
    ),
    "beside cooperative members": History(
        acts=(
            _other("f1"),
            _of(ActKind.SUBSCRIBE, topics=("U",), after_ms=300),  # it must stop before it joins
            _of(ActKind.CLOSE, "f1", after_ms=400),
        ),
        policies=("simple", "deferred"),
        theirs=COOPERATIVE,
    ),
    "forms beside eager members": History(
        acts=(
            _other("f1"),
            _evolve(start_of("p3", _T), client=Client.BACK),
            start_of("p4", _T),
        ),
        policies=("deferred",),
        identities=_DYNAMIC,
        members=0,
        theirs="range",
    ),
    "subscribes beside cooperative members": History(
        acts=(
            _evolve(start_of("p1", TOPICS), client=Client.BACK),
            _other("f1"),
            _evolve(_other("f2"), after_ms=700),
            _of(ActKind.SUBSCRIBE, "p1", topics=_T, after_ms=480),
            _of(ActKind.SUBSCRIBE, "p1", topics=("U",), after_ms=440),
        ),
        policies=("simple",),
        identities=_DYNAMIC,
        members=0,
        faults={"commit_interval_ms": 30, "delay_ms_max": 40},
        theirs=COOPERATIVE,
    ),
    "kip-848": History(
        acts=(_other("k1"), _of(ActKind.CLOSE, "k1", after_ms=_STEP_MS)),
        policies=("simple", "deferred"),
        theirs=KIP_848,
    ),
    "returns with other topics": History(
        acts=(
            resize_of("U", 2),
            _of(ActKind.CLOSE, for_ms=_DOWN_MS),
            _of(ActKind.SUBSCRIBE, topics=TOPICS, after_ms=_SOON_MS),
        ),
        policies=(CONSUMER,),
    ),
    "joins with a bell": History(
        acts=(start_of("p4", _T),), policies=(CONSUMER,), faults={"bell_delay_ms_max": 2}
    ),
    "leaves with a bell": History(
        acts=(start_of("p4", _T), _of(ActKind.CLOSE, "p3", after_ms=30)),  # rings reach it late
        policies=(CONSUMER,),
        faults={"bell_delay_ms_max": 40},
    ),
    "both protocols": History(
        acts=(
            _evolve(start_of("p4", _T), client=CLASSIC),
            _of(ActKind.CLOSE, "p4", after_ms=_STEP_MS),
        ),
        policies=(CONSUMER,),
    ),
    "changes to consumer": History(
        acts=tuple(_restarts(client="")), policies=(CONSUMER,), client=CLASSIC
    ),
    "changes to classic": History(acts=tuple(_restarts(client=CLASSIC)), policies=(CONSUMER,)),
}
"""The histories, by name."""


@frozen(order=True)
class Cell:
    """A history with one kind of identity and one policy, each by its name."""

    history: str
    identity: str
    policy: str

    def __str__(self) -> str:
        """Return its name, as `make exhaust` prints it."""
        return f"{self.history}, {self.identity}, {self.policy}"

    def run(self) -> SwarmRun:
        """Return the run without a fault."""
        history, identity = HISTORIES[self.history], Identity(self.identity)
        first, *others = history.acts
        acts = [resize_of("T", 8)]
        acts += [
            _evolve(start_of(f"p{n}", _T, after_ms=5), client=history.client)
            for n in range(1, history.members + 1)
        ]
        begun_ms = sum(act.after_ms for act in acts)
        acts += [_evolve(first, after_ms=self.begins_ms - begun_ms), *others]
        return SwarmRun(
            seed=1,
            policy=POLICIES[self.policy],
            assignor=history.assignor,
            rebalance_timeout_ms=history.rebalance_timeout_ms,
            faults=_evolve(
                Faults(
                    restore_ms_max=_RESTORE_MS if self.policy == "warm" else 10,
                    commit_interval_ms=_COMMIT_MS,
                ),
                **history.faults,
            ),
            acts=tuple(
                _evolve(act, identity=identity)
                if act.kind is ActKind.START
                and act.client != Client.OTHER
                and act.identity is Identity.NONE
                else act
                for act in acts
            ),
            healed_after_ms=_HEALED_AFTER_MS,
            theirs=CONSUMER if self.policy == CONSUMER else history.theirs,
        )

    @property
    def begins_ms(self) -> int:
        """Time of the first act of the history."""
        if not HISTORIES[self.history].members:
            return _FIRST_MS
        return _CONSUMER_ACT_MS if self.policy == CONSUMER else ACT_MS


CELLS: Final = tuple(
    Cell(name, identity.value, policy)
    for name, history in HISTORIES.items()
    for identity in history.identities
    for policy in history.policies
)
"""Every history with every kind of identity and every policy that it is for."""
