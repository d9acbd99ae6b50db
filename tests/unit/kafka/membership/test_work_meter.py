"""The measured consumption rate, and the time that counts as work."""

import pytest
from attrs import define, field

from coopgroup.kafka.membership.work_meter import WorkMeter


@define
class Application:
    """An application on its own clock; librdkafka returns batches.

    Attributes:
        waiting: fetched records that were not handed out.
        rearranged: number of other changes to these records.
    """

    meter: WorkMeter = field(factory=WorkMeter)
    now_s: float = 100.0
    waiting: int = 0
    rearranged: int = 0

    def ask(self, wait_s: float, handed: int, waiting: int = 0) -> None:
        """Call for records for `wait_s`; `waiting` more records arrive with them."""
        self.meter.pause(self.now_s, self.waiting, self.rearranged)
        self.now_s += wait_s
        self.waiting = waiting
        self.meter.go_on(self.now_s, handed, waiting, self.rearranged)

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.waiting = 0


def test_rate_when_nothing_was_done_is_unknown() -> None:
    application = Application()
    for _ in range(50):
        application.ask(1.0, handed=0)
    application.ask(0.0, handed=1, waiting=9)
    application.work(0.1)
    application.ask(0.0, handed=1, waiting=9)
    assert application.meter.rate_per_s is None


@pytest.mark.parametrize(
    ("waits_s", "handed", "waiting", "works_s", "rate_per_s"),
    [(0.1, 1, 99, 2.0, 50.0), (0.5, 1, 0, 60.0, 1 / 60)],
    ids=["there is always more", "one record takes long"],
)
def test_rate_is_that_of_the_work(
    waits_s: float, handed: int, waiting: int, works_s: float, rate_per_s: float
) -> None:
    application = Application()
    for _ in range(5):
        application.ask(waits_s, handed, waiting)
        application.work(works_s)
    assert application.meter.rate_per_s == rate_per_s


def test_rate_when_the_member_mostly_waits_is_left_alone() -> None:
    """Quick work between two waits says nothing about the rate."""
    application = Application()
    for count, waits_s, handed, works_s in (
        (3, 0.0, 100, 2.0),
        (200, 5.0, 3, 0.001),
        (200, 5.0, 1, 4.0),
    ):
        for _ in range(count):
            application.ask(waits_s, handed)
            application.work(works_s)
    assert application.meter.rate_per_s == 50.0


def test_rate_when_the_application_is_called_back_for_the_group_leaves_that_time_out() -> None:
    application = Application()
    application.ask(0.0, handed=1, waiting=99)
    application.now_s += 1.0
    application.waiting = 50
    application.ask(10.0, handed=1, waiting=49)
    application.work(1.0)
    application.ask(0.0, handed=1)
    assert application.meter.rate_per_s == 50.0


def test_rate_when_partitions_are_paused_tells_nothing_of_that_stretch() -> None:
    application = Application()
    application.ask(0.0, handed=1, waiting=99)
    for waiting in (199, 9):
        application.work(1.0)
        application.rearranged += 1
        application.ask(0.0, handed=1, waiting=waiting)
    assert application.meter.rate_per_s is None
