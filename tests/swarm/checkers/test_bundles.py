"""The checker of resources that belong together."""

import attrs

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ProcessStarted,
    Record,
    RoundDecided,
    RoundRefused,
    WarmupsChanged,
)
from tests.swarm.checkers.bundles import are_always_together, check_bundles, in_bundles
from tests.unit.simulator.checkers.rows import envelope, led

TOGETHER = [["T", "U"]]
BOTH = ("T", "U")


def by(member: str, record: Record, generation: int = 1) -> Envelope:
    return envelope(5, generation, record, member, member)


REVOKES = led(("m", "n"), revoked=ResourceSet({"T": [0], "U": [0, 1]}))


def started(topics: tuple[str, ...]) -> ProcessStarted:
    return ProcessStarted(topics=topics)


def received(**parts: int) -> AssignmentReceived:
    owned = ResourceSet({name: [index] for name, index in parts.items()})
    return AssignmentReceived(leader=False, gained=owned)


def rows(second: AssignmentReceived) -> list[Envelope]:
    return [
        by("m", started(BOTH)),
        by("m", REVOKES),
        by("m", received(T=0)),
        by("n", second),
    ]


def test_bundle_of_two_members_is_found() -> None:
    (violation,) = check_bundles(rows(received(U=0)), TOGETHER)
    assert violation.message == "U-0 goes to n, its bundle to m"


def test_other_partitions_and_topics_are_no_bundle() -> None:
    assert not [*check_bundles(rows(received(U=1)), TOGETHER)]
    assert not [*check_bundles(rows(received(V=0)), TOGETHER)]


def test_rounds_of_different_generations_are_not_compared() -> None:
    found = rows(received(U=0))
    found[-1] = attrs.evolve(found[-1], generation=2)
    assert not [*check_bundles([*found, by("m", REVOKES, 2)], TOGETHER)]


def test_refused_and_doubled_rounds_do_not_count() -> None:
    found = rows(received(U=0))
    assert not [*check_bundles([*found, by("m", REVOKES)], TOGETHER)]
    refused = by("m", RoundRefused(violations=("x",)))
    assert not [*check_bundles([*found, refused], TOGETHER)]


def test_topics_are_apart_if_a_process_subscribes_to_one() -> None:
    found = rows(received(U=0))
    assert are_always_together([*found, by("o", started(("V",)))], TOGETHER)
    assert not are_always_together([*found, by("o", started(("U",)))], TOGETHER)


def test_static_member_that_returns_gets_its_assignment_under_another_id() -> None:
    found = rows(received(U=0))
    found[-1] = attrs.evolve(found[-1], client="m")
    assert not [*check_bundles(found, TOGETHER)]


def test_parts_of_a_bundle_become_one_resource() -> None:
    (one,) = in_bundles([by("m", REVOKES)], TOGETHER)
    assert isinstance(one.record, RoundDecided)
    assert one.record.revoked == ResourceSet({"T": [0, 1]})
    assert one.record.granted == EMPTY


def test_bundle_is_cancelled_when_no_part_of_it_is_warm() -> None:
    """Regression: one of its topics shrank, and the other part moved as it should."""
    both, first = ResourceSet({"T": [1], "U": [1]}), ResourceSet({"T": [1]})
    rows = [
        by("m", WarmupsChanged(begun=both, warm=both)),
        by("m", WarmupsChanged(cancelled=both - first)),
        by("m", WarmupsChanged(cancelled=first)),
    ]
    records = [one.record for one in in_bundles(rows, TOGETHER)]
    cancelled = [one.cancelled for one in records if isinstance(one, WarmupsChanged)]
    assert cancelled == [EMPTY, EMPTY, first]
