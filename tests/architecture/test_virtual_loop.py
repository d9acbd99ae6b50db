"""The loop in virtual time, on which unit tests of asyncio rest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from functools import partial

import pytest

from coopgroup.worker import Worker
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import block, run_virtual, time_passes


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


def test_turns_run_only_while_all_tasks_wait(hand: Hand) -> None:
    order: list[str] = []
    pauses = [0.0, 2.0, 0.0, math.inf, math.inf]

    def turn() -> float:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        order.append(f"turn at {hand.now_s - began_s:g}")
        return pauses.pop(0)

    async def main() -> None:
        for _ in range(3):
            await time_passes(0)
            order.append("task")
        await time_passes(5)

    began_s = hand.now_s
    run_virtual(hand, main(), turn)
    assert order == ["task"] * 3 + ["turn at 0"] * 2 + ["turn at 2"] * 2
    assert hand.now_s == began_s + 5


def test_loop_and_other_jobs_go_on_while_a_job_is_blocked(hand: Hand) -> None:
    order: list[str] = []
    done: list[bool] = []

    def blocked(limit_s: float, name: str) -> None:
        block(hand, lambda: done, limit_s)
        order.append(f"{name} at {hand.now_s - began_s:g}")

    async def main() -> None:
        Worker("a").submit(partial(blocked, 100.0, "until it holds"))
        Worker("b").submit(partial(blocked, 3.0, "until time is over"))
        await time_passes(5)
        order.append("task")
        done.append(True)
        await time_passes(1)

    began_s = hand.now_s
    run_virtual(hand, main())
    assert order == ["until time is over at 3", "task", "until it holds at 5"]
    done.clear()
    blocked(10.0, "without a loop")
    assert order[-1] == "without a loop at 16"


def test_tasks_that_wait_for_ever_fail(hand: Hand) -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(AssertionError, match="all tasks wait, and no job or timer will wake one"):
        run_virtual(hand, hang())
    with pytest.raises(AssertionError, match="do not end in the virtual time limit"):
        run_virtual(hand, time_passes(61), limit_s=60)
