"""The work on each resource: callbacks that the test blocks, and a group that only listens."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field

from coopgroup.groups import work as work_module
from coopgroup.groups.callbacks import Callbacks, WorkFailure
from coopgroup.groups.pool import CallbackPool
from coopgroup.groups.work import ResourceWork, WorkLimits
from coopgroup.kafka.clock import now_s
from coopgroup.member.effects import FailMember, GrantResources, LoseResources, RevokeResources
from coopgroup.member.events import LossHandled, RevocationCompleted, SubscriptionChanged
from coopgroup.model import Resource, ResourceSet
from coopgroup.telemetry import Record, ResourcesStarted, ResourcesStopped, WorkFailed
from tests.support.waiting import wait_for

WAIT_S = 10.0
LIGHT, HEAVY = Resource("light", 0), Resource("heavy", -1)
BOTH = ResourceSet.from_pairs([LIGHT, HEAVY])
ONLY_LIGHT, ONLY_HEAVY = ResourceSet.from_pairs([LIGHT]), ResourceSet.from_pairs([HEAVY])


@define(eq=False)
class Bench:
    """Work whose group follows the test.

    Attributes:
        calls: callbacks in the order of their calls.
        gates: callbacks that wait until the test opens them.
        failures: exceptions that callbacks raise, once per list entry.
        warned: names of warnings.
        reported: errors that `on_error` received.
        reminder_s: time at which the work wants to be woken.
    """

    stop_s: float = 60.0
    calls: list[tuple[str, Resource]] = field(factory=list)
    gates: dict[tuple[str, Resource], threading.Event] = field(factory=dict)
    failures: dict[tuple[str, Resource], list[BaseException]] = field(factory=dict)
    posted: list[Any] = field(factory=list)
    written: list[Record] = field(factory=list)
    warned: list[str] = field(factory=list)
    reported: list[WorkFailure] = field(factory=list)
    member: Any = field(factory=lambda: SimpleNamespace(claim_generation=3))
    lease_until_s: float = math.inf
    reminder_s: float = math.inf
    work: ResourceWork = field(init=False)
    pool: CallbackPool = field(factory=lambda: CallbackPool(name="bench", threads_max=8))

    def __attrs_post_init__(self) -> None:
        self.work = ResourceWork(
            callbacks=Callbacks(
                start=lambda one: self.call("start", one),
                stop=lambda one: self.call("stop", one),
                lost=lambda one: self.call("lost", one),
                on_error=self.reported.append,
                warm=lambda one: self.call("warm", one),
                cool=lambda one: self.call("cool", one),
            ),
            limits=WorkLimits(stop_s=self.stop_s, retry_s=0.01, retry_max_s=0.02),
            pool=self.pool,
            write=self.written.append,
            warn=lambda event, **_: self.warned.append(event),
        )
        self.work.driver = cast("Any", self)

    def post(self, event: object) -> None:
        self.posted.append(event)

    def remind(self, at_s: float) -> None:
        self.reminder_s = at_s

    def call(self, action: str, resource: Resource) -> None:
        """Run as a callback: record the call, then wait or raise as the test demands."""
        self.calls.append((action, resource))
        gate = self.gates.get((action, resource))
        if gate is not None:
            assert gate.wait(WAIT_S)
        failures = self.failures.get((action, resource))
        if failures:
            raise failures.pop(0)

    def hold(self, action: str, resource: Resource) -> threading.Event:
        """Block a callback; return the event that releases it."""
        return self.gates.setdefault((action, resource), threading.Event())

    def grant(self, resources: ResourceSet = BOTH) -> None:
        """Grant resources, and wait until all of them run."""
        self.work.put(GrantResources(resources=resources))
        wait_for(lambda: self.started() >= set(resources), "all runs")

    def started(self) -> set[Resource]:
        records = [one for one in self.written if isinstance(one, ResourcesStarted)]
        return {resource for record in records for resource in record.resources}

    def stops(self) -> list[tuple[Resource, str]]:
        records = [one for one in self.written if isinstance(one, ResourcesStopped)]
        return [(resource, one.reason) for one in records for resource in one.resources]

    def given_up(self) -> list[Resource]:
        """Return the resources that were reported to the group as stopped."""
        completed = [one for one in self.posted if isinstance(one, RevocationCompleted)]
        return [resource for one in completed for resource in one.resources]

    def wake_until(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            if now_s() >= self.reminder_s:
                self.work.wake()
            return condition()

        wait_for(look, what)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Create a bench, and release all its callbacks at the end."""
    made = Bench()
    yield made
    for gate in made.gates.values():
        gate.set()
    made.pool.close()


def test_granted_resources_are_started_at_once_and_held(bench: Bench) -> None:
    gate = bench.hold("start", HEAVY)
    bench.work.put(GrantResources(resources=BOTH))
    wait_for(lambda: bench.started() == {LIGHT}, "the light one runs")
    assert bench.work.held() == BOTH
    assert bench.work.token(HEAVY) == 3
    gate.set()
    wait_for(lambda: bench.started() == {LIGHT, HEAVY}, "both run")


def test_light_resource_when_a_heavy_one_flushes_is_given_up_at_once(bench: Bench) -> None:
    gate = bench.hold("stop", HEAVY)
    bench.grant()
    bench.work.put(RevokeResources(resources=BOTH))
    wait_for(lambda: bench.given_up() == [LIGHT], "the light one has stopped")
    assert not bench.work.held()
    assert (bench.work.token(HEAVY), bench.work.token(LIGHT)) == (3, None)  # it may still flush
    assert bench.stops() == [(LIGHT, "revoked")]
    gate.set()
    wait_for(lambda: bench.given_up() == [LIGHT, HEAVY], "both have stopped")
    assert sorted(bench.calls) == sorted(
        [(action, one) for action in ("start", "stop") for one in (LIGHT, HEAVY)]
    )


def test_resource_when_revoked_while_it_starts_is_stopped_afterwards(bench: Bench) -> None:
    gate = bench.hold("start", HEAVY)
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    wait_for(lambda: bool(bench.calls), "it starts")
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    assert not bench.work.holds(HEAVY)
    time.sleep(0.02)
    assert bench.calls == [("start", HEAVY)]
    gate.set()
    wait_for(lambda: bench.given_up() == [HEAVY], "it has stopped")
    assert bench.calls == [("start", HEAVY), ("stop", HEAVY)]


def test_start_when_it_raises_is_reported_and_tried_again(bench: Bench) -> None:
    bench.failures["start", LIGHT] = [ValueError("no"), OSError("still no")]
    bench.work.put(GrantResources(resources=ONLY_LIGHT))
    bench.wake_until(lambda: bench.started() == {LIGHT}, "it runs in the end")
    assert bench.work.holds(LIGHT)
    wait_for(lambda: len(bench.reported) == 2, "both were reported")
    assert [(one.action, one.resource, one.attempts) for one in bench.reported] == [
        ("start", LIGHT, 1),
        ("start", LIGHT, 2),
    ]
    records = [one for one in bench.written if isinstance(one, WorkFailed)]
    assert [one.error for one in records] == ["ValueError: no", "OSError: still no"]


def test_start_that_keeps_raising_is_given_up_when_it_is_revoked(bench: Bench) -> None:
    bench.failures["start", LIGHT] = [ValueError("no")] * 1_000
    bench.work.put(GrantResources(resources=ONLY_LIGHT))
    wait_for(lambda: bool(bench.reported), "it was tried")
    bench.work.put(RevokeResources(resources=ONLY_LIGHT))
    wait_for(lambda: bench.given_up() == [LIGHT], "it is given up")
    assert {action for action, _ in bench.calls} == {"start"}
    assert bench.stops() == []


def test_stop_when_it_raises_is_tried_again_before_the_group_hears(bench: Bench) -> None:
    """No other member may own a resource that could still run here."""
    failures = bench.failures["stop", LIGHT] = [ValueError("no")] * 1_000
    bench.grant(ONLY_LIGHT)
    bench.work.put(RevokeResources(resources=ONLY_LIGHT))
    bench.wake_until(lambda: len(bench.reported) > 1, "it was tried again")
    assert bench.given_up() == []
    failures.clear()
    bench.wake_until(lambda: bench.given_up() == [LIGHT], "it has stopped in the end")
    assert {action for action, _ in bench.calls[1:]} == {"stop"}


def test_lost_resources_are_told_at_once_and_the_group_goes_on(bench: Bench) -> None:
    gate = bench.hold("lost", HEAVY)
    bench.grant()
    bench.work.put(LoseResources(resources=BOTH, cause="lease expired"))
    assert bench.posted == [LossHandled()]
    assert not bench.work.held()
    wait_for(lambda: bench.stops() == [(LIGHT, "lost")], "the light one knows")
    gate.set()
    wait_for(lambda: len(bench.stops()) == 2, "the heavy one knows")
    assert bench.given_up() == []


def test_resource_that_comes_back_while_it_is_lost_starts_after_that(bench: Bench) -> None:
    gate = bench.hold("lost", HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.work.put(LoseResources(resources=ONLY_HEAVY, cause="lease expired"))
    wait_for(lambda: ("lost", HEAVY) in bench.calls, "it is told")
    bench.member.claim_generation = 5
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    assert not bench.work.holds(HEAVY)
    gate.set()
    wait_for(lambda: bench.calls.count(("start", HEAVY)) == 2, "it starts again")
    assert bench.work.token(HEAVY) == 5
    assert [action for action, _ in bench.calls] == ["start", "lost", "start"]


def test_stop_under_way_when_all_is_lost_is_not_reported(bench: Bench) -> None:
    """The group may have granted the lost resource again: it hears nothing of the old stop."""
    gate = bench.hold("stop", HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    wait_for(lambda: ("stop", HEAVY) in bench.calls, "it stops")
    bench.work.put(LoseResources(resources=ONLY_HEAVY, cause="lease expired"))
    gate.set()
    wait_for(lambda: bench.stops() == [(HEAVY, "lost")], "it has stopped")
    assert bench.posted == [LossHandled()]
    assert [action for action, _ in bench.calls] == ["start", "stop"]


def test_stop_that_raises_when_all_is_lost_is_followed_by_lost_at_once(bench: Bench) -> None:
    gate = bench.hold("stop", HEAVY)
    bench.failures["stop", HEAVY] = [ValueError("no")]
    bench.grant(ONLY_HEAVY)
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    wait_for(lambda: ("stop", HEAVY) in bench.calls, "it stops")
    bench.work.put(LoseResources(resources=ONLY_HEAVY, cause="lease expired"))
    gate.set()
    wait_for(lambda: bench.stops() == [(HEAVY, "lost")], "it is told")
    assert [action for action, _ in bench.calls] == ["start", "stop", "lost"]


def test_start_that_waits_for_a_thread_when_all_is_lost_is_not_made() -> None:
    bench = Bench(pool=CallbackPool(name="one", threads_max=1))
    gate = bench.hold("start", HEAVY)
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    wait_for(lambda: bool(bench.calls), "the only thread is busy")
    bench.work.put(GrantResources(resources=ONLY_LIGHT))
    bench.work.put(LoseResources(resources=BOTH, cause="lease expired"))
    gate.set()
    wait_for(lambda: bench.work.wait_idle(0.0), "nothing is left")
    assert bench.calls == [("start", HEAVY), ("lost", HEAVY)]
    bench.pool.close()


def test_callbacks_that_wait_for_a_thread_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "_NO_THREAD_WARN_S", 0.02)
    bench = Bench(pool=CallbackPool(name="one", threads_max=1))
    gates = [bench.hold("start", HEAVY), bench.hold("start", LIGHT)]
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    wait_for(lambda: bench.calls == [("start", HEAVY)], "the only thread is busy")
    assert bench.reminder_s == math.inf
    bench.work.put(GrantResources(resources=ONLY_LIGHT))
    bench.wake_until(lambda: bench.warned == ["callbacks_wait"], "it is warned of")
    assert bench.reminder_s == math.inf
    gates[0].set()
    wait_for(lambda: ("start", LIGHT) in bench.calls, "the other one has the thread")
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    bench.wake_until(lambda: bench.warned == ["callbacks_wait"] * 2, "it is warned of again")
    gates[1].set()
    wait_for(lambda: bench.given_up() == [HEAVY], "all goes on")
    bench.pool.close()


def test_work_when_the_lease_is_over_is_held_no_more(bench: Bench) -> None:
    bench.grant()
    bench.lease_until_s = now_s()
    assert not bench.work.holds(LIGHT)
    assert bench.work.token(HEAVY) is None
    assert not bench.work.held()


def test_stop_that_never_ends_is_lost_and_given_up() -> None:
    bench = Bench(stop_s=0.1)
    gate = bench.hold("stop", HEAVY)
    bench.grant()
    bench.work.put(RevokeResources(resources=ONLY_HEAVY))
    bench.wake_until(lambda: bench.given_up() == [HEAVY], "it is given up")
    assert bench.warned == ["stop_takes_long", "stop_never_finished"]
    assert bench.stops() == [(HEAVY, "lost")]
    wait_for(lambda: ("lost", HEAVY) in bench.calls, "it is told")
    assert bench.work.held() == ONLY_LIGHT
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    time.sleep(0.02)
    assert bench.calls.count(("start", HEAVY)) == 1
    assert not bench.work.holds(HEAVY)
    gate.set()
    wait_for(lambda: bench.calls.count(("start", HEAVY)) == 2, "it starts when the stop has ended")
    wait_for(lambda: bench.work.holds(HEAVY), "and is held")
    bench.pool.close()


def test_close_stops_everything_and_begins_nothing_more(bench: Bench) -> None:
    bench.grant()
    assert bench.work.close(WAIT_S)
    assert sorted(bench.stops()) == sorted([(LIGHT, "closed"), (HEAVY, "closed")])
    bench.work.put(GrantResources(resources=BOTH))
    assert not bench.work.held()
    bench.work.put(RevokeResources(resources=ONLY_LIGHT))
    assert bench.given_up() == [LIGHT]


def test_grant_after_the_close_changes_no_subscription(bench: Bench) -> None:
    """The leave is already sent: a later change would make the process join again."""
    assert bench.work.close(WAIT_S)
    bench.work.put(GrantResources(resources=ResourceSet({"fresh": [0]})))
    assert bench.posted == []
    assert bench.calls == []


def test_close_that_is_granted_something_hands_over(bench: Bench) -> None:
    gate = bench.hold("stop", HEAVY)
    bench.grant()
    closing = threading.Thread(target=bench.work.close, args=(WAIT_S,))
    closing.start()
    wait_for(lambda: bench.stops() == [(LIGHT, "closed")], "the light one has stopped")
    assert bench.posted == []
    fresh = ResourceSet({"fresh": [0]})
    for _ in range(2):
        bench.work.put(GrantResources(resources=fresh))
    assert bench.posted == [SubscriptionChanged(topics=())]
    bench.work.put(RevokeResources(resources=BOTH | fresh))
    assert sorted(bench.given_up()) == [("fresh", 0), LIGHT]
    gate.set()
    closing.join()
    assert bench.given_up()[-1] == HEAVY
    assert {one for _, one in bench.calls} == set(BOTH)


def test_close_when_a_stop_hangs_ends_in_time(bench: Bench) -> None:
    bench.hold("stop", HEAVY)
    bench.grant()
    assert not bench.work.close(0.05)
    wait_for(lambda: ("lost", HEAVY) in bench.calls, "it is told")
    assert bench.stops()[-1] == (HEAVY, "lost")


def test_membership_that_is_over_is_reported(bench: Bench) -> None:
    bench.work.put(FailMember(code=30, message="not authorised"))
    wait_for(lambda: bool(bench.reported), "it was reported")
    (failure,) = bench.reported
    assert (failure.resource, failure.action, str(failure.error)) == (
        None,
        "membership",
        "not authorised",
    )
    assert bench.work.failure is not None


def test_stop_is_told_to_the_group_though_telemetry_raises(bench: Bench) -> None:
    """A log that cannot be written must not delay the other members."""

    def fail(_: Record) -> None:
        raise OSError("no space left")

    bench.grant()
    bench.work.write = fail
    bench.work.put(RevokeResources(resources=ONLY_LIGHT))
    wait_for(lambda: bench.given_up() == [LIGHT], "the group hears of it")
    wait_for(lambda: bench.warned == ["internal_error"], "it is logged")


@pytest.mark.parametrize("told", ["write", "warn"])
def test_telemetry_that_waits_for_another_thread_of_the_group_is_no_deadlock(told: str) -> None:
    """A listener may pass a record to a thread that asks for the held resources."""
    bench = Bench(stop_s=0.02)
    asked: list[object] = []

    def ask(*_: object, **__: object) -> None:
        asking = threading.Thread(target=lambda: asked.append(bench.work.held()), daemon=True)
        asking.start()
        asking.join(WAIT_S / 2)
        assert not asking.is_alive()

    setattr(bench.work, told, ask)
    bench.work.put(GrantResources(resources=BOTH))
    wait_for(lambda: len(bench.calls) == 2, "all runs")
    gate = bench.hold("stop", HEAVY)
    bench.work.put(RevokeResources(resources=BOTH))
    bench.wake_until(lambda: len(asked) >= 2, "told")
    gate.set()
    assert bench.work.wait_idle(WAIT_S)
    bench.pool.close()


def test_records_are_told_in_the_order_in_which_things_happened() -> None:
    bench = Bench()
    resources = ResourceSet({"r": range(20)})
    slow = threading.Event()

    def write(record: Record) -> None:
        slow.wait(0.002)
        bench.written.append(record)

    bench.work.write = write
    for _ in range(3):
        bench.work.put(GrantResources(resources=resources))
        bench.work.put(RevokeResources(resources=resources))
    assert bench.work.close(WAIT_S)
    bench.work.wait_told()
    runs: set[Resource] = set()
    for record in bench.written:
        if isinstance(record, ResourcesStarted):
            assert runs.isdisjoint(record.resources)
            runs.update(record.resources)
        elif isinstance(record, ResourcesStopped):
            assert runs >= set(record.resources)
            runs.difference_update(record.resources)
    assert runs == set()
    bench.pool.close()


def test_listener_that_hangs_keeps_no_work_from_going_on() -> None:
    bench = Bench()
    let_go = threading.Event()

    def hang(_: Record) -> None:
        assert let_go.wait(WAIT_S)

    bench.work.write = hang
    bench.work.put(GrantResources(resources=BOTH))
    wait_for(lambda: len(bench.calls) == 2, "all runs")
    bench.work.put(RevokeResources(resources=BOTH))
    wait_for(lambda: sorted(bench.given_up()) == sorted(BOTH), "given up")
    let_go.set()
    bench.work.wait_told()
    bench.pool.close()
