"""The simulator's group coordinator against a real broker: the same requests, the same answers.

Hypothesis draws programs of several clients of one group (`conformance_programs`). A program
contains every request of the group protocol with right and wrong ids, generations, protocols and
timeouts. Joins and syncs wait while other clients continue, static members replace each other,
connections break, and sessions, joins and syncs time out. Each request goes to both sides
(`conformance`). Error codes, generations, leaders, members with their subscriptions, protocols and
assignments must be equal, and so must the set of requests that are NOT answered yet.

Deliberately not compared:

- member ids themselves: the first id of one side stands for the first id of the other side;
- which member becomes leader after the leader left or missed the round, and which protocol wins a
  tie of votes: on a broker the order of a hash table decides. Its leader must be a member that
  joined, and the model adopts it;
- the order of the members in the leader's answer, and the order of simultaneous answers;
- the address of the coordinator, the text of errors, and the exact moment of a timeout;
- the delay of an empty group's first round (`group.initial.rebalance.delay.ms` is 0 here), several
  brokers, and a coordinator that moves or loads;
- a join without an id whose connection broke: no client knows the member id that it got.

`coopgroup.simulator.coordinator` lists what the model itself omits.

A soak: HYPOTHESIS_PROFILE=soak, and this file as the argument of pytest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coopgroup.simulator.coordinator.state import ClassicGroup, Seat
from coopgroup.testing import KafkaCluster
from tests.support.conformance import PACES, SESSION_MIN_MS, DisagreementError, check
from tests.support.conformance_broker import BrokerClients, connect
from tests.support.conformance_clients import TOPIC
from tests.support.conformance_programs import (
    CLIENTS_MAX,
    Ask,
    Generation,
    Id,
    Instance,
    Join,
    Patience,
    Proceed,
    Program,
    Protocols,
    Request,
    Round,
    Step,
    Wait,
    quick_programs,
    timed_programs,
)

# Programs that wait are played side by side.
SIDE_BY_SIDE = 10
# The number from the profile; outside a soak, within 90 seconds.
EXAMPLES = settings.default.max_examples if settings.default is not None else 25
QUICK_PROGRAMS = 50 + EXAMPLES
TIMED_PROGRAMS = 30 + EXAMPLES // 2
QUIET = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
A_LOT_S = 3_600


@pytest.fixture(scope="module")
def pools() -> Iterator[tuple[BrokerClients, ...]]:
    """Return clients for several programs at a time, on a broker that allows short sessions."""
    properties = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(SESSION_MIN_MS),
    }
    with KafkaCluster(properties=properties) as cluster, ExitStack() as stack:
        cluster.create_topic(TOPIC, 2)
        configuration = cluster.client_config()
        yield tuple(
            stack.enter_context(connect(configuration, CLIENTS_MAX)) for _ in range(SIDE_BY_SIDE)
        )


@pytest.fixture
def clients(pools: tuple[BrokerClients, ...]) -> BrokerClients:
    """Return clients for one program at a time."""
    return pools[0]


def program(
    *steps: Step,
    instances: tuple[str | None, ...] = (None, None),
    sessions: Patience = Patience.LONG,
    rebalances: Patience = Patience.LONG,
) -> Program:
    """Return a program whose clients all have the same timeouts."""
    return Program(
        instances=instances,
        sessions=(sessions,) * len(instances),
        rebalances=(rebalances,) * len(instances),
        steps=steps,
    )


def check_side_by_side(
    programs: Sequence[Program], pools: tuple[BrokerClients, ...]
) -> Counter[tuple[str, int]]:
    """Play the programs, one per pool of clients at a time."""
    free: SimpleQueue[BrokerClients] = SimpleQueue()
    for pool in pools:
        free.put(pool)

    def check_one(drawn: Program) -> Counter[tuple[str, int]]:
        clients = free.get()
        try:
            return check(drawn, clients, clients.new_group())
        finally:
            free.put(clients)

    with ThreadPoolExecutor(len(pools)) as threads:
        return sum(threads.map(check_one, programs), Counter())


COMMIT = Ask(client=0, request=Request.OFFSET_COMMIT)
STALE = Ask(client=0, request=Request.HEARTBEAT, generation=Generation.BEFORE)

# Programs in which the model was wrong once; random programs may not reach them.
CASES = {
    "a commit outside of groups makes a group": program(
        Ask(
            client=0, request=Request.OFFSET_COMMIT, member=Id.INVENTED, generation=Generation.NONE
        ),
        Ask(client=0, request=Request.OFFSET_COMMIT, generation=Generation.AFTER),
    ),
    "a commit of a generation to no group": program(
        Ask(client=0, request=Request.OFFSET_COMMIT, generation=Generation.AFTER),
    ),
    "a newcomer that is refused makes the group": program(
        Join(client=0, protocols=Protocols.NONE),
        Ask(client=0, request=Request.OFFSET_COMMIT, generation=Generation.AFTER),
    ),
    "a session that is refused makes no group": program(
        Join(client=0, session=Patience.BELOW_MINIMUM),
        Join(client=0, session=Patience.ABOVE_MAXIMUM),
        Ask(client=0, request=Request.OFFSET_COMMIT, generation=Generation.AFTER),
    ),
    "an id that was given in advance is not for a static member": program(
        Proceed(client=0),
        Join(client=0, instance=Instance.INVENTED),
        Proceed(client=0),
    ),
    "a static newcomer's session ends": program(
        Round(),
        Wait(units=16),
        Ask(client=0, request=Request.HEARTBEAT),
        instances=("alpha",),
        sessions=Patience.SHORT,
    ),
    "a static leader that is back is not to assign": program(
        Round(),
        Ask(client=0, request=Request.SYNC_GROUP),
        Join(client=2),
        Ask(client=2, request=Request.SYNC_GROUP),
        Ask(client=0, request=Request.HEARTBEAT),
        Ask(client=0, request=Request.LEAVE_GROUP),
        instances=("alpha", None, "alpha"),
    ),
    "a round that is not joined in time": program(
        Round(),
        Join(client=1, changed=True),
        Wait(units=10),
        Ask(client=0, request=Request.HEARTBEAT),
        rebalances=Patience.SHORT,
    ),
    "a sync that does not come in time": program(
        Round(),
        Join(client=0, changed=True),
        Proceed(client=1),
        Proceed(client=1),
        Proceed(client=1),
        Wait(units=10),
        Ask(client=1, request=Request.HEARTBEAT),
        rebalances=Patience.SHORT,
    ),
    "an id that is not used in time": program(
        Proceed(client=0),
        Wait(units=16),
        Proceed(client=0),
        sessions=Patience.SHORT,
    ),
    "a commit between join and sync": program(Round(), Join(client=0, changed=True), COMMIT),
}


def test_model_answers_as_the_broker_when_it_once_did_not(clients: BrokerClients) -> None:
    for name, case in CASES.items():
        assert check(case, clients, clients.new_group()).total() > 0, name


DYNAMIC, STATIC = 0, 1
FORMERLY = (Proceed(client=0), Ask(client=0, request=Request.LEAVE_GROUP))
PREPARING: tuple[Step, ...] = (Join(client=2, changed=True),)
COMPLETING: tuple[Step, ...] = (*PREPARING, *[Proceed(client=one) for one in (0, 0, 1, 1)])
STATES: dict[str, tuple[Step, ...]] = {
    "no group": (),
    "Empty": FORMERLY,
    "Stable": (*FORMERLY, Round()),
    "PreparingRebalance": (*FORMERLY, Round(), *PREPARING),
    "CompletingRebalance": (*FORMERLY, Round(), *COMPLETING),
}


def single_mistakes(client: int) -> Iterator[tuple[Step, ...]]:
    """Return requests with one wrong field: first all queries together, then each join alone."""
    others = (Request.SYNC_GROUP, Request.HEARTBEAT, Request.OFFSET_COMMIT, Request.LEAVE_GROUP)
    for request in others:
        members = [Ask(client=client, request=request, member=one) for one in [*Id][1:]]
        instances = [Ask(client=client, request=request, instance=one) for one in [*Instance][1:]]
        fences = [Ask(client=client, request=request, generation=one) for one in [*Generation][1:]]
        chosen = Ask(client=client, request=request, protocol_name="third")
        for ask in (*members, *instances):
            if request is Request.LEAVE_GROUP:
                yield (ask,)
        if request is not Request.LEAVE_GROUP:
            yield (*members, *instances, *fences, chosen)
    for member in [*Id][1:]:
        yield (Join(client=client, member=member),)
    for instance in [*Instance][1:]:
        yield (Join(client=client, instance=instance),)
    for protocols in [*Protocols][1:]:
        yield (Join(client=client, protocols=protocols),)
    yield (Join(client=client, protocol_type="cooked"),)


def test_model_answers_as_the_broker_when_one_thing_is_wrong(
    pools: tuple[BrokerClients, ...],
) -> None:
    """Each mistake in each state of the group; afterwards all clients continue if they can."""
    programs = [
        program(*steps, *mistake, Round(), instances=(None, "alpha", None))
        for steps in STATES.values()
        for client in (DYNAMIC, STATIC)
        for mistake in single_mistakes(client)
    ]
    check_side_by_side(programs, pools)


# The random programs must reach these answers, or they prove little.
QUICK_ANSWERS = {
    *(("JoinGroup", code) for code in (0, 23, 79)),
    *(("SyncGroup", code) for code in (0, 27)),
    *(("Heartbeat", code) for code in (0, 25, 27)),
    ("LeaveGroup", 0),
    ("OffsetCommit", 0),
}


def drawn(programs: st.SearchStrategy[Program], count: int) -> list[Program]:
    """Return this number of random programs."""
    found: list[Program] = []

    @settings(max_examples=count, suppress_health_check=QUIET, phases=(Phase.generate,))
    @given(one=programs)
    def draw(one: Program) -> None:
        found.append(one)

    draw()
    return found


@pytest.mark.slow
@pytest.mark.timeout(A_LOT_S)
def test_model_answers_as_the_broker(pools: tuple[BrokerClients, ...]) -> None:
    """Random programs without timeouts; the message of a failure tells the story."""
    seen = check_side_by_side(drawn(quick_programs(), QUICK_PROGRAMS), pools)
    assert QUICK_ANSWERS - seen.keys() == set()


@pytest.mark.slow
@pytest.mark.timeout(A_LOT_S)
def test_model_answers_as_the_broker_when_time_runs_out(
    pools: tuple[BrokerClients, ...],
) -> None:
    """Random programs with waits in which sessions, joins and syncs expire."""
    seen = check_side_by_side(drawn(timed_programs(), TIMED_PROGRAMS), pools)
    assert seen["Heartbeat", 25] + seen["SyncGroup", 25] + seen["OffsetCommit", 25] > 0


def _without_generations(
    group: ClassicGroup, member_id: str, instance_id: str | None, _: int
) -> int:
    return group.identity_code(member_id, instance_id)


# Name, changed attribute of the model, its new value, and a program that reveals the change.
MUTATIONS: list[tuple[type, str, Any, Program]] = [
    (ClassicGroup, "fence_code", _without_generations, program(Round(), STALE)),
    (
        ClassicGroup,
        "has_all_joined",
        property(lambda group: group.joins == len(group.seats)),
        program(
            Round(absent=frozenset({2})),
            Proceed(client=2),
            Join(client=0, changed=True),
            Proceed(client=1),
            Proceed(client=1),
            instances=(None, None, None),
        ),
    ),
    (
        Seat,
        "can_expire",
        property(lambda seat: False),
        CASES["a static newcomer's session ends"],
    ),
]


def test_model_that_is_wrong_is_found_out(
    clients: BrokerClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model with one changed rule disagrees with the broker; the correct model agrees."""
    for changed, name, mutant, shown_by in MUTATIONS:
        check(shown_by, clients, clients.new_group())
        with monkeypatch.context() as patch:
            patch.setattr(changed, name, mutant)
            with pytest.raises(DisagreementError):
                check(shown_by, clients, clients.new_group(), PACES[:1])
