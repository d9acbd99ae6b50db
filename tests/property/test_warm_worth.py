"""The worth of the swarm with warm-ups: it finds deliberate bugs of warm-ups."""

import pytest

from tests.support.mutants import Mutant, broken
from tests.support.warm_mutants import WARM_MUTANTS
from tests.swarm.play import play
from tests.swarm.warm import draw_warm


@pytest.mark.parametrize(
    ("seed", "mutant"), WARM_MUTANTS, ids=[one.name for _, one in WARM_MUTANTS]
)
def test_swarm_finds_the_bug(seed: int, mutant: Mutant) -> None:
    assert not play(draw_warm(seed)).violations
    with broken(mutant):
        assert play(draw_warm(seed)).violations
