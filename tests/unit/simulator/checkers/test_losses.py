"""The checker of delays that members have heard of, where the leader changes."""

from coopgroup.model import ResourceSet
from coopgroup.simulator.checkers import Waits, check_heard_delays
from coopgroup.telemetry import AssignmentReceived, Envelope, Record, RoundLed, StateChanged

LOST, WAITING = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
DELAY_MS = 1_000


def led(*, waiting: ResourceSet) -> RoundLed:
    """A round in which the delay begins."""
    return RoundLed(
        policy="incremental",
        assignor="sticky",
        members=("A", "B"),
        lost=LOST,
        waiting=waiting,
        scheduled_rebalance_timeout_ms=DELAY_MS,
    )


def second_wait(*, waiting: ResourceSet) -> list[Envelope]:
    """The process a tells b of a delay; b leads next, and begins it once more."""
    rows: list[tuple[int, str, Record]] = [
        (10, "a", StateChanged(before="joining", after="leading", cause="")),
        (10, "a", led(waiting=waiting)),
        (10, "a", AssignmentReceived(leader=True, scheduled_rebalance_timeout_ms=DELAY_MS)),
        (10, "b", AssignmentReceived(leader=False, scheduled_rebalance_timeout_ms=DELAY_MS)),
        (500, "b", StateChanged(before="stable", after="joining", cause="")),
        (510, "b", StateChanged(before="joining", after="leading", cause="")),
        (510, "b", led(waiting=waiting)),
    ]
    return [
        Envelope(
            at_ms=at_ms,
            group="g",
            member=client.upper(),
            generation=1,
            record=record,
            client=client,
        )
        for at_ms, client, record in rows
    ]


def test_heard_delay_that_begins_once_more_is_a_breach() -> None:
    """Also while something that moves is being released, where no policy paces its moves."""
    for waiting in (WAITING, ResourceSet({})):
        (violation,) = check_heard_delays(second_wait(waiting=waiting), Waits(delay_ms=DELAY_MS))
        assert violation.message == "b had been told that the wait ends at 1010"


def test_heard_pause_of_paced_moves_is_no_delay() -> None:
    """What was announced may have been the time of the next moves."""
    waits = Waits(delay_ms=DELAY_MS, interval_ms=200)
    assert list(check_heard_delays(second_wait(waiting=WAITING), waits)) == []
    assert len(list(check_heard_delays(second_wait(waiting=ResourceSet({})), waits))) == 1
