"""The swarm with places and tags: no process runs more than it has places for, or what it may not.

    run = draw_placed(seed)
    played = play(run)          # of the module `play`, as any other run

The acts are those of a plain run, or of a run with warm-ups, without false claims: a leader cannot
know what a member runs that hides its claims. The traits of a process follow from the seed and its
name, so a process that returns has the same.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import attrs

from coopgroup.assignors import PlacementAssignor
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import read_ledger
from tests.swarm.runs import ActKind, draw
from tests.swarm.warm import draw_warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.assignors import GroupMember, ResourceToPlace
    from coopgroup.core.model.traits import Traits
    from coopgroup.telemetry import Envelope
    from tests.swarm.runs import SwarmRun

_APART: Final = 2_000_000  # acts that no other run of a soak has
_FALSE: Final = {ActKind.FORGE, ActKind.GARBLE}
_TAGS: Final = ((), ("x",), ("y",), ("x", "y"), ("x", "y"))
_PLACES: Final = (0, 1, 2, 3, 6, 9)


class Places(PlacementAssignor):
    """Members have places and tags; every third resource runs anywhere."""

    name = "places"

    def fits(self, member: GroupMember, resource: ResourceToPlace) -> bool:
        """Return whether the member has the tag of the resource."""
        return _fits(member.traits, resource.index)

    def places(self, member: GroupMember) -> int:
        """Return the places that the member told."""
        return int(member.traits["places"])


class LastingPlaces(Places):
    """The same without moves that only even out."""

    name = "lasting-places"
    evens_out = False


def _fits(traits: Traits, index: int) -> bool:
    return index % 3 == 0 or "xy"[index % 2] in traits["tags"]


def draw_placed(seed: int) -> SwarmRun:
    """Draw a run whose processes have places and tags."""
    chance = random.Random(f"swarm/{seed}/placed")
    run = chance.choice((draw, draw_warm))(seed + _APART)
    policy = run.policy
    if "warmup" in policy.options:
        warmup: dict[str, Any] = {**policy.options["warmup"]}  # type: ignore[dict-item]
        warmup.pop("co_partition", None)  # bundles cannot be left out
        policy = attrs.evolve(policy, options={**policy.options, "warmup": warmup})
    assignor = chance.choice((Places, LastingPlaces))
    return attrs.evolve(
        run,
        seed=seed,
        policy=policy,
        assignor=f"{assignor.__module__}:{assignor.__name__}",
        acts=tuple(act for act in run.acts if act.kind not in _FALSE),
    )


def traits_of(run: SwarmRun, process: str) -> dict[str, Any]:
    """Return what a process tells about itself; nothing in runs without places."""
    if not run.assignor.startswith(__name__):
        return {}
    chance = random.Random(f"swarm/{run.seed}/traits/{process}")
    return {"places": chance.choice(_PLACES), "tags": list(chance.choice(_TAGS))}


def misplaced(run: SwarmRun, telemetry: Sequence[Envelope], end_ms: int) -> Iterator[Violation]:
    """Report work without a tag or a place, from starts and stops of work alone."""
    if not run.assignor.startswith(__name__):
        return
    ledger = read_ledger(telemetry, until_ms=end_ms)
    work, resources = ledger.work, list(ledger.resources)
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    columns = (work.resource, work.owner, work.start_ms, work.end_ms)
    for number, owner, start_ms, stop_ms in zip(*(one.tolist() for one in columns), strict=True):
        name, resource = ledger.clients[owner], resources[number]
        if not _fits(traits_of(run, name), resource.index):
            yield Violation(checker="tags", at_ms=start_ms, message=f"{name} runs {resource}")
        changes[name] += [(start_ms, 1), (stop_ms, -1)]
    for name, steps in changes.items():
        places, running = traits_of(run, name)["places"], 0
        for at_ms, step in sorted(steps):  # a stop comes before a start of the same ms
            running += step
            if running > places:
                message = f"{name} runs {running}, and has {places} places"
                yield Violation(checker="places", at_ms=at_ms, message=message)
                break
