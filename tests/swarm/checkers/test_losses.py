"""The checkers of losses: known delays, and moves that come too soon."""

import attrs
import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ProcessStarted,
    Record,
    RoundDecided,
    StateChanged,
    SubscriptionUnreadable,
)
from tests.swarm.checkers.heard_delays import check_heard_delays
from tests.swarm.checkers.losses import Waits, check_losses
from tests.unit.simulator.checkers.rows import envelope, led

LOST, WAITING = ResourceSet({"T": [0]}), ResourceSet({"T": [1]})
DELAY_MS = 1_000


def waits(waiting: ResourceSet) -> RoundDecided:
    """Return a round in which the delay begins."""
    return led(("A", "B", "C"), lost=LOST, waiting=waiting, rejoin_in_ms=DELAY_MS)


def second_wait(*, waiting: ResourceSet) -> list[Envelope]:
    """Process a reports a delay to b. Then b leads and restarts the delay."""
    rows: list[tuple[int, str, Record]] = [
        (10, "a", StateChanged(before="joining", after="leading", cause="")),
        (10, "a", waits(waiting)),
        (10, "a", AssignmentReceived(leader=True, rejoin_in_ms=DELAY_MS)),
        (10, "b", AssignmentReceived(leader=False, rejoin_in_ms=DELAY_MS)),
        (500, "b", StateChanged(before="stable", after="joining", cause="")),
        (510, "b", StateChanged(before="joining", after="leading", cause="")),
        (510, "b", waits(waiting)),
    ]
    return [_of(client, at_ms, record) for at_ms, client, record in rows]


def test_heard_delay_that_begins_once_more_is_a_breach() -> None:
    """Also while moves are pending under a policy without an interval."""
    for waiting in (WAITING, ResourceSet({})):
        (violation,) = check_heard_delays(second_wait(waiting=waiting), Waits(delay_ms=DELAY_MS))
        assert violation.message == "b had been told that the wait ends at 1010"


def test_heard_pause_of_paced_moves_is_no_delay() -> None:
    """The announced time may be the interval between moves."""
    times = Waits(delay_ms=DELAY_MS, interval_ms=200, has_hand_overs=True)
    assert list(check_heard_delays(second_wait(waiting=WAITING), times)) == []
    assert len(list(check_heard_delays(second_wait(waiting=ResourceSet({})), times))) == 1


def test_heard_delay_lasts_no_longer_when_a_member_joins_the_next_round_meanwhile() -> None:
    """The join before the decision counts: it told the leader the remaining delay."""
    rows = second_wait(waiting=ResourceSet({}))
    rows.insert(-1, _of("b", 600, StateChanged(before="syncing", after="joining", cause="")))
    late = attrs.evolve(rows[-1], record=_told_in(530), at_ms=700)
    assert list(check_heard_delays([*rows[:-1], late], Waits(delay_ms=DELAY_MS))) == []
    later = attrs.evolve(late, record=_told_in(600))
    assert len(list(check_heard_delays([*rows[:-1], later], Waits(delay_ms=DELAY_MS)))) == 1


@pytest.mark.parametrize(("instance_id", "breaches"), [("pod-0", 0), ("", 1)])
def test_heard_delay_of_a_static_member_whose_join_is_on_its_way_is_not_known(
    instance_id: str, breaches: int
) -> None:
    """The coordinator passes on the join before, which was sent before the delay was announced."""
    joining = StateChanged(before="stable", after="joining", cause="")
    heard = AssignmentReceived(leader=False, rejoin_in_ms=DELAY_MS)
    rows = [
        _of("b", 0, ProcessStarted(instance_id=instance_id, topics=("T",))),
        _of("b", 5, joining),
        _of("b", 10, StateChanged(before="joining", after="syncing", cause=""), generation=1),
        *second_wait(waiting=ResourceSet({}))[1:2],
        _of("b", 10, heard, generation=1),
        _of("b", 505, joining, generation=1),
        _of("c", 510, StateChanged(before="joining", after="leading", cause=""), generation=2),
        _of("c", 510, waits(ResourceSet({})), generation=2),
    ]
    times = Waits(delay_ms=DELAY_MS)
    assert len(list(check_heard_delays(rows, times))) == breaches


def test_heard_delay_that_a_follow_up_passes_on_ends_as_late_as_that_one_took_it() -> None:
    """The leader revokes first, announces nothing, and keeps the deadline until the end."""
    rows = second_wait(waiting=ResourceSet({}))[:-2]
    rows += [
        _of("b", 900, StateChanged(before="joining", after="leading", cause=""), generation=2),
        _of("b", 900, _told_in(0), generation=2),
        _of("b", 910, StateChanged(before="syncing", after="joining", cause=""), generation=2),
        _of("b", 920, StateChanged(before="joining", after="leading", cause=""), generation=3),
    ]
    times = Waits(delay_ms=DELAY_MS)
    # the remaining delay of ms 500 still counts at ms 900
    told = _of("b", 920, _told_in(490), generation=3)
    assert list(check_heard_delays([*rows, told], times)) == []
    longer = _of("b", 920, _told_in(700), generation=3)
    assert len(list(check_heard_delays([*rows, longer], times))) == 1
    # another member led the generation in between
    another = _of("b", 920, _told_in(590), generation=4)
    assert len(list(check_heard_delays([*rows[:-1], *_again(rows[-1]), another], times))) == 1


def test_heard_delay_of_a_member_that_the_leader_cannot_read_is_not_known() -> None:
    """Regression: it told its delay later than the others. The others still bound the wait."""
    heard = AssignmentReceived(leader=False, rejoin_in_ms=DELAY_MS)
    rows = second_wait(waiting=ResourceSet({}))[:-3]
    rows += [
        _of("c", 10, heard),
        _of("b", 500, StateChanged(before="stable", after="joining", cause="")),
        _of("c", 890, StateChanged(before="stable", after="joining", cause="")),
        _of("b", 900, StateChanged(before="joining", after="leading", cause=""), generation=2),
        _of("b", 900, _told_in(0), generation=2),
        _of("b", 920, StateChanged(before="joining", after="leading", cause=""), generation=3),
    ]
    times = Waits(delay_ms=DELAY_MS)

    def breaches(timeout_ms: int, *unread_in: int) -> list[str]:
        played = rows.copy()
        for generation in unread_in:
            place = next(n for n, one in enumerate(played) if one.generation == generation)
            unreadable = SubscriptionUnreadable(member_id="C", reason="")
            played.insert(place, _of("b", 900, unreadable, generation=generation))
        played.append(_of("b", 920, _told_in(timeout_ms), generation=3))
        return [one.message for one in check_heard_delays(played, times)]

    told_c, told_b = (f"{name} had been told that the wait ends at 1010" for name in "cb")
    assert breaches(490) == [told_c]
    assert breaches(490, 2) == breaches(490, 2, 3) == []
    assert breaches(490, 3) == [told_c], "read when the leader learned of the wait"
    assert breaches(700, 2) == [told_b]


def test_moves_within_the_interval_are_a_breach_though_a_member_cannot_be_read() -> None:
    """A pending revocation that is repeated is not a move."""
    rows = []
    for generation, revoked in ((1, [0]), (2, [0]), (3, [1])):
        at_ms = 100 * generation
        if generation == 1:
            unreadable = SubscriptionUnreadable(member_id="C", reason="")
            rows.append(_of("a", at_ms, unreadable, generation=generation))
        moves = ResourceSet({"T": revoked})
        record = led(("A",), revoked=moves, waiting=moves)
        rows.append(_of("a", at_ms, record, generation=generation))
        rows.append(_of("a", at_ms, AssignmentReceived(leader=True), generation=generation))
    (hasty,) = check_losses(rows, Waits(delay_ms=0, interval_ms=500))
    assert (hasty.at_ms, hasty.message) == (300, "moves 200 ms after the last moves")
    assert list(check_losses(rows, Waits(delay_ms=0, interval_ms=200))) == []
    handed_over = Waits(delay_ms=0, interval_ms=500, has_hand_overs=True)
    assert list(check_losses(rows, handed_over)) == [], "what is given up moves without a pause"


def test_move_of_what_two_members_have_received_is_only_an_older_claim() -> None:
    """Regression: a late join claims it from its owner, and the leader revokes the late claim."""
    t1 = ResourceSet({"T": [1]})
    for second, count in ((t1, 0), (ResourceSet(), 1)):
        rows: list[Envelope] = []
        for generation, at_ms in ((1, 100), (2, 300)):
            moves = t1 if generation == 2 else LOST
            record = led(("A", "B"), revoked=moves, waiting=moves)
            rows.append(_of("a", at_ms, record, generation=generation))
            heard = AssignmentReceived(leader=True, kept=t1)
            rows.append(_of("a", at_ms, heard, generation=generation))
            other = AssignmentReceived(leader=False, kept=second)
            rows.append(_of("b", at_ms, other, generation=generation))
        found = list(check_losses(rows, Waits(delay_ms=0, interval_ms=500)))
        assert len(found) == count, found


def _round(
    generation: int,
    at_ms: int,
    leader: str,
    members: dict[str, tuple[list[int], list[int]]],
    **decided: object,
) -> list[Envelope]:
    """Return a round: the decision, and what each member keeps and gains of topic T."""
    record = led(tuple(name.upper() for name in members), **decided)
    rows = [_of(leader, at_ms, record, generation=generation)]
    for name, (kept, gained) in members.items():
        heard = AssignmentReceived(
            leader=name == leader, kept=ResourceSet({"T": kept}), gained=ResourceSet({"T": gained})
        )
        rows.append(_of(name, at_ms, heard, generation=generation))
    return rows


@pytest.mark.parametrize(("before", "breaches"), [({}, 1), ({"rejoin_in_ms": 500}, 0)])
def test_new_leader_lets_a_loss_wait_unless_members_know_of_a_delay(
    before: dict[str, int], breaches: int
) -> None:
    three = {"a": ([0], []), "b": ([1], []), "c": ([], [2])}
    rows = _round(1, 100, "a", three, **before)
    two = {"b": ([1], []), "c": ([2], [0])}
    rows += _round(2, 900, "b", two, granted=ResourceSet({"T": [0]}))
    found = [one.message for one in check_losses(rows, Waits(delay_ms=DELAY_MS))]
    assert found == ["{'T': [0]} of A does not wait under a new leader"] * breaches
    assert list(check_losses(rows, Waits(delay_ms=DELAY_MS, co_partition=[["T", "U"]]))) == []


def test_new_leader_may_give_a_loss_to_a_member_that_brings_nothing() -> None:
    rows = _round(1, 100, "a", {"a": ([0], []), "b": ([1], []), "c": ([2], [])})
    two = {"b": ([1], []), "c": ([], [0, 2])}
    rows += _round(2, 900, "b", two, granted=ResourceSet({"T": [0]}))
    assert list(check_losses(rows, Waits(delay_ms=DELAY_MS))) == []


@pytest.mark.parametrize(("first", "breaches"), [({}, 1), ({"lost": WAITING}, 0)])
def test_share_that_a_member_just_got_waits_too_unless_it_had_been_lost_before(
    first: dict[str, ResourceSet], breaches: int
) -> None:
    rows = _round(1, 100, "a", {"a": ([0], []), "b": ([], [])}, **first)
    rows += _round(2, 200, "a", {"a": ([0], []), "b": ([], [1])}, granted=WAITING)
    rows += _round(3, 800, "a", {"a": ([0], [1])}, granted=WAITING)
    assert len(list(check_losses(rows, Waits(delay_ms=DELAY_MS)))) == breaches


@pytest.mark.parametrize(("gone_ms", "breaches"), [(1_100, 0), (1_400, 1)])
def test_share_that_a_member_kept_for_as_long_as_a_loss_may_wait_is_lost_anew(
    gone_ms: int, breaches: int
) -> None:
    rows = _round(1, 100, "a", {"a": ([0], []), "b": ([], [])}, lost=WAITING)
    rows += _round(2, 200, "a", {"a": ([0], []), "b": ([], [1])}, granted=WAITING)
    rows += _round(3, gone_ms, "a", {"a": ([0], [1])}, granted=WAITING)
    assert len(list(check_losses(rows, Waits(delay_ms=DELAY_MS)))) == breaches


@pytest.mark.parametrize(("put_off", "breaches"), [(WAITING, 0), (ResourceSet({}), 1)])
def test_paced_moves_go_on_while_a_loss_waits_but_none_begins(
    put_off: ResourceSet, breaches: int
) -> None:
    rows = _round(1, 100, "a", {"a": ([1, 2], [])}, lost=LOST, waiting=put_off)
    rows += _round(
        2, 400, "a", {"a": ([2], [])}, lost=LOST, waiting=WAITING, revoked=WAITING, follow_up=True
    )
    found = [one.message for one in check_losses(rows, Waits(delay_ms=DELAY_MS))]
    assert found == ["moves {'T': [1]} while {'T': [0]} waits"] * breaches
    leavers_move = Waits(delay_ms=DELAY_MS, has_hand_overs=True)
    assert list(check_losses(rows, leavers_move)) == []


@pytest.mark.parametrize(("topics", "breaches"), [(("T", "U"), 1), (("U",), 0)])
def test_newcomer_that_cannot_take_the_whole_share_is_given_nothing_of_it(
    topics: tuple[str, ...], breaches: int
) -> None:
    """A warm member took over T-0. The rest of the share waits for its owner."""
    share, rest = ResourceSet({"T": [0], "U": [0]}), ResourceSet({"U": [0]})
    rows = [
        _of("a", 0, ProcessStarted(topics=("T", "U"))),
        _of("b", 0, ProcessStarted(topics=("T", "U"))),
        _of("c", 150, ProcessStarted(topics=topics)),
    ]
    for number, members, lost, others in (
        (1, ("A", "B"), ResourceSet({}), [("b", AssignmentReceived(leader=False, gained=share))]),
        (2, ("A", "C"), rest, [("c", AssignmentReceived(leader=False))]),
    ):
        record = led(members, lost=lost)
        rows.append(_of("a", 100 * number, record, generation=number))
        for client, heard in [("a", AssignmentReceived(leader=True)), *others]:
            rows.append(_of(client, 100 * number, heard, generation=number))
    found = [one.message for one in check_losses(rows, Waits(delay_ms=DELAY_MS))]
    assert found == ["{'U': [0]} is kept from C, which is new"] * breaches


def _told_in(timeout_ms: int) -> RoundDecided:
    return attrs.evolve(
        waits(ResourceSet({})),
        rejoin_in_ms=timeout_ms,
        follow_up=not timeout_ms,
    )


def _of(client: str, at_ms: int, record: Record, *, generation: int = 1) -> Envelope:
    return envelope(at_ms, generation, record, client, client.upper())


def _again(row: Envelope) -> list[Envelope]:
    return [attrs.evolve(row, generation=row.generation + 1)]


def test_new_partition_of_a_lost_bundle_waits_with_it() -> None:
    """Regression: the partition was created while the rest of its bundle was lost."""
    bundle = ResourceSet({"T": [0], "U": [0]})
    for together, count in (((("T", "U"),), 0), ((), 1)):
        rows: list[Envelope] = []
        for generation, lost in ((1, LOST), (2, bundle)):
            record = led(("A",), lost=lost)
            rows.append(_of("a", 100 * generation, record, generation=generation))
            heard = AssignmentReceived(leader=True)
            rows.append(_of("a", 100 * generation, heard, generation=generation))
        found = list(check_losses(rows, Waits(delay_ms=DELAY_MS, co_partition=together)))
        assert len(found) == count, found
