"""Several listeners of one member."""

import pytest

from coopgroup.metrics import Several
from coopgroup.telemetry import Envelope
from tests.unit.metrics.members import GivenProbe, told


def test_listener_that_raises_keeps_the_record_from_no_other() -> None:
    got: list[Envelope] = []

    def fail(_: Envelope) -> None:
        raise LookupError("first")

    with pytest.raises(LookupError, match="first"):
        Several(fail, got.append)(told())
    assert len(got) == 1


def test_members_are_watched_by_those_that_can() -> None:
    got: list[object] = []

    class Watcher:
        def __call__(self, _: Envelope) -> None:
            raise AssertionError

        def watch_member(self, probe: object) -> object:
            return lambda _: got.append(probe)

    probe = GivenProbe()
    Several(Watcher(), got.append).watch_member(probe)(told())
    assert got[0] is probe
    assert isinstance(got[1], Envelope)
