"""The state that an application keeps: restored, being restored, and deleted."""

from coopgroup.model import EMPTY, ResourceSet
from coopgroup.simulator.host.local_state import LocalState


def some(*indices: int) -> ResourceSet:
    return ResourceSet({"T": indices})


def test_end_of_a_cancelled_warm_up_finishes_no_later_one() -> None:
    state = LocalState(is_kept=True)
    state.begin(some(0, 1), 30)
    state.drop(some(0))
    state.begin(some(0), 50)
    assert state.finish(some(0, 1), 30) == some(1)
    assert state.finish(some(0), 50) == some(0)


def test_assigned_resource_ends_its_warm_up_and_says_when_it_would_have_ended() -> None:
    state = LocalState(is_kept=True)
    state.begin(some(0), 30)
    state.begin(some(1), 40)
    assert state.take_restoring(some(0, 2)) == {30: some(0)}
    assert state.finish(some(0), 30) == EMPTY
    assert state.is_restoring
