"""The swarm: many runs of small groups, each drawn from its own seed, so that all differ.

    run = draw(seed=17)
    played = play(run)          # of the module `play`
    assert not played.violations

A run is a value that contains everything that will happen, and `draw` depends on the seed alone. A
run can therefore be saved, made smaller and played again (`minimise`, `run_files`). The meaning of
an act does not depend on earlier acts: an act on a missing or busy process has no effect.

This is swarm testing: each seed first draws a subset of the faults and of the kinds of acts. A
single run with all faults rarely gets far, but many runs with a few faults each do. Times are
short, so that much happens in little virtual time.
"""

from __future__ import annotations

import enum
import random
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import field, frozen

from coopgroup.simulator.scenario import LEADER, Choice, Identity
from coopgroup.simulator.world.brokers import NODES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TOPICS: Final = ("T", "U")
"""Names that processes subscribe to."""

_SUBSCRIPTIONS: Final = (("T",), ("T",), ("T",), ("T", "U"), ("U",))
_GAPS_MS: Final = (0, 5, 30, 100, 300, 800)
_DOWN_MS: Final = (1, 50, 200, 800)
_FOR_MS: Final = (50, 300, 500, 700, 1_500)
_PROCESSES_MAX: Final = 5
_ACTS_MAX: Final = 8
_STALLED_MS: Final = (150, 700, 1_500, 4_000)
_BELL_PART: Final = 0.2
_SUPERVISOR_PART: Final = 0.3
CODES: Final = dict.fromkeys(
    ("JoinGroup", "SyncGroup", "Heartbeat"), (-1, 14, 15, 16, 22, 25, 27)
) | {"OffsetCommit": (14, 15, 16, 22, 25, 27)}
"""Error codes that a request may get and that a member must recover from. A further code changes
all draws: give it a generator of its own."""
LATE_MS: Final = dict.fromkeys(("JoinGroup", "SyncGroup"), (10, 40)) | dict.fromkeys(
    ("Heartbeat", "OffsetCommit"), (10, 150, 700)
)
"""Times by which a request may be late, in ms."""


class ActKind(enum.StrEnum):
    """The kinds of acts; `process` names the affected process, `for_ms` is the duration."""

    START = "start"
    """A process starts, with `topics`, `identity` and `skew_ppm`."""

    CLOSE = "close"
    """A consumer is closed; its process comes back `for_ms` after its end, if that is not 0."""

    CRASH = "crash"
    """A process is killed; it comes back after `for_ms`, if that is not 0. Its supervisor leaves
    for it after `number` ms, if that is not 0."""

    CRASH_AT_SYNC = "crash at sync"
    """A process is killed between its join and its sync; if `number` is not 0, its sync arrives
    after its end. It comes back after `for_ms`, if that is not 0; so do its next lives, `times`."""

    STALL = "stall"
    """An application exceeds `max.poll.interval.ms`."""

    PAUSE = "pause"
    """A process stands still for `for_ms`."""

    CUT = "cut"
    """Nothing gets through between a process and the brokers for `for_ms`."""

    HOLD_UP = "hold up connection"
    """Nothing gets through on the `lane` of a process for `for_ms`; on its others it does."""

    SUBSCRIBE = "subscribe"
    """A process subscribes to other `topics`; one that is away, when it comes back."""

    HAND_OVER = "hand over"
    """A process hands over, and closes when it owns nothing; drawn only with warm-ups."""

    DECLINE = "decline"
    """The application of a process declines the first `number` partitions of `topics`, for `for_ms`
    or until its end; drawn only by the kind `declining`."""

    GARBLE = "garble"
    """The next JoinGroup of a process has a subscription that nobody can read."""

    FORGE = "forge"
    """The next JoinGroup of a process claims all resources, not only its own. The claim has the
    generation of its true claims, less `number`, and is never newer than any true claim."""

    UPSET = "upset"
    """The next `request` of a process meets with a `mishap`; `number` is the code that it is
    refused with, `for_ms` the time by which it is late. So do those after it, `times` in all."""

    MOVE = "move coordinator"
    """The broker `number` takes the group over; after `for_ms` without one, if that is not 0."""

    DEFINE = "define"
    """The definitions of `number` resources change, `times` in a row; only in groups of named
    resources (`named`)."""

    RESTART = "restart"
    """A process starts again all resources that its application refused; only in such groups."""

    RESIZE = "resize topic"
    """The first of `topics` has `number` partitions from now on."""


_DIRECTED: Final = {
    ActKind.HOLD_UP,
    ActKind.CRASH_AT_SYNC,
    ActKind.HAND_OVER,
    ActKind.DECLINE,
    ActKind.DEFINE,
    ActKind.RESTART,
}
_KINDS: Final = tuple(kind for kind in ActKind if kind not in _DIRECTED)


@frozen(kw_only=True)
class Act:
    """One event of a run.

    Attributes:
        after_ms: time since the previous act.
        kind: the kind; it determines which other fields count.
        process: name of a process, or `LEADER`.
        for_ms: how long.
        topics: names of topics, ascending.
        identity: how the process proves its identity.
        skew_ppm: how much its clock runs fast, in millionths.
        request: Kafka's name of a request.
        mishap: name of a `Mishap`.
        lane: "join" or "commit", the affected connection (`Lane`).
        number: a count, a code or a broker.
        times: how often.
        client: type of client that starts (`swarm_mixed.Client`).
        lies: what a hostile process does (`hostile.Lies`).
        is_fault: whether exhaustion added it to a history (`faults`).
    """

    after_ms: int = 0
    kind: ActKind
    process: str = ""
    for_ms: int = 0
    topics: tuple[str, ...] = ()
    identity: Identity = Identity.NONE
    skew_ppm: int = 0
    request: str = ""
    mishap: str = ""
    lane: str = ""
    number: int = 0
    times: int = 1
    client: str = ""
    lies: str = ""
    is_fault: bool = False


@frozen(kw_only=True)
class Faults:
    """Faults that can happen at any time; all fractions are from 0 to 1.

    Attributes:
        loss: fraction of the requests and of the answers that is lost.
        delay_ms_max: longest time that a request or an answer takes.
        slow: fraction of the resources that take long to stop.
        slow_ms_max: longest time of such a stop.
        lead_ms_max: longest time that a leader takes for a round.
        no_metadata: fraction of the rounds without metadata in time for the leader.
        commit_interval_ms: time between commits; a short interval keeps many commits pending.
        awaits_commits: whether applications wait for the commit of stopped resources.
        late_commit_ms: time until they commit given up resources again; 0 for never.
        bell_delay_ms_max: longest time of a ring from one member to another; 0 without a bell.
        bell_loss: fraction of the rings that a process does not hear.
        bell_false_ms: mean time between false rings.
        leave_ms_max: longest time until a supervisor leaves for a process that crashed; 0 without
            supervisors.
        leave_loss: fraction of the crashes after which no leave is sent.
        restore_ms_max: longest time to restore a resource, and of a warm-up.
        hang: fraction of the warm-ups that never end (`WarmupMishaps`).
        fail: fraction of the warm-ups that fail.
        lie: fraction of the warm-ups that are a lie, and of the resources of which a starting
            process says that it is warm.
        keeps_state: whether a process that returns finds its state on its disk.
        declines: fraction of the starts of named resources that are declined.
        decline_ms_max: longest time for which such a decline is remembered.
        never: fraction of the pairs of a process and a resource that it declines for ever.
        refusals: fraction of the starts that fail permanently.
        raises: fraction of the callbacks that raise.
        unreadable: fraction of the reads of the catalogue that fail.
        poll_ms_max: longest time between two polls of a consumer (`polled`).
        puts_off: fraction of such processes that put off stops.
        stuck: fraction of the stops that end after their limit, or never.
        leaves: fraction of the callbacks that close the consumer, or unsubscribe.
    """

    loss: float = 0.0
    delay_ms_max: int = 2
    slow: float = 0.0
    slow_ms_max: int = 100
    lead_ms_max: int = 10
    no_metadata: float = 0.0
    commit_interval_ms: int = 250
    awaits_commits: bool = True
    late_commit_ms: int = 0
    bell_delay_ms_max: int = 0
    bell_loss: float = 0.0
    bell_false_ms: int = 0
    leave_ms_max: int = 0
    leave_loss: float = 0.0
    restore_ms_max: int = 10
    hang: float = 0.0
    fail: float = 0.0
    lie: float = 0.0
    keeps_state: bool = False
    declines: float = 0.0
    decline_ms_max: int = 500
    never: float = 0.0
    refusals: float = 0.0
    raises: float = 0.0
    unreadable: float = 0.0
    poll_ms_max: int = 10
    puts_off: float = 0.0
    stuck: float = 0.0
    leaves: float = 0.0


@frozen(kw_only=True)
class SwarmRun:
    """All inputs of a run.

    Attributes:
        seed: seed of all random decisions during the run.
        policy: of the group.
        assignor: its name.
        rebalance_timeout_ms: of every member.
        faults: faults that can happen at any time.
        acts: events in order; then all faults end.
        healed_after_ms: time from the last act until all faults end.
        theirs: protocols of other clients in the group, joined by commas (`mixed`); or `HOSTILE`;
            or `CONSUMER`, or a kind of true applications (`ports`), such as `NAMED` or `POLLED`,
            or `CONSUMER` and such a kind, joined by a comma (`hosted`).
    """

    seed: int
    policy: Choice = field(factory=lambda: Choice(name="simple"))
    assignor: str = "sticky"
    rebalance_timeout_ms: int = 1_500
    faults: Faults = field(factory=Faults)
    acts: tuple[Act, ...] = ()
    healed_after_ms: int = 0
    theirs: str = ""


def draw(seed: int, *, policy: Choice | None = None) -> SwarmRun:
    """Draw a run."""
    chance = random.Random(f"swarm/{seed}")
    theme = chance.choice((*_Theme, _Theme.ANY, _Theme.WINDOW))
    drawn = _policy(chance, theme)
    return SwarmRun(
        seed=seed,
        policy=drawn if policy is None else policy,
        assignor=chance.choice(("sticky", "sticky", "cooperative-sticky", "lag-aware")),
        rebalance_timeout_ms=chance.choice((600, 1_500, 3_000)),
        faults=attrs.evolve(
            _faults(chance, theme), **_bell_faults(seed), **supervisor_faults(seed)
        ),
        acts=_stalled(_Author(chance).acts(theme), seed),
        healed_after_ms=chance.choice(_GAPS_MS),
    )


def _bell_faults(seed: int) -> dict[str, Any]:
    """Return the fields of `Faults` about the bell; none without a bell.

    The separate random generator keeps all other draws of a run unchanged.
    """
    chance = random.Random(f"swarm/{seed}/bell")
    if chance.random() > _BELL_PART:
        return {}
    return {
        "bell_delay_ms_max": chance.choice((2, 2, 40, 400)),
        "bell_loss": chance.choice((0.0, 0.1, 0.5)),
        "bell_false_ms": chance.choice((0, 0, 20, 300)),
    }


def supervisor_faults(seed: int) -> dict[str, Any]:
    """Return the fields of `Faults` about supervisors; none without supervisors.

    The separate random generator keeps all other draws of a run unchanged.
    """
    chance = random.Random(f"swarm/{seed}/supervisor")
    if chance.random() > _SUPERVISOR_PART:
        return {}
    return {
        "leave_ms_max": chance.choice((2, 2, 100, 700, 2_000)),
        "leave_loss": chance.choice((0.0, 0.0, 0.3)),
    }


def _stalled(acts: tuple[Act, ...], seed: int) -> tuple[Act, ...]:
    """Add single stalled connections to some runs.

    The separate random generator keeps all other draws of a run unchanged.
    """
    chance = random.Random(f"swarm/{seed}/connections")
    if chance.random() > 0.15:
        return acts
    some = list(acts)
    names = [act.process for act in acts if act.kind is ActKind.START]
    for _ in range(chance.randint(1, 3)):
        stall = Act(
            after_ms=chance.choice(_GAPS_MS),
            kind=ActKind.HOLD_UP,
            process=chance.choice((*names, LEADER)),
            for_ms=chance.choice(_STALLED_MS),
        )
        how = chance.choice(("join", "commit", "JoinGroup", "JoinGroup", "SyncGroup"))
        if how in CODES:
            stall = attrs.evolve(stall, kind=ActKind.UPSET, request=how, mishap="DELAYED")
        else:
            stall = attrs.evolve(stall, lane=how)
        some.insert(chance.randint(min(len(some), 3), len(some)), stall)
    return tuple(some)


class _Theme(enum.Enum):
    """The subject of a run: a theme combines events that random draws seldom combine."""

    ANY = "any acts"
    WINDOW = "members depart and come while lost resources wait, and nothing else goes wrong"
    CUT_OFF = "a member does not get through with some of its requests, or with all"
    CLAIMS = "subscriptions claim what is another's, or cannot be read"
    COMMITS = "commits are many and late, while resources go from hand to hand"


def _policy(chance: random.Random, theme: _Theme) -> Choice:
    """Return a policy with short times."""
    delay_ms = 1_500 if theme is _Theme.WINDOW else chance.choice((0, 300, 1_500))
    initial_ms = chance.choice((0, 0, 200))
    waits = {"scheduled_rebalance_timeout_ms": delay_ms, "initial_delay_ms": initial_ms}
    names = ("deferred", "deferred", "incremental", "incremental", "simple")
    match chance.choice(names[:4] if theme is _Theme.WINDOW else names):
        case "deferred":
            return Choice(name="deferred", options=waits)
        case "incremental":
            ration = {
                "max_moves_per_round": chance.choice((1, 2)),
                "move_interval_ms": chance.choice((0, 200, 500)),
            }
            return Choice(name="incremental", options={**waits, **ration})
        case _:
            return Choice(name="simple")


def _faults(chance: random.Random, theme: _Theme) -> Faults:
    """Return the faults of a run; some runs have none, so that no fault excuses an error."""
    match theme:
        case _Theme.WINDOW:
            return Faults(lead_ms_max=chance.choice((10, 10, 400)))
        case _Theme.CUT_OFF:
            return Faults(delay_ms_max=40)
        case _Theme.CLAIMS:
            return Faults(slow=chance.choice((0.0, 0.2)), slow_ms_max=400)
        case _Theme.COMMITS:
            return Faults(delay_ms_max=40, commit_interval_ms=30, awaits_commits=False)
        case _ if chance.random() < 0.3:
            return Faults()
        case _:
            return Faults(
                loss=chance.choice((0.0, 0.0, 0.02, 0.1)),
                delay_ms_max=chance.choice((2, 10, 40)),
                slow=chance.choice((0.0, 0.2, 0.5)),
                slow_ms_max=chance.choice((100, 400, 2_000)),
                lead_ms_max=chance.choice((10, 10, 400)),
                no_metadata=chance.choice((0.0, 0.0, 0.1)),
                commit_interval_ms=chance.choice((30, 250, 250)),
                awaits_commits=chance.random() < 0.5,
            )


class _Author:
    """Writes the acts of a run.

    It tracks the processes that exist if no fault interferes, so that most acts find their process.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._started = 0
        self._there: list[str] = []
        self._static: set[str] = set()
        # Constant in a run: a false claim may tie with a true claim, but never beat it.
        self._forged = chance.choice((0, 1))

    def acts(self, theme: _Theme) -> tuple[Act, ...]:
        """Return the first topics and processes, then acts of the kinds that this run has."""
        chance = self._chance
        acts = [self._resize(topic, after_ms=0) for topic in TOPICS]
        match theme:
            case _Theme.WINDOW:
                acts += self._window()
            case _Theme.CUT_OFF:
                acts += [self._start() for _ in range(chance.randint(2, 3))]
                acts += [act for _ in range(chance.randint(1, 2)) for act in self._cut_off()]
            case _Theme.CLAIMS:
                acts += [self._start(Identity.NONE) for _ in range(chance.randint(2, 3))]
                acts += self._false_claims()
            case _Theme.COMMITS:
                acts += [self._start() for _ in range(chance.randint(1, 3))]
                acts += self._late_commits()
            case _:
                acts += [self._start() for _ in range(chance.randint(1, 4))]
                acts += self._anything()
        return tuple(acts)

    def _false_claims(self) -> Iterator[Act]:
        """Yield false claims, each followed by a start that causes the round."""
        chance = self._chance
        kind = chance.choice((ActKind.FORGE, ActKind.FORGE, ActKind.GARBLE))
        for _ in range(chance.randint(1, 3)):
            name, number = self._anybody(), self._forged
            yield Act(after_ms=500, kind=kind, process=name, number=number)
            yield self._start(Identity.NONE)

    def _late_commits(self) -> Iterator[Act]:
        """Yield failing commits, each followed by a process that starts or ends."""
        chance = self._chance
        for _ in range(chance.randint(2, 4)):
            yield Act(
                after_ms=chance.choice((100, 300)),
                kind=ActKind.UPSET,
                process=self._anybody(),
                request="OffsetCommit",
                mishap=chance.choice(("ANSWER_LOST", "REFUSED", "DELAYED")),
                number=chance.choice((14, 27)),
                for_ms=150,
                times=chance.choice((1, 4)),
            )
            yield self._start() if chance.random() < 0.5 else self._end(ActKind.CLOSE, 30)

    def _anything(self) -> Iterator[Act]:
        chance = self._chance
        kinds = [kind for kind in _KINDS if chance.random() < 0.4] or [ActKind.CRASH]
        if ActKind.FORGE in kinds and ActKind.GARBLE in kinds:
            kinds.remove(ActKind.GARBLE)  # a false claim is undetectable if the true claim is lost
        for _ in range(chance.randint(2, _ACTS_MAX)):
            act = self._act(chance.choice(kinds))
            yield act
            if act.kind is ActKind.PAUSE and chance.random() < 0.5:
                yield self._cut_after(act)

    def _window(self) -> Iterator[Act]:
        """Yield departures, and then starts and leader changes while lost resources wait."""
        chance = self._chance
        yield Act(kind=ActKind.RESIZE, topics=("T",), number=chance.randint(3, 6))
        for _ in range(chance.randint(2, 4)):
            yield self._start(chance.choice((Identity.NONE, Identity.STATIC)), ("T",))
        for number in range(chance.randint(1, 2)):
            yield Act(
                after_ms=chance.choice((100, 300)) if number else 800,
                kind=ActKind.CRASH,
                process=chance.choice(self._there[1:]),  # the first process usually leads
                for_ms=chance.choice((0, 0, 800, 1_100)),
            )
        for number in range(chance.randint(1, 3)):
            after_ms = chance.choice((100, 300)) if number else chance.choice((500, 700, 900))
            match chance.choice((ActKind.START, ActKind.START, ActKind.CLOSE, ActKind.RESIZE)):
                case ActKind.START:
                    newcomer = self._start(chance.choice((Identity.NONE, Identity.STATIC)), ("T",))
                    yield attrs.evolve(newcomer, after_ms=after_ms)
                case ActKind.CLOSE:
                    yield Act(after_ms=after_ms, kind=ActKind.CLOSE, process=LEADER, for_ms=100)
                case _:
                    yield self._resize("T", after_ms=after_ms)
        yield Act(after_ms=1_500, kind=ActKind.RESIZE, topics=("U",), number=chance.randint(1, 3))

    def _cut_off(self) -> Iterator[Act]:
        """Yield a pause and then a cut, or repeated failures of a single kind of request."""
        chance, name = self._chance, self._anybody()
        gap_ms = chance.choice((300, 350, 400, 450, 500))
        if chance.random() < 0.5:
            for_ms = chance.choice((200, 350, 500))
            yield (pause := Act(after_ms=gap_ms, kind=ActKind.PAUSE, process=name, for_ms=for_ms))
            yield self._cut_after(pause)
        else:
            yield Act(
                after_ms=gap_ms,
                kind=ActKind.UPSET,
                process=name,
                request=chance.choice(("JoinGroup", "SyncGroup")),
                mishap=chance.choice(("REQUEST_LOST", "REFUSED")),
                number=chance.choice((14, 27)),
                times=20,
            )
        yield self._start()
        yield Act(after_ms=1_500, kind=ActKind.RESIZE, topics=("U",), number=2)

    def _act(self, kind: ActKind) -> Act:
        chance = self._chance
        if kind is ActKind.START or not self._there:
            return self._start()
        gap_ms = chance.choice(_GAPS_MS)
        match kind:
            case ActKind.CLOSE | ActKind.CRASH:
                act = self._end(kind, gap_ms)
            case ActKind.MOVE:
                act = Act(
                    after_ms=gap_ms,
                    kind=kind,
                    number=chance.choice(NODES),
                    for_ms=chance.choice((0, 20, 200, 800)),
                )
            case ActKind.RESIZE:
                act = self._resize(chance.choice(("T", "T", "U")), after_ms=gap_ms)
            case ActKind.SUBSCRIBE:
                anonymous = [name for name in self._there if name not in self._static]
                topics = chance.choice(_SUBSCRIPTIONS)
                name = chance.choice(anonymous or self._there)
                act = Act(after_ms=gap_ms, kind=kind, process=name, topics=topics)
            case ActKind.UPSET:
                act = self._upset(gap_ms)
            case ActKind.FORGE:
                name, number = self._anybody(), self._forged
                act = Act(after_ms=gap_ms, kind=kind, process=name, number=number)
            case _:
                for_ms = chance.choice(_FOR_MS)
                act = Act(after_ms=gap_ms, kind=kind, process=self._anybody(), for_ms=for_ms)
        return act

    def _cut_after(self, pause: Act) -> Act:
        """Return a cut that begins right after the pause, so that only old messages arrive."""
        return Act(after_ms=pause.for_ms, kind=ActKind.CUT, process=pause.process, for_ms=1_500)

    def _anybody(self) -> str:
        names: Sequence[str] = (*self._there, LEADER)
        return self._chance.choice(names)

    def _start(
        self, identity: Identity | None = None, topics: tuple[str, ...] | None = None
    ) -> Act:
        chance = self._chance
        if len(self._there) >= _PROCESSES_MAX:
            return self._end(ActKind.CLOSE, chance.choice(_GAPS_MS))
        self._started += 1
        name = f"p{self._started}"
        self._there.append(name)
        if identity is None:
            identity = chance.choice((Identity.NONE, Identity.NONE, Identity.STATIC, *Identity))
        if identity is Identity.STATIC:
            self._static.add(name)
        return Act(
            after_ms=chance.choice((0, 5, 100, 400)),
            kind=ActKind.START,
            process=name,
            topics=chance.choice(_SUBSCRIPTIONS) if topics is None else topics,
            identity=identity,
            skew_ppm=chance.choice((0, 0, 0, -400, 400, 30_000)),
        )

    def _end(self, kind: ActKind, gap_ms: int) -> Act:
        chance, name = self._chance, self._anybody()
        back_ms = chance.choice((0, *_DOWN_MS))
        if not back_ms and name in self._there:
            self._there.remove(name)
        return Act(after_ms=gap_ms, kind=kind, process=name, for_ms=back_ms)

    def _resize(self, topic: str, *, after_ms: int) -> Act:
        count = self._chance.randint(1, 6) if topic == "T" else self._chance.randint(0, 3)
        return Act(after_ms=after_ms, kind=ActKind.RESIZE, topics=(topic,), number=count)

    def _upset(self, gap_ms: int) -> Act:
        chance = self._chance
        request = chance.choice(tuple(CODES))
        return Act(
            after_ms=gap_ms,
            kind=ActKind.UPSET,
            process=self._anybody(),
            request=request,
            mishap=chance.choice(("REQUEST_LOST", "ANSWER_LOST", "REFUSED", "REFUSED", "DELAYED")),
            number=chance.choice(CODES[request]),
            for_ms=chance.choice(LATE_MS[request]),
            times=chance.choice((1, 1, 4, 20)),
        )
