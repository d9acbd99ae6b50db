"""A round asks the policy once, and finds each fact of its group once."""

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group import GroupSnapshot
from coopgroup.core.model.resource_set import Int32Array
from coopgroup.core.policies.facts import claims_told, classify_unclaimed
from coopgroup.core.policies.memory import PairKind, recall
from coopgroup.core.policies.policy import Policy
from coopgroup.policies import (
    DeferredPolicy,
    IncrementalPolicy,
    Offer,
    RoundContext,
    SimplePolicy,
    StagedRound,
    Warmup,
)
from tests.support.memory import resources_in
from tests.support.warm_group import WarmGroup

BOTH = ("orders", "payments")
FACTS: list[Callable[..., object]] = [recall, claims_told, classify_unclaimed]
WARM = Warmup()
BUNDLED = Warmup(co_partition=[BOTH])


def calls(functions: list[Callable[..., object]], run: Callable[[], object]) -> dict[str, int]:
    """Run something, and return how often it called each function, whoever called it."""
    wanted: dict[CodeType, str] = {one.__code__: one.__name__ for one in functions}
    found = Counter(dict.fromkeys(wanted.values(), 0))

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in wanted:
            found[wanted[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return dict(found)


def each(count: int) -> dict[str, int]:
    return {one.__name__: count for one in FACTS}


def with_a_move_under_way(policy: Policy) -> WarmGroup:
    """Return a group that has been told to stop something, and knows of a loss and of warm-ups."""
    existing = ResourceSet(dict.fromkeys(BOTH, range(6)))
    group = WarmGroup(existing=existing, policy=policy)
    group.add("a", topics=BOTH).owned = existing
    group.round()
    group.add("b", topics=BOTH).warm = existing
    group.deaf = {"a"}  # it goes on claiming what it was told to stop
    group.round()
    group.add("c", topics=BOTH)
    assert group.state is not None
    assert resources_in(group.state, PairKind.TOLD)
    return group


@pytest.mark.parametrize("kind", [SimplePolicy, DeferredPolicy, IncrementalPolicy])
@pytest.mark.parametrize(("warmup", "groups"), [(None, 1), (WARM, 1), (BUNDLED, 2)])
def test_facts_of_a_group_are_found_once(
    kind: type[SimplePolicy | DeferredPolicy | IncrementalPolicy],
    warmup: Warmup | None,
    groups: int,
) -> None:
    group = with_a_move_under_way(kind(warmup=warmup))
    found = calls([*FACTS, kind.offer, kind.stage], group.round)
    assert found == each(groups) | {"offer": 1, "stage": 1}


class Failing(SimplePolicy):
    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        raise ValueError


def test_facts_of_a_refused_round_are_found_once() -> None:
    group = with_a_move_under_way(SimplePolicy(warmup=WARM))
    group.policy = Failing(warmup=WARM)
    assert calls(FACTS, lambda: group.decide().refused) == each(1)
