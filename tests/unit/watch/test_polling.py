"""The group is read again and again; snapshots and errors are shown."""

from __future__ import annotations

import pytest
from attrs import define

from coopgroup.watch.polling import ViewPolling
from coopgroup.watch.values import GroupView
from tests.support.by_hand import by_hand
from tests.unit.watch.views import view


@define
class Reader:
    """Fails at the second look."""

    looks: int = 0

    def read(self) -> GroupView:
        self.looks += 1
        if self.looks == 2:
            raise OSError("no broker")
        return view(self.looks)


def test_error_of_one_look_ends_nothing() -> None:
    shown: list[GroupView | Exception] = []
    with by_hand() as hand:
        ViewPolling(Reader(), 1.0, shown.append).start()
        hand.advance(2.5)
    assert len(shown) == 3
    assert isinstance(shown[1], OSError)
    assert isinstance(shown[2], GroupView)
    assert shown[2].partitions[0].trend_per_s == 0.0


def test_stopped_polling_shows_nothing_more() -> None:
    with by_hand() as hand:
        polling = ViewPolling(Reader(), 1.0, lambda _: polling.stop())
        polling.start()
        hand.advance(9.0)
        assert polling.reader.looks == 1  # type: ignore[attr-defined]
        unread = ViewPolling(Reader(), 1.0, lambda _: pytest.fail("shown after the stop"))
        unread.start()
        unread.stop()
        hand.advance(9.0)
