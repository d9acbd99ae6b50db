"""The garbage collection waits for the end of a run, and then frees its objects."""

import gc
import weakref

import pytest

from coopgroup.simulator.garbage import searched_afterwards


class _Part:
    """An object that refers to itself: only the cyclic collector frees it."""

    def __init__(self) -> None:
        self.part = self


def test_garbage_of_a_run_is_found_at_its_end() -> None:
    """A process that plays several runs must not keep their worlds."""
    with searched_afterwards():
        assert not gc.isenabled()
        part = weakref.ref(_Part())
        assert part() is not None
    assert gc.isenabled()
    assert part() is None


def test_search_when_a_run_fails_goes_on_afterwards() -> None:
    with pytest.raises(ZeroDivisionError), searched_afterwards():
        1 / 0  # noqa: B018 -- it is to fail
    assert gc.isenabled()


def test_search_that_is_off_stays_off() -> None:
    """The caller that disabled the collector has a reason."""
    gc.disable()
    try:
        with searched_afterwards():
            part = weakref.ref(_Part())
        assert not gc.isenabled()
        assert part() is not None
    finally:
        gc.enable()
