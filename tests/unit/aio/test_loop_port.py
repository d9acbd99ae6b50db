"""A blocking call beside the loop, and its result when nobody awaits it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coopgroup.aio.loop_port import LoopPort, aside
from tests.support.by_hand import Hand, by_hand
from tests.support.virtual_loop import run_virtual, time_passes

LOOK_UP = "coopgroup-aio-look-up"


@pytest.fixture
def hand() -> Iterator[Hand]:
    with by_hand() as made:
        yield made


def test_loop_goes_on_while_a_call_blocks(hand: Hand) -> None:
    async def main() -> None:
        call = asyncio.create_task(aside(LoopPort(), lambda: 7))
        await time_passes(0)
        assert (call.done(), len(hand.jobs(LOOK_UP))) == (False, 1)
        assert await call == 7

    run_virtual(hand, main())


def test_exception_of_a_call_is_raised(hand: Hand) -> None:
    def refuse() -> int:
        raise LookupError("refused")

    with pytest.raises(LookupError, match="refused"):
        run_virtual(hand, aside(LoopPort(), refuse))


@pytest.mark.parametrize("is_open", [True, False], ids=["open loop", "closed loop"])
@pytest.mark.parametrize("fails", [False, True])
def test_result_that_nobody_awaits_is_discarded(hand: Hand, *, is_open: bool, fails: bool) -> None:
    """A consumer whose start was cancelled is closed again."""
    discarded: list[int] = []

    def call() -> int:
        if fails:
            raise LookupError("refused")
        return 7

    async def main() -> None:
        waiting = asyncio.create_task(aside(LoopPort(), call, discarded.append))
        await time_passes(0)
        waiting.cancel()
        if is_open:
            await time_passes()

    run_virtual(hand, main())
    assert bool(hand.jobs(LOOK_UP)) != is_open
    hand.run()
    assert discarded == ([] if fails else [7])
