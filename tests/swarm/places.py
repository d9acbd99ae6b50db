"""The swarm with places, tags and declines: all work fits its process, and nothing is left out.

    run = draw_placed(seed)     # or draw_declining(seed)
    played = play(run)          # of the module `play`, as any other run

In a declining run, applications also refuse to start some resources, for a time or until their end.
The leader then gives the resources to others.

The acts are those of a plain run, or of a run with warm-ups, without false claims: a leader cannot
know what a member runs that hides its claims. The traits of a process follow from the seed and its
name, so a process that returns has the same.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import attrs

from coopgroup.assignors import PlacementAssignor, StickyAssignor
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import RoundDecided, read_ledger
from tests.swarm.runs import TOPICS, Act, ActKind, draw
from tests.swarm.warm import draw_warm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.assignors import GroupMember, ResourceToPlace
    from coopgroup.core.model import Resource
    from coopgroup.core.model.traits import Traits
    from coopgroup.simulator.scenario import Choice
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.telemetry import Envelope
    from tests.swarm.runs import SwarmRun

_APART: Final = 2_000_000  # acts that no other run of a soak has
_FURTHER_APART: Final = 3_000_000
_FALSE: Final = {ActKind.FORGE, ActKind.GARBLE}
_DECLINES: Final = 0.3  # share of the acts that a decline follows
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


class UnevenSticky(StickyAssignor):
    """It has another name, because declined resources make counts uneven."""

    name = "uneven-sticky"


def _fits(traits: Traits, index: int) -> bool:
    return index % 3 == 0 or "xy"[index % 2] in traits["tags"]


def draw_placed(seed: int) -> SwarmRun:
    """Draw a run whose processes have places and tags."""
    chance = random.Random(f"swarm/{seed}/placed")
    run = chance.choice((draw, draw_warm))(seed + _APART)
    assignor = chance.choice((Places, LastingPlaces))
    return attrs.evolve(
        run,
        seed=seed,
        policy=without_bundles(run.policy),
        assignor=f"{assignor.__module__}:{assignor.__name__}",
        acts=tuple(act for act in run.acts if act.kind not in _FALSE),
    )


def without_bundles(policy: Choice) -> Choice:
    """Return a policy without bundles, which cannot be left out."""
    if "warmup" not in policy.options:
        return policy
    warmup: dict[str, Any] = {**policy.options["warmup"]}  # type: ignore[dict-item]
    warmup.pop("co_partition", None)
    return attrs.evolve(policy, options={**policy.options, "warmup": warmup})


def draw_declining(seed: int) -> SwarmRun:
    """Draw a run whose processes decline resources."""
    chance = random.Random(f"swarm/{seed}/declining")
    run = draw(seed + _FURTHER_APART)
    acts: list[Act] = []
    for act in run.acts:
        if act.kind not in _FALSE:
            acts.append(act)
        if act.process and chance.random() < _DECLINES:
            declines = Act(
                after_ms=chance.choice((0, 20, 200)),
                kind=ActKind.DECLINE,
                process=act.process,
                topics=(chance.choice(TOPICS),),
                number=chance.choice((1, 2, 9)),
                for_ms=chance.choice((0, 0, 300, 2_000)),
            )
            acts.append(declines)
    assignor = chance.choice((Places, LastingPlaces, UnevenSticky, UnevenSticky))
    return attrs.evolve(
        run, seed=seed, assignor=f"{assignor.__module__}:{assignor.__name__}", acts=tuple(acts)
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
        if not _may_run(run, name, resource):
            yield Violation(checker="tags", at_ms=start_ms, message=f"{name} runs {resource}")
        changes[name] += [(start_ms, 1), (stop_ms, -1)]
    for name, steps in changes.items():
        places, running = _places_of(run, name), 0
        for at_ms, step in sorted(steps):  # a stop comes before a start of the same ms
            running += step
            if running > places:
                message = f"{name} runs {running}, and has {places} places"
                yield Violation(checker="places", at_ms=at_ms, message=message)
                break


def left_out(run: SwarmRun, simulation: Simulation) -> Iterator[Violation]:
    """Report at rest what a process runs and declines, and what no process runs and one could.

    A static member that returns without a round gets what is stored. No leader knows what it
    declines, or that an earlier life no longer does.
    """
    if not run.assignor.startswith(__name__):
        return
    world, existing = simulation.world, simulation.brokers.existing()
    works = {process: process.application.working for process in simulation.alive}
    free = existing - ResourceSet.union_all([EMPTY, *works.values()])
    rounds = (one.record for one in reversed(world.telemetry))
    heard = next((one.members for one in rounds if isinstance(one, RoundDecided)), ())
    for process, working in works.items():
        if process.session.member.member_id not in heard:
            continue
        declined = process.session.member.next_join.declined
        if refused := working & declined:
            message = f"{process.name} runs {refused.to_dict()}, and declines it"
            yield Violation(checker="declined", at_ms=world.now_ms, message=message)
        if len(working) >= _places_of(run, process.name) or not process.is_at_rest:
            continue
        wanted = free.restrict_names(process.topics) - declined
        for resource in (one for one in wanted if _may_run(run, process.name, one)):
            message = f"no process runs {resource}, and {process.name} could"
            yield Violation(checker="left out", at_ms=world.now_ms, message=message)


def _is_placed(run: SwarmRun) -> bool:
    return not run.assignor.endswith(UnevenSticky.__name__)


def _may_run(run: SwarmRun, process: str, resource: Resource) -> bool:
    return not _is_placed(run) or _fits(traits_of(run, process), resource.index)


def _places_of(run: SwarmRun, process: str) -> float:
    return traits_of(run, process)["places"] if _is_placed(run) else math.inf
