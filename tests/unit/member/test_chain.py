"""A chain is a tuple that grows at a constant cost."""

from typing import Any

import pytest

from coopgroup.member.chain import WIDTH, Chain

SIZES = (0, 1, WIDTH - 1, WIDTH, WIDTH + 1, WIDTH**2 - 1, WIDTH**2, WIDTH**2 + WIDTH + 1)


def grown(size: int) -> Chain[int]:
    """Return a chain that grew item by item."""
    chain: Chain[int] = Chain()
    for item in range(size):
        chain = chain.append(item)
    return chain


def copied(before: Chain[Any], after: Chain[Any]) -> int:
    """Return how many tuple entries were written between two chains."""
    old = {id(level) for level in before.levels}
    fresh = [level for level in after.levels if id(level) not in old]
    return len(after.levels) + sum(max(1, len(level)) for level in fresh)


@pytest.mark.parametrize("size", SIZES)
def test_chain_holds_its_items_in_order(size: int) -> None:
    assert tuple(grown(size)) == tuple(range(size))
    assert grown(size) == Chain.of(range(size))
    assert hash(grown(size)) == hash(Chain.of(range(size)))
    assert bool(grown(size)) == bool(size)


def test_chain_of_100_000_items_grows_at_a_constant_cost() -> None:
    chain: Chain[int] = Chain()
    places = 0
    for item in range(100_000):
        before, chain = chain, chain.append(item)
        places += copied(before, chain)
    assert places < 100_000 * (WIDTH + 5)
    assert tuple(chain) == tuple(range(100_000))
