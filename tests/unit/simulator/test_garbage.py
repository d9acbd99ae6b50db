"""The search for garbage waits for the end of a run, and then finds its parts."""

import gc
import weakref

import pytest

from coopgroup.simulator.garbage import searched_afterwards


class _Part:
    """Knows itself, so that only a search finds that nobody else knows it."""

    def __init__(self) -> None:
        self.part = self


def test_garbage_of_a_run_is_found_at_its_end() -> None:
    """A process that plays one run after the other does not keep their worlds."""
    with searched_afterwards():
        assert not gc.isenabled()
        part = weakref.ref(_Part())
        assert part() is not None
    assert gc.isenabled()
    assert part() is None


def test_search_when_a_run_fails_goes_on_afterwards() -> None:
    """An error of a run concerns nobody else."""
    with pytest.raises(ZeroDivisionError), searched_afterwards():
        1 / 0  # noqa: B018 -- it is to fail
    assert gc.isenabled()


def test_search_that_is_off_stays_off() -> None:
    """Whoever switched it off has a reason."""
    gc.disable()
    try:
        with searched_afterwards():
            part = weakref.ref(_Part())
        assert not gc.isenabled()
        assert part() is not None
    finally:
        gc.enable()
