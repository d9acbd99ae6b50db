"""Groups under random faults, each from one seed: safe at any instant, at rest once healed.

Every seed first draws how badly things go (`tests.support.group_swarm`), then plays, then heals
everything and lets virtual time pass. A failure prints its seed and the story; to see it again:

    pytest tests/property/test_group_swarm.py -k "[17]"

`SWARM_SEEDS` and `SWARM_FIRST_SEED` in the environment choose others:

    SWARM_FIRST_SEED=1000 SWARM_SEEDS=2000 pytest -q tests/property/test_group_swarm.py
"""

import os

import pytest

from tests.support.group_swarm import Swarm, story

FIRST_SEED = int(os.environ.get("SWARM_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("SWARM_SEEDS", "300"))


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_group_when_faults_end_is_at_rest(seed: int) -> None:
    """Never two owners, whatever happens; all owned once, and quiet, soon after it ended."""
    violations = Swarm.from_seed(seed).play()
    assert violations == (), story(seed, violations)
