"""Honest members beside a hostile one in the swarm: what they keep, and that the checks see it."""

import pytest

from coopgroup.core.leader.belief import _LastRound
from coopgroup.simulator.scenario import Identity
from tests.swarm.hostile import HOSTILE
from tests.swarm.play import play
from tests.swarm.runs import Act, ActKind, SwarmRun


def _run(lies: str) -> SwarmRun:
    first = Act(kind=ActKind.START, process="p1", topics=("T",))
    second = Act(kind=ActKind.START, process="p2", topics=("T",), identity=Identity.STATIC)
    topic = Act(kind=ActKind.RESIZE, topics=("T",), number=6)
    lies = f"claims=all data=none form=plain version=3 {lies}"
    third = Act(kind=ActKind.START, process="h1", after_ms=1_500, client="other", lies=lies)
    return SwarmRun(seed=1, acts=(topic, first, second, third), theirs=HOSTILE, healed_after_ms=300)


@pytest.mark.parametrize("generation", ["newest", "next", "last", "old", "none", "negative"])
@pytest.mark.parametrize("topics", ["none", "all"])
def test_members_beside_false_claims_keep_their_partitions(generation: str, topics: str) -> None:
    assert play(_run(f"topics={topics} generation={generation}")).violations == ()


@pytest.mark.parametrize("generation", ["newest", "next", "last"])
def test_leader_that_believes_all_claims_is_found(
    generation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that never fails would prove nothing."""
    monkeypatch.setattr(_LastRound, "believed", lambda _, claim: (claim.owned, ""))
    monkeypatch.setattr(_LastRound, "has_been", lambda *_: True)
    found = {one.checker for one in play(_run(f"topics=all generation={generation}")).violations}
    assert "floor" in found
