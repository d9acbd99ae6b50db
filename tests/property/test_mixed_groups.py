"""Groups of ours and of others in the simulator: never two owners, and at rest in the end.

The coordinator chooses one protocol among the lists, as Kafka does; members of other clients are
`ForeignProcess`, which shares no decision with ours. Ours are paused, crash, come and go; others
come, go and crash. What others cannot bear by themselves is left out: they have no lease, so no
message of theirs is lost.
"""

from typing import Final

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coopgroup.assignors import StickyAssignor
from coopgroup.member.events import SubscriptionChanged
from coopgroup.member.transitions import AT_WORK
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.policies import DeferredPolicy, SimplePolicy
from coopgroup.simulator.checkers import check_commits, check_pairs, check_single_owner
from coopgroup.simulator.coordinator import GroupState
from coopgroup.simulator.process import Habits, Process
from coopgroup.simulator.scenario import Identity, Span
from coopgroup.simulator.simulation import Simulation
from coopgroup.simulator.swarm_play import set_topics, small_group
from coopgroup.telemetry import Envelope
from tests.support.foreign_process import ForeignProcess

PARTITIONS: Final = 5
MEMBERS_MAX: Final = 5
REST_MS_MAX: Final = 20_000
QUIET_MS: Final = 400
HANDED_OVER_MS: Final = 400
CLOSED_WITHIN_MS: Final = 1_000
OURS: Final = "ours"
BACK: Final = "back"
STATIC: Final = "static"
FOREIGN: Final = "foreign"
KINDS = st.sampled_from((OURS, OURS, BACK, STATIC, FOREIGN, FOREIGN))
ACTS = st.tuples(
    st.sampled_from(("start", "start", "close", "crash", "hand over", "pause", "wait")),
    KINDS,
    st.integers(0, MEMBERS_MAX - 1),
    st.sampled_from((0, 3, 15, 60, 200, 700)),
)


@attrs.define(eq=False)
class Mixed:
    """A group, and which protocol others speak in it.

    Attributes:
        simulation: with our processes.
        theirs: the protocol that other clients know.
        defers: whether ours leave what is lost for a while; counts may differ in the end then.
        foreign: processes of other clients.
        started: how many processes there were.
        handed_over: whether one of ours did.
    """

    simulation: Simulation
    theirs: str
    defers: bool
    foreign: list[ForeignProcess] = attrs.field(factory=list)
    started: int = 0
    handed_over: bool = False

    def start(self, kind: str) -> None:
        """One more process."""
        self.started += 1
        name = f"p{self.started}"
        if kind == FOREIGN:
            process = ForeignProcess(self.simulation, name, (self.theirs,))
            self.foreign.append(process)
            process.start()
            return
        names = ("coopgroup", self.theirs)
        goes_back = kind == BACK
        self.simulation.config = attrs.evolve(
            self.simulation.config,
            protocols=names[::-1] if goes_back else names,
            eager=goes_back and self.theirs == "range",
        )
        identity = Identity.STATIC if kind == STATIC else Identity.NONE
        self.simulation.start(name, ("T",), identity=identity)

    @property
    def alive(self) -> list[Process | ForeignProcess]:
        """Everybody."""
        return [*self.simulation.alive, *(one for one in self.foreign if one.alive)]

    def act(self, what: str, kind: str, number: int) -> None:
        """Do one thing to the group."""
        alive = self.alive
        if what == "start" or not alive:
            if len(alive) < MEMBERS_MAX:
                self.start(kind)
            return
        one = alive[number % len(alive)]
        match what:
            case "close":
                one.close()
            case "crash":
                one.crash()
            case "hand over" if isinstance(one, Process) and one.state in AT_WORK:
                self.handed_over = True
                one.give(SubscriptionChanged(topics=()))
                self.simulation.world.later(HANDED_OVER_MS, one.close)
            case "pause" if isinstance(one, Process) and not one.paused:
                one.pause()
                self.simulation.world.later(300, one.resume)
            case _:
                pass

    def is_at_rest(self) -> bool:
        """Whether all is shared, and nobody is about to do anything."""
        foreign = [one for one in self.foreign if one.alive]
        group = self.simulation.brokers.coordinator.group
        if not all(process.is_at_rest for process in self.simulation.alive):
            return False
        owned = [process.session.member.owned for process in self.simulation.alive]
        owned += [one.owned for one in foreign]
        return (
            group.state is GroupState.STABLE
            and len(group.seats) == len(self.alive)
            and all(one.state == "stable" for one in foreign)
            and sum(map(len, owned)) == PARTITIONS
            and (self.defers or max(map(len, owned)) - min(map(len, owned)) <= 1)
            and ResourceSet.union_all([EMPTY, *owned]) == ResourceSet({"T": range(PARTITIONS)})
        )

    def rest(self) -> None:
        """Let the group come to rest."""
        since_ms: int | None = None
        for _ in range(REST_MS_MAX // 20):
            self.simulation.run(20)
            if not self.is_at_rest():
                since_ms = None
            elif since_ms is None:
                since_ms = self.simulation.world.now_ms
            elif self.simulation.world.now_ms - since_ms >= QUIET_MS:
                return
        shares = {one.name: one.owned for one in self.foreign if one.alive}
        for process in self.simulation.alive:
            shares[process.name] = process.session.member.owned
        raise AssertionError(
            f"no rest: {shares}, {self.simulation.brokers.coordinator.group.state}"
        )

    def check(self) -> None:
        """Nothing may have gone wrong at any instant."""
        telemetry = self.simulation.world.telemetry
        assert list(check_single_owner(telemetry)) == []
        ours = [envelope for envelope in telemetry if self.is_ours(envelope)]
        # Before an eager round, and before it hands over, no leader tells a member what to stop.
        if self.theirs == "cooperative-sticky" and not self.handed_over:
            assert list(check_pairs(ours)) == []
        assert list(check_commits(ours)) == []
        assert self.simulation.world.violations == []

    def is_ours(self, envelope: Envelope) -> bool:
        """Whether a record is of one of our processes."""
        return envelope.client not in {one.name for one in self.foreign}


def mixed(theirs: str, seed: int, *, defers: bool, delay_ms_max: int) -> Mixed:
    """A group that nobody has joined."""
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=300) if defers else SimplePolicy()
    habits = Habits(
        assignor=StickyAssignor(),
        policy=policy,
        lead_ms=Span(1, 10),
        retry_ms=200,
        jitter_ms=10,
        no_metadata=0.0,
    )
    simulation = small_group(seed=seed, habits=habits, delay_ms_max=delay_ms_max)
    set_topics(simulation, {"T": PARTITIONS})
    return Mixed(simulation, theirs, defers)


@pytest.mark.parametrize("theirs", ["cooperative-sticky", "range"])
@example(
    seed=0,
    defers=False,
    delay_ms_max=2,
    acts=[("start", "ours", 0, 0), ("start", "foreign", 0, 15), *[("start", "ours", 0, 0)] * 2],
)
@given(
    seed=st.integers(0, 10_000),
    defers=st.booleans(),
    delay_ms_max=st.sampled_from((2, 10, 30)),
    acts=st.lists(ACTS, min_size=2, max_size=14),
)
def test_mixed_group_never_has_two_owners_and_comes_to_rest(
    theirs: str,
    *,
    seed: int,
    defers: bool,
    delay_ms_max: int,
    acts: list[tuple[str, str, int, int]],
) -> None:
    """Whoever leads, in whichever protocol; the last of the others gone, the group speaks ours."""
    group = mixed(theirs, seed, defers=defers, delay_ms_max=delay_ms_max)
    for what, kind, number, after_ms in acts:
        group.act(what, kind, number)
        group.simulation.run(after_ms)
    for process in group.simulation.alive:
        process.resume()
    group.simulation.run(CLOSED_WITHIN_MS)
    if not group.alive:
        group.start(OURS)
    group.rest()
    for one in group.foreign:
        one.close()
    if not group.simulation.alive:
        group.start(OURS)
    group.rest()
    group.check()
    if not any(process.config.protocols[0] == theirs for process in group.simulation.alive):
        assert group.simulation.brokers.coordinator.group.protocol_name == "coopgroup"
