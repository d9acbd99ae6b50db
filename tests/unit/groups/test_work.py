"""The work on each resource: started, stopped, lost and repeated."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from coopgroup.core.member.effects import (
    BeginWarmups,
    CancelWarmups,
    FailMember,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import (
    LossHandled,
    RevocationCompleted,
    SubscriptionChanged,
    WarmedUp,
    WarmupFailed,
)
from coopgroup.core.model import Resource, ResourceSet
from coopgroup.groups import health
from coopgroup.groups.callbacks import WorkFailure
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.health import GroupWork
from coopgroup.groups.state import Wish, Work
from coopgroup.kafka.health.probe import WorkSample
from coopgroup.telemetry import Record, ResourcesStarted, ResourcesStopped, WorkFailed
from coopgroup.worker import Worker
from tests.support.by_hand import Hand
from tests.support.inner import inner
from tests.unit.groups.bench import (
    BOTH,
    HEAVY,
    LIGHT,
    LIMIT_S,
    LOSE_HEAVY,
    ONLY_HEAVY,
    ONLY_LIGHT,
    RETRY_S,
    REVOKE_HEAVY,
    STOP_S,
    Bench,
)


def test_start_that_raises_is_reported_and_tried_again_after_delays(bench: Bench) -> None:
    bench.failures["start", LIGHT] = [ValueError("no"), OSError("still no")]
    began_s = bench.hand.now_s
    bench.grant(ONLY_LIGHT)
    assert bench.reminder_s == began_s + RETRY_S
    bench.advance(RETRY_S)
    assert bench.reminder_s == began_s + 3 * RETRY_S
    assert bench.started() == set()
    bench.advance(2 * RETRY_S)
    assert bench.started() == {LIGHT}
    assert bench.work.holds(LIGHT)
    assert [(one.action, one.resource, one.attempts) for one in bench.reported] == [
        ("start", LIGHT, 1),
        ("start", LIGHT, 2),
    ]
    records = [one for one in bench.written if isinstance(one, WorkFailed)]
    assert [one.error for one in records] == ["ValueError: no", "OSError: still no"]


def test_stop_when_it_raises_is_tried_again_before_the_group_hears(bench: Bench) -> None:
    """No other member may own a resource that could still run here."""
    bench.failures["stop", LIGHT] = [ValueError("no")] * 2
    bench.grant(ONLY_LIGHT)
    bench.put(RevokeResources(resources=ONLY_LIGHT))
    bench.advance(RETRY_S)
    assert (len(bench.reported), bench.given_up()) == (2, [])
    bench.advance(2 * RETRY_S)
    assert bench.given_up() == [LIGHT]
    assert bench.actions(LIGHT) == ["start", "stop", "stop", "stop"]


@pytest.mark.parametrize(
    ("failures", "actions"),
    [([], ["start", "stop"]), ([ValueError("no")], ["start", "stop", "lost"])],
)
def test_stop_in_progress_when_all_is_lost_is_not_reported(
    bench: Bench, failures: list[BaseException], actions: list[str]
) -> None:
    """The group may have granted the lost resource again: it hears nothing of the old stop."""
    bench.failures["stop", HEAVY] = failures
    bench.during["stop", HEAVY] = lambda: bench.put(LOSE_HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.put(REVOKE_HEAVY)
    assert bench.stops() == [(HEAVY, "lost")]
    assert bench.posted == [LossHandled()]
    assert bench.actions() == actions


def test_resource_that_comes_back_during_lost_is_told_as_started_again(bench: Bench) -> None:
    """Regression: telemetry heard of no second start, so the resource counted as out of service."""
    bench.during["lost", HEAVY] = lambda: bench.grant(ONLY_HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.put(LOSE_HEAVY)
    assert bench.actions() == ["start", "lost", "start"]
    assert [type(one) for one in bench.written] == [ResourcesStarted] * 2
    assert bench.stops() == [], "the new grant is not lost"


def test_resource_that_comes_back_to_a_closing_process_is_not_told_as_lost(bench: Bench) -> None:
    """Regression: a stop of the old grant told that the new grant is lost."""

    def while_it_stops() -> None:
        bench.put(LOSE_HEAVY)
        bench.grant(ONLY_HEAVY)

    bench.during["stop", HEAVY] = while_it_stops
    bench.grant(ONLY_HEAVY)
    assert bench.work.close(STOP_S)
    assert bench.posted == [LossHandled(), SubscriptionChanged(topics=())]
    assert bench.stops() == []


@pytest.mark.parametrize("how", ["revoked", "closing"])
def test_stop_that_waits_while_the_lease_ends_is_lost(bench: Bench, how: str) -> None:
    """SIGSTOP, SIGTERM, SIGCONT: a flush in `stop` ran beside the next owner."""
    bench.grant(ONLY_HEAVY)
    if how == "revoked":
        bench.work.put(REVOKE_HEAVY)  # no thread has run the stop when the freeze has ended
    bench.lease_until_s = bench.hand.now_s
    if how == "revoked":
        bench.hand.run()
    else:
        assert bench.work.close(STOP_S)
        bench.work.wait_told()
    assert bench.actions() == ["start", "lost"]
    assert bench.stops() == [(HEAVY, "lost")]
    assert bench.given_up() == ([HEAVY] if how == "revoked" else [])
    bench.check()


def test_granted_token_outlives_the_lease_and_ends_with_the_work(bench: Bench) -> None:
    assert bench.work.granted_token(HEAVY) is None
    bench.grant(ONLY_HEAVY)
    assert (bench.work.token(HEAVY), bench.work.granted_token(HEAVY)) == (3, 3)
    bench.lease_until_s = bench.hand.now_s
    assert (bench.work.token(HEAVY), bench.work.granted_token(HEAVY)) == (None, 3)
    bench.put(LOSE_HEAVY)
    assert bench.work.granted_token(HEAVY) is None


def test_callbacks_that_wait_for_a_thread_are_warned_of(bench: Bench) -> None:
    assert bench.reminder_s == math.inf
    bench.work.put(GrantResources(resources=BOTH))
    for _ in range(2):
        reminder_s = bench.reminder_s
        assert reminder_s == bench.hand.now_s + 10.0
        bench.work.wake()
        assert (bench.warned, bench.reminder_s) == ([], reminder_s)
        bench.hand.now_s = reminder_s
        for _ in range(2):  # the second time says nothing new
            bench.work.wake()
            bench.hand.run("reports")
            assert (bench.warned, bench.reminder_s) == (["callbacks_wait"], math.inf)
        bench.warned.clear()
        assert bench.hand.run_one()
        bench.work.put(RevokeResources(resources=ResourceSet()))  # it looks at the time again
    bench.hand.run("reports")
    assert bench.started() == set(BOTH)
    assert bench.reminder_s == math.inf


@pytest.mark.parametrize("with_next", [True, False])
def test_call_without_a_thread_runs_with_the_next_or_soon(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, with_next: bool
) -> None:
    """Regression: in a quiet group no next call came, and the resource was never started."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "submit", refuse)
        bench.grant(ONLY_LIGHT)
        bench.advance(30.0)
    assert bench.calls == []
    if with_next:
        bench.grant(ONLY_HEAVY)
        assert bench.calls == [("start", LIGHT), ("start", HEAVY)]
    bench.advance(1.0)
    assert bench.calls[0] == ("start", LIGHT)
    assert bench.reminder_s == math.inf


def test_membership_that_is_over_is_reported(bench: Bench) -> None:
    bench.put(FailMember(code=30, message="not authorised"))
    (failure,) = bench.reported
    found = (failure.resource, failure.action, str(failure.error))
    assert found == (None, "membership", "not authorised")
    assert bench.work.failure is not None


def test_on_error_that_raises_is_warned_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: WorkFailure) -> None:
        raise SystemExit

    monkeypatch.setattr(bench.work, "callbacks", evolve(bench.work.callbacks, on_error=fail))
    bench.put(FailMember(code=30, message="not authorised"))
    assert bench.warned == ["internal_error"]


def test_stop_that_never_ends_is_lost_and_given_up(bench: Bench) -> None:
    def while_it_stops() -> None:
        bench.advance(STOP_S - 1.0)
        assert bench.warned == ["stop_takes_long"]
        assert bench.given_up() == []
        bench.advance(1.0)
        assert bench.given_up() == [HEAVY]
        assert bench.warned == ["stop_takes_long", "stop_never_finished"]
        assert bench.stops() == [(HEAVY, "lost")]
        assert bench.actions() == ["start", "stop", "lost"]
        assert bench.work.held() == ONLY_LIGHT
        bench.grant(ONLY_HEAVY)
        assert bench.actions() == ["start", "stop", "lost"]
        assert not bench.work.holds(HEAVY)

    bench.during["stop", HEAVY] = while_it_stops
    bench.grant()
    bench.put(REVOKE_HEAVY)
    assert bench.actions() == ["start", "stop", "lost", "start"]
    assert bench.work.holds(HEAVY)


def test_start_that_waits_for_a_thread_never_runs_beside_lost(bench: Bench) -> None:
    """Regression: all threads were busy, and the resource was started twice."""
    bench.during["lost", HEAVY] = bench.grant
    bench.work.put(GrantResources(resources=ONLY_HEAVY))
    bench.work.put(REVOKE_HEAVY)
    for _ in ("half of the limit", "the limit"):
        bench.hand.now_s += STOP_S
        bench.work.wake()
    bench.hand.run()
    assert bench.actions() == ["lost", "start"]


def test_close_that_is_granted_something_hands_over(bench: Bench) -> None:
    fresh = ResourceSet({"fresh": [0]})

    def while_it_stops() -> None:
        bench.hand.run()
        assert bench.actions(LIGHT) == ["start", "stop"]
        assert bench.posted == []
        for _ in range(2):
            bench.grant(fresh)
        assert bench.posted == [SubscriptionChanged(topics=())]
        bench.put(RevokeResources(resources=BOTH | fresh))
        assert sorted(bench.given_up()) == [("fresh", 0), LIGHT]

    bench.during["stop", HEAVY] = while_it_stops
    bench.grant()
    assert bench.work.close(STOP_S)
    assert bench.given_up()[-1] == HEAVY
    assert {one for _, one in bench.calls} == set(BOTH)


def test_close_when_a_stop_hangs_ends_in_time(bench: Bench) -> None:
    bench.grant(ONLY_HEAVY)
    bench.hand.is_held = lambda _: True
    began_s = bench.hand.now_s
    assert not bench.work.close(5.0)
    assert bench.hand.now_s == began_s + 5.0
    bench.hand.is_held = lambda _: False
    bench.hand.run("reports")
    assert bench.stops() == [(HEAVY, "lost")]
    bench.hand.run()
    assert bench.actions() == ["start", "lost"]


def test_stop_is_told_to_the_group_though_telemetry_raises(bench: Bench) -> None:
    """A log that cannot be written must not delay the other members."""

    def fail(_: Record) -> None:
        raise OSError("no space left")

    bench.grant()
    bench.work.write = fail
    bench.put(RevokeResources(resources=ONLY_LIGHT))
    assert bench.given_up() == [LIGHT]
    assert bench.warned == ["internal_error"]


@pytest.mark.parametrize("told", ["write", "warn"])
def test_telemetry_that_waits_for_another_thread_is_no_deadlock(bench: Bench, told: str) -> None:
    """A listener may pass a record to a thread that asks for the held resources."""
    asked: list[object] = []

    def ask(*_: object, **__: object) -> None:
        asking = threading.Thread(target=lambda: asked.append(bench.work.held()), daemon=True)
        asking.start()
        asking.join(LIMIT_S)
        assert not asking.is_alive()

    setattr(bench.work, told, ask)
    bench.during["stop", HEAVY] = lambda: bench.advance(STOP_S)
    bench.grant()
    bench.put(RevokeResources(resources=BOTH))
    assert len(asked) >= 2
    assert bench.work.works() == ()


def test_records_are_told_in_the_order_in_which_things_happened(bench: Bench) -> None:
    """While one thread tells, others go on."""
    resources = ResourceSet({"r": range(20)})

    def write(record: Record) -> None:
        bench.hand.run_one()
        bench.written.append(record)

    bench.work.write = write
    bench.catalogue = Catalogue.of(resources)
    for _ in range(3):
        bench.grant(resources)
        bench.put(RevokeResources(resources=resources))
    runs: set[Resource] = set()
    for record in bench.written:
        if isinstance(record, ResourcesStarted):
            assert runs.isdisjoint(record.resources)
            runs.update(record.resources)
        elif isinstance(record, ResourcesStopped):
            assert runs >= set(record.resources)
            runs.difference_update(record.resources)
    assert len(bench.written) == 120
    assert runs == set()


def test_log_that_hangs_bounds_the_memory_of_reports(bench: Bench) -> None:
    """Regression: a callback that failed again and again added reports without end."""
    for _ in range(10_100):
        inner(bench.work, "_warn_later")("stop_takes_long")
    assert len(bench.hand.jobs("reports")) == 10_000


# --- the work as the health of the group reads it -------------------------------------------------


def _read(monkeypatch: pytest.MonkeyPatch, *works: Work, failure: str = "") -> WorkSample:
    monkeypatch.setattr(health, "now_s", lambda: 100.0)
    work: Any = SimpleNamespace(
        works=lambda: works, failure=SimpleNamespace(message=failure) if failure else None
    )
    return GroupWork(work).read()


def _work(index: int, *, runs: bool = False, wish: Wish = Wish.RUN, busy: int = 0) -> Work:
    resource = Resource("jobs", index)
    return Work(resource=resource, token=1, began_s=60.0, runs=runs, wish=wish, busy=busy)


def test_running_resources_are_owned_until_their_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = _work(1, runs=True, wish=Wish.END)
    sample = _read(monkeypatch, _work(0, runs=True), ended)
    assert (sample.owned.to_dict(), sample.stuck) == ({"jobs": [0]}, ())
    assert (sample.revoking_s, sample.failure) == (0.0, "")
    sample = _read(monkeypatch, _work(0, runs=True, wish=Wish.STOP, busy=1))
    assert (sample.revoking.to_dict(), sample.revoking_s) == ({"jobs": [0]}, 40.0)


def test_start_that_has_not_returned_is_told_with_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    (stuck,) = _read(monkeypatch, _work(3, busy=1)).stuck
    assert (stuck.topic, stuck.partition, stuck.why, stuck.since_s) == ("jobs", 3, "callback", 40.0)


def test_refusal_by_the_group_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _read(monkeypatch, failure="fenced").failure == "fenced"
    assert GroupWork(SimpleNamespace()).commit_meter() is None  # type: ignore[arg-type]


# --- warm-ups of named resources ------------------------------------------------------------------


BEGIN, CANCEL = BeginWarmups(resources=ONLY_HEAVY), CancelWarmups(resources=ONLY_HEAVY)
GRANT = GrantResources(resources=ONLY_HEAVY)
WARM = WarmedUp(resources=ONLY_HEAVY)


def test_cancelled_warm_up_cools_after_its_callback_has_returned(bench: Bench) -> None:
    def while_it_warms() -> None:
        bench.put(CANCEL)
        assert bench.actions() == ["warm"]

    bench.during["warm", HEAVY] = while_it_warms
    bench.put(BEGIN)
    assert bench.actions() == ["warm", "cool"]
    assert bench.posted == []


@pytest.mark.parametrize(
    ("notices", "actions"),
    [
        ([BEGIN, GRANT], ["warm", "start"]),
        ([GRANT, REVOKE_HEAVY, BEGIN], ["start", "stop", "warm"]),
        ([CANCEL, CANCEL], ["cool", "cool"]),  # nothing is remembered
    ],
    ids=["assigned while warm", "kept after its stop", "found and not wanted"],
)
def test_callbacks_of_a_resource(bench: Bench, notices: list[object], actions: list[str]) -> None:
    for notice in notices:
        bench.put(notice)
    assert bench.actions() == actions


def test_warm_up_that_is_wanted_again_while_it_cools_begins_anew(bench: Bench) -> None:
    bench.during["cool", HEAVY] = lambda: bench.put(BEGIN)
    bench.put(BEGIN)
    bench.put(CANCEL)
    assert bench.posted == [WARM, WARM]
    assert bench.actions() == ["warm", "cool", "warm"]


def test_resource_that_comes_and_goes_during_its_warm_up_never_starts(bench: Bench) -> None:
    def while_it_warms() -> None:
        bench.put(GRANT)
        bench.put(REVOKE_HEAVY)
        assert bench.posted == [RevocationCompleted(resources=ONLY_HEAVY)]

    bench.during["warm", HEAVY] = while_it_warms
    bench.put(BEGIN)
    assert bench.actions() == ["warm"]


@pytest.mark.parametrize("during", ["start", "lost"])
@pytest.mark.parametrize(
    ("notices", "actions"),
    [
        ([BEGIN], ["start", "lost", "warm"]),
        ([BEGIN, GRANT], ["start", "lost", "start"]),
        ([BEGIN, CANCEL], ["start", "lost"]),
        ([CANCEL, BEGIN], ["start", "lost", "warm"]),
    ],
    ids=["wanted", "assigned again", "not wanted any longer", "wanted again"],
)
def test_warm_up_waits_for_the_work_that_a_loss_ends(
    bench: Bench, during: str, notices: list[object], actions: list[str]
) -> None:
    """Regression: `warm` ran beside the `start` or the `lost` of the same resource."""

    def meanwhile() -> None:
        if during == "start":
            bench.put(LOSE_HEAVY)
        for notice in notices:
            bench.put(notice)
        assert bench.actions() == before

    before = ["start"] if during == "start" else ["start", "lost"]
    bench.during[during, HEAVY] = meanwhile
    bench.put(GRANT)
    if during == "lost":
        bench.put(LOSE_HEAVY)
    assert bench.actions() == actions
    assert bench.posted == [LossHandled(), *([WARM] if "warm" in actions else [])]


def test_warm_up_that_waits_for_work_does_not_begin_in_a_closing_process(bench: Bench) -> None:
    def while_it_ends() -> None:
        bench.put(BEGIN)
        bench.work.close(0.0)

    bench.during["lost", HEAVY] = while_it_ends
    bench.put(GRANT)
    bench.put(LOSE_HEAVY)
    assert "warm" not in bench.actions()


def test_warm_up_that_raises_is_reported_and_not_repeated(bench: Bench) -> None:
    bench.failures["warm", HEAVY] = [OSError("disk full")]
    bench.put(BEGIN)
    failed = WarmupFailed(resources=ONLY_HEAVY, error="OSError: disk full")
    assert bench.posted == [failed]
    (failure,) = bench.reported
    assert (failure.resource, failure.action, str(failure.error)) == (HEAVY, "warm", "disk full")
    record = WorkFailed(resources=ONLY_HEAVY, action="warm", error=failed.error, attempts=1)
    assert bench.written == [record]
    bench.work.wake()
    bench.put(GRANT)  # cold
    assert bench.actions() == ["warm", "start"]


def test_closing_process_begins_no_warm_up(bench: Bench) -> None:
    assert bench.work.close(STOP_S)
    bench.put(BEGIN)
    assert bench.actions() == []


def test_overdue_stop_leaves_no_state_to_keep(bench: Bench) -> None:
    def while_it_stops() -> None:
        bench.advance(STOP_S)
        assert bench.given_up() == [HEAVY]
        assert bench.posted[0] == WarmupFailed(resources=ONLY_HEAVY, error="not stopped in time")

    bench.during["stop", HEAVY] = while_it_stops
    bench.put(GRANT)
    bench.put(REVOKE_HEAVY)


# --- reports that a slow listener has no time for -------------------------------------------------


@pytest.fixture
def slow(hand: Hand) -> Iterator[Bench]:
    """Return a bench whose listener hangs, so that three reports wait."""
    made = Bench(hand, reports_max=3)
    hand.is_held = lambda job: job in hand.jobs("reports")
    yield made
    made.check()


def report(bench: Bench, times: int) -> None:
    """Start or lose a resource; each is a report."""
    for _ in range(times):
        runs = bench.calls[-1:] == [("start", LIGHT)]
        lost, granted = LoseResources(resources=ONLY_LIGHT, cause="left"), GrantResources
        bench.put(lost if runs else granted(resources=ONLY_LIGHT))


def test_reports_that_are_dropped_are_counted_in_a_warning(slow: Bench) -> None:
    """A listener hung, and later records were missing without a word."""
    report(slow, 3)
    assert slow.dropped == []
    report(slow, 1)
    assert slow.dropped == [1]
    report(slow, 4)
    slow.advance(59.0)
    assert slow.dropped == [1]
    slow.advance(1.0)
    assert slow.dropped == [1, 5]
    slow.advance(600.0)
    assert slow.dropped == [1, 5]
    report(slow, 1)
    assert slow.dropped == [1, 5, 6]


def test_reports_that_wait_when_the_group_closes_are_counted(slow: Bench) -> None:
    report(slow, 5)
    assert slow.dropped == [1]
    slow.work.wait_told()
    assert slow.dropped == [1, 5]


def test_group_that_closes_with_all_reports_told_says_nothing(bench: Bench) -> None:
    report(bench, 5)
    bench.work.wait_told()
    assert bench.warned == []
