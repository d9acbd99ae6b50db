"""The checkers of losses: known delays, and moves that come too soon."""

import attrs

from coopgroup.model import ResourceSet
from coopgroup.simulator.checkers import Waits, check_heard_delays, check_losses
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    Record,
    RoundLed,
    StateChanged,
    SubscriptionUnreadable,
)

LOST, WAITING = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
DELAY_MS = 1_000


def led(*, waiting: ResourceSet) -> RoundLed:
    """Return a round in which the delay begins."""
    return RoundLed(
        policy="incremental",
        assignor="sticky",
        members=("A", "B"),
        lost=LOST,
        waiting=waiting,
        scheduled_rebalance_timeout_ms=DELAY_MS,
    )


def second_wait(*, waiting: ResourceSet) -> list[Envelope]:
    """Process a reports a delay to b. Then b leads and restarts the delay."""
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
    """Also while moves are pending under a policy without an interval."""
    for waiting in (WAITING, ResourceSet({})):
        (violation,) = check_heard_delays(second_wait(waiting=waiting), Waits(delay_ms=DELAY_MS))
        assert violation.message == "b had been told that the wait ends at 1010"


def test_heard_pause_of_paced_moves_is_no_delay() -> None:
    """The announced time may be the interval between moves."""
    waits = Waits(delay_ms=DELAY_MS, interval_ms=200)
    assert list(check_heard_delays(second_wait(waiting=WAITING), waits)) == []
    assert len(list(check_heard_delays(second_wait(waiting=ResourceSet({})), waits))) == 1


def test_heard_delay_lasts_no_longer_when_a_member_joins_the_next_round_meanwhile() -> None:
    """The join before the decision counts: it told the leader the remaining delay."""
    rows = second_wait(waiting=ResourceSet({}))
    rows.insert(-1, _of("b", 600, StateChanged(before="syncing", after="joining", cause="")))
    late = attrs.evolve(rows[-1], record=_told_in(530), at_ms=700)
    assert list(check_heard_delays([*rows[:-1], late], Waits(delay_ms=DELAY_MS))) == []
    later = attrs.evolve(late, record=_told_in(600))
    assert len(list(check_heard_delays([*rows[:-1], later], Waits(delay_ms=DELAY_MS)))) == 1


def test_heard_delay_that_a_follow_up_passes_on_ends_as_late_as_that_one_took_it() -> None:
    """The leader revokes first, announces nothing, and keeps the deadline until the end."""
    rows = second_wait(waiting=ResourceSet({}))[:-2]
    rows += [
        _of("b", 900, StateChanged(before="joining", after="leading", cause=""), generation=2),
        _of("b", 900, _told_in(0), generation=2),
        _of("b", 910, StateChanged(before="syncing", after="joining", cause=""), generation=2),
        _of("b", 920, StateChanged(before="joining", after="leading", cause=""), generation=3),
    ]
    waits = Waits(delay_ms=DELAY_MS)
    # the remaining delay of ms 500 still counts at ms 900
    told = _of("b", 920, _told_in(490), generation=3)
    assert list(check_heard_delays([*rows, told], waits)) == []
    longer = _of("b", 920, _told_in(700), generation=3)
    assert len(list(check_heard_delays([*rows, longer], waits))) == 1
    # another member led the generation in between
    another = _of("b", 920, _told_in(590), generation=4)
    assert len(list(check_heard_delays([*rows[:-1], *_again(rows[-1]), another], waits))) == 1


def test_moves_within_the_interval_are_a_breach_though_a_member_cannot_be_read() -> None:
    """A pending revocation that is repeated is not a move."""
    rows = []
    for generation, revoked in ((1, [0]), (2, [0]), (3, [1])):
        at_ms = 100 * generation
        if generation == 1:
            unreadable = SubscriptionUnreadable(member_id="C", reason="")
            rows.append(_of("a", at_ms, unreadable, generation=generation))
        moves = ResourceSet({"T": revoked})
        record = RoundLed(
            policy="incremental", assignor="sticky", members=("A",), revoked=moves, waiting=moves
        )
        rows.append(_of("a", at_ms, record, generation=generation))
        rows.append(_of("a", at_ms, AssignmentReceived(leader=True), generation=generation))
    (hasty,) = check_losses(rows, Waits(delay_ms=0, interval_ms=500))
    assert (hasty.at_ms, hasty.message) == (300, "moves 200 ms after the last moves")
    assert list(check_losses(rows, Waits(delay_ms=0, interval_ms=200))) == []


def _told_in(timeout_ms: int) -> RoundLed:
    return attrs.evolve(
        led(waiting=ResourceSet({})),
        scheduled_rebalance_timeout_ms=timeout_ms,
        follow_up=not timeout_ms,
    )


def _of(client: str, at_ms: int, record: Record, *, generation: int = 1) -> Envelope:
    return Envelope(
        at_ms=at_ms,
        group="g",
        member=client.upper(),
        generation=generation,
        record=record,
        client=client,
    )


def _again(row: Envelope) -> list[Envelope]:
    return [attrs.evolve(row, generation=row.generation + 1)]
