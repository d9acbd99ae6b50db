"""A thread reads, and shows snapshots and errors."""

from __future__ import annotations

from coopgroup.watch.polling import ViewPolling
from coopgroup.watch.values import GroupView
from tests.support.waiting import wait_for
from tests.unit.watch.views import view


class Reader:
    """Fails at the second look."""

    def __init__(self) -> None:
        self.looks = 0

    def read(self) -> GroupView:
        self.looks += 1
        if self.looks == 2:
            raise OSError("no broker")
        return view(self.looks)


def test_error_of_one_look_ends_nothing() -> None:
    shown: list[GroupView | Exception] = []
    polling = ViewPolling(Reader(), 0.01, shown.append)
    polling.start()
    wait_for(lambda: len(shown) >= 3)
    polling.stop()
    assert isinstance(shown[1], OSError)
    assert isinstance(shown[2], GroupView)
    assert shown[2].partitions[0].trend_per_s == 0.0


def test_stopped_polling_shows_nothing_more() -> None:
    shown: list[GroupView | Exception] = []
    reader = Reader()
    polling = ViewPolling(reader, 0.01, shown.append)
    polling.stop()
    polling.start()
    wait_for(lambda: polling._thread is not None and not polling._thread.is_alive())  # noqa: SLF001
    assert (shown, reader.looks) == ([], 0)
