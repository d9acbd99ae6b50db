"""The end of a run: all faults end, the group comes to rest, and every rule is checked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from coopgroup.assignors import PlacementAssignor
from coopgroup.core.member.events import RejoinRequested, Woken
from coopgroup.core.model import ResourceSet
from coopgroup.core.policies.memory import PairKind
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.session.own_rounds import policy_deadline_ms
from coopgroup.simulator.checkers import Expectations, check_run
from coopgroup.simulator.checkers.commits import lowered
from coopgroup.simulator.checkers.rest import without_room
from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup
from coopgroup.simulator.scenario import Span
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import (
    AssignmentReceived,
    MembershipLost,
    ProcessEnded,
    ResourcesStarted,
    ResourcesStopped,
)
from tests.support.memory import resources_in
from tests.swarm.checkers.bundles import of_bundles
from tests.swarm.checkers.policy import Promises, check_policy
from tests.swarm.checkers.warmups import WarmSets
from tests.swarm.consumers import of_conversions
from tests.swarm.ports import TrueSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from coopgroup.core.model import Resource
    from coopgroup.core.policies.warmth import Warmup
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.telemetry import Envelope, Record
    from tests.swarm.mixed import Guests
    from tests.swarm.witness import Witness

HEALED_WITHIN_MS: Final = 9_000
"""Two sessions and two rebalance time-outs of a member that nobody waits for, and some."""
QUIET_MS: Final = 700
"""Time without a round after which a group rests: more than a session and a heartbeat interval."""
_WARMUPS_MAX: Final = 18  # moves of all partitions, and then their standbys
_QUICK_RESTORE_MS: Final = 10
_WARM_ROUND_MS: Final = 250  # a heartbeat interval and the round after it
_LOOK_MS: Final = 100
RECORDS_MAX: Final = 10_000
"""Only a group in an endless loop writes more; this is ten times as much as any other group."""
_EAGER: Final = frozenset({"range", "roundrobin", "sticky"})


def settle(
    simulation: Simulation,
    *,
    plain: bool = True,
    with_hand_overs: bool = False,
    away: Collection[str] = (),
    quiet_ms: int = QUIET_MS,
    with_rounds: bool = True,
) -> tuple[Violation, ...]:
    """End all faults, let the group come to rest, and return the violations of the whole run.

    Production stops, too. Changing lags could change the target of a lag-aware assignor, and the
    group would never rest.

    Args:
        simulation: the group.
        plain: whether all members had the same subscription all the time, and claimed their owned
            partitions. If not, no record distinguishes moves from other revocations.
        with_hand_overs: whether a member handed over. If all its next owners are warm, everything
            moves at once, whatever the ration.
        away: processes that will return by themselves; a group does not rest without them.
        quiet_ms: time without a round after which the group rests, if every record is committed.
        with_rounds: whether leaders decide all assignments, so that their records explain them.
    """
    policy = simulation.run_settings.policy
    _calm(simulation)
    calm_from_ms = simulation.world.now_ms
    delay_ms = getattr(policy, "scheduled_rebalance_timeout_ms", None)
    ration = getattr(policy, "ration", None)
    warmup = warmup_of(policy)
    is_rationed = plain and not with_hand_overs
    _let_rest(simulation, calm_from_ms + _patience_ms(simulation), away, quiet_ms)
    end_ms = simulation.world.now_ms
    topics = {topic for process in simulation.alive for topic in process.topics}
    expected = Expectations(
        owned=simulation.brokers.existing().restrict_names(topics),
        quiet_from_ms=end_ms - quiet_ms + 1,
        end_ms=end_ms,
        slack_ms=HEALED_WITHIN_MS,
        stop_max_ms=simulation.config.rebalance_timeout_ms,
        with_rounds=with_rounds,
    )
    promises = Promises(
        calm_from_ms=calm_from_ms,
        end_ms=end_ms,
        slack_ms=HEALED_WITHIN_MS,
        delay_ms=delay_ms,
        with_losses=plain,
        max_moves_per_round=ration.moves_max if ration and is_rationed else None,
        move_interval_ms=ration.interval_ms if ration else 0,
        warmup=warmup,
        with_hand_overs=with_hand_overs,
        # A planned receiver may hand over before it has the resource.
        with_planned_moves=plain and not with_hand_overs,
    )
    unplaced = without_room(simulation.world.telemetry)
    found = [*simulation.world.violations, *_check_committed(simulation, expected, unplaced)]
    found += _check_even(simulation, end_ms)
    if warmup is not None and plain and not with_hand_overs:
        found += _check_standbys(simulation, warmup, end_ms)
    found += check_run(simulation.world.telemetry, expected)
    if with_rounds:
        found += check_policy(simulation.world.telemetry, promises)
    return tuple(sorted(found, key=lambda one: one.at_ms))


def _patience_ms(simulation: Simulation) -> int:
    """Return the longest time from the last fault until the group rests."""
    policy = simulation.run_settings.policy
    ration, warmup = getattr(policy, "ration", None), warmup_of(policy)
    patience_ms = HEALED_WITHIN_MS + 2 * getattr(policy, "scheduled_rebalance_timeout_ms", 0)
    patience_ms += getattr(policy, "initial_delay_ms", 0)
    patience_ms += 10 * ration.interval_ms if ration else 0
    if isinstance(simulation, TrueSimulation):
        # A callback that hangs when the faults end holds up the next one of its partitions.
        patience_ms += simulation.hang_ms_max
    if warmup is not None:
        # Warm-ups that hang end with their time-out; all others may come one after the other.
        pace_ms = simulation.costs.costs[0].restore_ms.high + 2 * _WARM_ROUND_MS
        patience_ms += 2 * warmup.timeout_ms + _WARMUPS_MAX * pace_ms
    return patience_ms


def settle_beside(witness: Witness, guests: Guests, away: Collection[str]) -> tuple[Violation, ...]:
    """Let honest members get their share beside hostile members, and do as `settle` without them.

    Each partition of their floor (see `witness`) is owned for a while, in all. A hostile member may
    begin rounds at any time and change its subscription in each, so its share moves for ever.
    Then the hostile processes end.
    """
    simulation = witness.simulation
    world = simulation.world
    _calm(simulation)
    end_ms, since_ms = world.now_ms + _patience_ms(simulation), world.now_ms
    owned_ms: Counter[Resource] = Counter()
    while True:
        floor = witness.wanted
        short = ResourceSet.from_pairs(one for one in floor if owned_ms[one] < QUIET_MS)
        if world.now_ms >= end_ms or not (short or world.now_ms - since_ms < QUIET_MS):
            break
        simulation.run(_LOOK_MS)
        if away:
            since_ms = world.now_ms
            owned_ms.clear()
        else:
            owned_ms.update(dict.fromkeys(witness.wanted - witness.lacking, _LOOK_MS))
    if short or away:
        world.object_to("floor", f"honest members lack {short.to_dict()}")
    for number, process in enumerate(guests.alive):
        (process.crash if number + world.seed & 1 else process.close)()
    found = witness.fair_view(settle(simulation, plain=False, away=away))
    return tuple(sorted(found, key=lambda one: one.at_ms))


def _calm(simulation: Simulation) -> None:
    """End all faults and stop production.

    After several refused rounds a leader waits for up to 30 s until it tries again, which would
    only prolong the run. It tries immediately instead. So does the next process of a leader that
    ended meanwhile.
    """
    simulation.run_settings.lead_ms = Span(1, 10)
    simulation.heal()
    for process in simulation.alive:
        if process.session.refusals:
            process.session = attrs.evolve(process.session, refusals=0, retry_at_ms=0)
            process.give(Woken())
        if process.session.owed is not None:
            owed = attrs.evolve(process.session.owed, at_ms=0)
            process.session = attrs.evolve(process.session, owed=owed)
            process.give(Woken())
    for name, past in simulation.kept.items():
        if past.next_round_in_ms is not None:
            simulation.kept[name] = attrs.evolve(past, next_round_in_ms=0)
    for name, count in simulation.brokers.topics.items():
        simulation.set_rate(name, tuple(range(count)), 0)


def settle_with_guests(
    guests: Guests, away: Collection[str], *, plain: bool
) -> tuple[Violation, ...]:
    """Do the same as `settle` for a group with members of other clients."""
    simulation = guests.simulation
    _calm(simulation)

    def until_rest(is_at_rest: Callable[[], bool]) -> bool:
        end_ms = simulation.world.now_ms + HEALED_WITHIN_MS
        changes_ms = end_ms - HEALED_WITHIN_MS // 2
        since_ms: int | None = None
        while simulation.world.now_ms < end_ms:
            if simulation.world.now_ms >= changes_ms:
                changes_ms = end_ms
                _see_partitions_change(simulation)
            simulation.run(_LOOK_MS)
            if away or not is_at_rest():
                since_ms = None
            elif since_ms is None:
                since_ms = simulation.world.now_ms
            elif simulation.world.now_ms - since_ms >= QUIET_MS:
                return True
        return False

    return guests.settle(until_rest, plain=plain)


def _see_partitions_change(simulation: Simulation) -> None:
    """Let a static leader that returned to an eager group see changed partitions.

    It does not know which partitions its earlier process saw, and a round would stop every member,
    so it starts none. A partition that was created meanwhile has no owner until the next change.
    The Java client behaves in the same way (KIP-814), so no run expects more (docs/migration.md).
    """
    for process in simulation.alive:
        protocol = process.session.member.round.protocol
        is_static = process.config.instance_id is not None
        if is_static and process.session.leads_as is not None and protocol in _EAGER:
            process.give(RejoinRequested(reason="partitions changed"))


def _let_rest(simulation: Simulation, until_ms: int, away: Collection[str], quiet_ms: int) -> None:
    """Let time pass until all processes are back and the group rests, or until `until_ms`."""
    world, since_ms = simulation.world, simulation.world.now_ms
    look_ms = min(_LOOK_MS, quiet_ms // 4)
    while world.now_ms < until_ms:
        simulation.run(look_ms)
        if len(world.telemetry) > RECORDS_MAX:
            world.object_to("rest", "the group goes round and round")
            return
        if not away and simulation.is_at_rest() and not _warm_up_ends(simulation):
            rounds = (e.at_ms for e in reversed(world.telemetry) if _is_of_a_round(e.record))
            last_ms = max(next(rounds, 0), since_ms)
            is_slow = isinstance(simulation, TrueSimulation)
            if is_slow or simulation.costs.costs[0].restore_ms.high > _QUICK_RESTORE_MS:
                # The next commit, or the broker's grant to the next owner, comes a while later.
                work = (e.at_ms for e in reversed(world.telemetry) if _is_of_work(e.record))
                last_ms = max(last_ms, next(work, 0))
            is_quiet = world.now_ms - last_ms >= quiet_ms
            # A commit on a connection that was given up is sent again only after its bound.
            if is_quiet and not _awaits_commits(simulation):
                return


def _warm_up_ends(simulation: Simulation) -> bool:
    """Return whether a leader waits for the time-out of a warm-up, which causes a round."""
    if warmup_of(simulation.run_settings.policy) is None:
        return False
    return any(policy_deadline_ms(process.session) is not None for process in simulation.alive)


def _awaits_commits(simulation: Simulation) -> bool:
    return any(process.session.member.commits.queue for process in simulation.alive)


def _is_of_work(record: Record) -> bool:
    return isinstance(record, ResourcesStarted | ResourcesStopped)


def _is_of_a_round(record: Record) -> bool:
    return isinstance(record, AssignmentReceived | MembershipLost | ProcessEnded)


def _check_committed(
    simulation: Simulation, expected: Expectations, unplaced: ResourceSet
) -> list[Violation]:
    """Report records without a commit; after so much time all must be committed.

    Nobody reads the resources that are without room. A late commit that is the last one of all may
    leave an offset that is too low.
    """
    read = expected.owned - unplaced - lowered(simulation.world.telemetry)
    lags = simulation.load.lags(read, expected.end_ms)
    late = lags.resources.take(lags.values > 0)
    if not late:
        return []
    message = f"not committed at the end: {late.to_dict()}"
    return [Violation(checker="commits", at_ms=expected.end_ms, message=message)]


def _check_even(simulation: Simulation, end_ms: int) -> list[Violation]:
    """Report an uneven assignment of a sticky assignor if all subscriptions are equal.

    The shares may differ by one. A member that returns with its identity keeps its share. A broker
    that converts a group for such a member keeps all assignments, although the group was in a round
    for a newcomer.
    """
    alive, group = simulation.alive, simulation.brokers.coordinator.group
    if isinstance(group, ConsumerGroup) and group.target_at_ms is None:
        return []
    sticky = simulation.run_settings.assignor.name in {"sticky", "cooperative-sticky"}
    if not sticky or any(p.topics != alive[0].topics for p in alive):
        return []
    warmup = warmup_of(simulation.run_settings.policy)
    together = () if warmup is None else warmup.co_partition
    label = {topic: topics[0] for topics in together for topic in topics}
    counts = {
        process.name: len({(label.get(name, name), i) for name, i in process.application.working})
        for process in alive
    }
    if not counts or max(counts.values()) - min(counts.values()) <= 1:
        return []
    return [Violation(checker="rest", at_ms=end_ms, message=f"uneven at the end: {counts}")]


def _check_standbys(simulation: Simulation, warmup: Warmup, end_ms: int) -> list[Violation]:
    """Report resources with fewer warm members than `standbys`, though there are enough members.

    A warm-up that failed or timed out is not tried again, so its resource is left out. A member
    that could not start a resource is no standby for it.
    """
    together = warmup.co_partition
    states = (process.session.policy_state for process in simulation.alive)
    refused = of_bundles(
        ResourceSet.union_all(
            [resources_in(one, PairKind.REFUSED) for one in states if one is not None]
        ),
        together,
    )
    sets = WarmSets()
    for envelope in simulation.world.telemetry:
        sets.take(envelope)
    alive = simulation.alive
    lacks = {}
    for owner in alive:
        for resource in owner.application.working:
            warm = [one.name for one in alive if resource in sets.of(one.name).warm]
            others = sum(_could_run(one, resource) for one in alive if one is not owner)
            tried = not of_bundles(ResourceSet.from_pairs([resource]), together) & refused
            if tried and len(warm) < min(warmup.standbys, others):
                lacks[resource] = warm
    if not lacks:
        return []
    return [Violation(checker="rest", at_ms=end_ms, message=f"too few standbys: {lacks}")]


def _could_run(process: Process, resource: Resource) -> bool:
    member, assignor = process.session.member, process.run_settings.assignor
    if resource.name not in process.topics or resource in member.next_join.declined:
        return False
    if not isinstance(assignor, PlacementAssignor):
        return True
    traits = cast("Any", process.config)  # all that these assignors ask for
    return assignor.places(traits) != 0 and assignor.fits(traits, cast("Any", resource))


def needless_losses(
    telemetry: Sequence[Envelope], disturbed: Collection[str]
) -> Iterator[Violation]:
    """Report expired leases of members that could always reach the group coordinator."""
    if "" in disturbed:
        return
    excused = of_conversions(telemetry)
    for one in telemetry:
        if (
            isinstance(one.record, MembershipLost)
            and one.record.cause == "lease expired"
            and one.client not in disturbed
            and (one.client, one.at_ms) not in excused
        ):
            message = f"{one.client} loses {one.record.resources.to_dict()} for nothing"
            yield Violation(checker="members", at_ms=one.at_ms, message=message)
