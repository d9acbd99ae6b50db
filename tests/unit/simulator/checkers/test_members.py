"""Members stop only the resources that their leader revoked, and lose resources for a reason."""

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.simulator.checkers import check_retained
from coopgroup.simulator.checkers.members import check_members
from coopgroup.telemetry import AssignmentReceived, MembershipLost
from tests.unit.simulator.checkers.rows import T0, T01, envelope, led


def told(revoked: ResourceSet) -> AssignmentReceived:
    """Return the record of a member that receives revocations."""
    return AssignmentReceived(leader=False, revoked=revoked)


def test_retained_when_the_leader_did_not_take_it_is_broken() -> None:
    """A member must stop only the resources that the leader revoked."""
    rows = [envelope(1, 5, led(revoked=T0)), envelope(2, 5, told(T01))]
    (violation,) = check_retained(rows)
    assert violation.message == "a has to stop {'T': [1]}, left to it"
    assert list(check_retained([envelope(1, 5, led(revoked=T01)), envelope(2, 5, told(T0))])) == []


def test_retained_of_a_generation_with_two_leaders_says_nothing() -> None:
    """A lost broker loses its round, and the next one repeats the generation number."""
    rows = [envelope(1, 5, led()), envelope(2, 5, led(revoked=T0)), envelope(3, 5, told(T0))]
    assert list(check_retained(rows)) == []


@pytest.mark.parametrize(
    ("cause", "is_needless"),
    [
        ("lease expired", False),
        ("ConsumerGroupHeartbeat answered GROUP_ID_NOT_FOUND", False),
        ("ConsumerGroupHeartbeat answered COORDINATOR_LOAD_IN_PROGRESS", True),
        ("SyncGroup answered ILLEGAL_GENERATION", True),
    ],
)
def test_loss_after_an_error_that_leaves_the_claims_is_needless(
    cause: str, is_needless: bool
) -> None:
    found = list(check_members([envelope(1, 5, MembershipLost(resources=T0, cause=cause))]))
    assert bool(found) is is_needless
