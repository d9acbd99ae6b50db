"""The checker of the end of a run."""

from coopgroup.core.model import ResourceSet
from coopgroup.simulator.checkers import check_rest
from coopgroup.telemetry import (
    AssignmentReceived,
    BalanceRequested,
    Envelope,
    ProcessStarted,
    Record,
    ResourcesStarted,
    RoundDecided,
    StateChanged,
    WithoutRoom,
)
from tests.unit.simulator.checkers.rows import T0, T01, envelope

LIFE: tuple[Record, ...] = (
    ProcessStarted(topics=("T",)),
    StateChanged(before="syncing", after="stable", cause="assigned"),
    AssignmentReceived(leader=True, gained=T01),
    ResourcesStarted(resources=T01),
)


def life(*records: Record) -> list[Envelope]:
    """Return records of one process, a millisecond apart."""
    return [envelope(at_ms, 1, record) for at_ms, record in enumerate(records)]


def messages(
    telemetry: list[Envelope], expected: ResourceSet, quiet_from_ms: int = 90, slack_ms: int = 0
) -> list[str]:
    found = check_rest(telemetry, expected, quiet_from_ms, 100, slack_ms)
    return [one.message for one in found]


def test_rest_when_all_have_their_owner_is_kept() -> None:
    assert messages(life(*LIFE), T01) == []


def test_rest_names_what_nobody_works_on_and_what_nobody_wants() -> None:
    assert messages(life(*LIFE), ResourceSet({"T": [0, 1, 2]})) == ["nobody works on {'T': [2]}"]
    assert messages(life(*LIFE), T0) == ["worked on, and not wanted: {'T': [1]}"]


def test_rest_does_not_want_what_no_member_has_room_for() -> None:
    decided = RoundDecided(policy="simple", assignor="mine", members=("m",))
    full = WithoutRoom(resources=ResourceSet({"T": [2]}), reasons=("full",))
    wanted = ResourceSet({"T": [0, 1, 2]})
    assert messages(life(*LIFE, decided, full), wanted) == []
    assert messages(life(*LIFE, full, decided), wanted) != []  # the last round found room


def test_rest_when_a_member_is_not_stable_is_broken() -> None:
    joins = StateChanged(before="stable", after="joining", cause="a round has begun")
    assert messages(life(*LIFE, joins), T01) == ["not stable: {'a': 'joining'}"]


def test_rest_when_rounds_go_on_is_broken() -> None:
    assert messages(life(*LIFE), T01, quiet_from_ms=2) == ["a is still in rounds at 2"]


def test_rest_when_lags_were_to_be_evened_out_a_moment_ago_says_nothing() -> None:
    """Balancing rounds just before the end are no violation. Older unfinished ones would be."""
    asked = BalanceRequested(overloaded=("m",), lags=(9,), mean_lag=3, resources=T01)
    joins = StateChanged(before="stable", after="joining", cause="lags are uneven")
    assert messages(life(*LIFE, asked, joins), T01, quiet_from_ms=34, slack_ms=30) == []
    assert messages(life(*LIFE, asked, joins), T01, quiet_from_ms=35, slack_ms=30) != []
