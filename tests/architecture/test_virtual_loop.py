"""The loop in virtual time, on which unit tests of asyncio rest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coopgroup.worker import Worker
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import run_virtual, time_passes


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand() as made:
        yield made


def test_clock_jumps_to_the_next_timer_or_job(hand: Hand) -> None:
    began_s, seen = hand.now_s, list[float]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def tell() -> None:
            loop.call_soon_threadsafe(answer.set_result, hand.now_s)

        Worker("job").submit(tell, after_s=3)
        await time_passes(1)
        seen.append(loop.time())
        seen.append(await answer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(50):
                await time_passes(100)
        seen.append(loop.time())

    run_virtual(hand, main())
    assert [one - began_s for one in seen] == [1, 3, 53]


def test_tasks_that_wait_for_ever_fail(hand: Hand) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(AssertionError, match="all tasks wait, and no job or timer will wake one"):
        run_virtual(hand, hang())
    with pytest.raises(AssertionError, match="do not end in the virtual time limit"):
        run_virtual(hand, time_passes(61), limit_s=60)
