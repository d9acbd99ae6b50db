"""What must hold of a whole group at any instant, and when it has come to rest."""

from coopgroup.member import MemberState
from coopgroup.model.resource_set import Resource
from tests.support.group_coordinator import GroupState
from tests.support.group_harness import GroupHarness, Process

HEALED_WITHIN_MS = 9_000
"""A session, two rebalance time-outs of a member that nobody waits for, and some."""
QUIET_MS = 1_000


def check_instant(harness: GroupHarness) -> None:
    """All that must hold after every single event."""
    check_one_owner(harness)
    check_commits_ascend(harness)
    check_retained_untouched(harness)


def check_one_owner(harness: GroupHarness) -> None:
    """No two processes may hand out records of one resource at the same instant."""
    owner: dict[Resource, Process] = {}
    for process in harness.processes:
        for resource in process.hands_out(harness.now_ms):
            other = owner.setdefault(resource, process)
            assert other is process, _story(
                harness, f"{resource} is with {other.name} and {process.name}"
            )


def check_commits_ascend(harness: GroupHarness) -> None:
    """Offsets that the coordinator accepted never go back."""
    backward = harness.coordinator.backward
    assert not backward, _story(harness, f"accepted, though it goes back: {backward}")


def check_retained_untouched(harness: GroupHarness) -> None:
    """Nobody was told to stop what it rightfully owned and should go on to own."""
    for process in harness.processes:
        for generation, revoked in process.revoked:
            leader_id = harness.coordinator.led_by.get(generation, "")
            keeps = harness.keeps.get((generation, leader_id), {})
            kept = keeps.get(process.session.member.member_id)
            assert kept is None or not revoked & kept, _story(
                harness, f"{process.name} had to stop {revoked & kept} in {generation}"
            )


def check_at_rest(harness: GroupHarness) -> None:
    """All that is subscribed has one owner that works on it, and everybody is stable."""
    alive = [p for p in harness.alive if p.session.member.state is not MemberState.UNSUBSCRIBED]
    states = {p.name: p.session.member.state for p in alive}
    assert set(states.values()) <= {MemberState.STABLE}, _story(harness, str(states))
    subscribed = {name for process in alive for name in process.session.member.topics}
    expected = {
        Resource(name, index)
        for name, size in harness.topics.items()
        for index in range(size)
        if name in subscribed
    }
    held = sorted(r for process in alive for r in process.hands_out(harness.now_ms))
    assert held == sorted(expected), _story(harness, f"held: {held}")
    for process in alive:
        assert set(process.session.member.owned) == process.working, _story(
            harness, f"{process.name} works on something else than it owns"
        )
    if alive:
        assert harness.coordinator.state is GroupState.STABLE


def check_heals(harness: GroupHarness) -> None:
    """Without further faults the group comes to rest, and stays there."""
    harness.heal()
    harness.run(HEALED_WITHIN_MS)
    check_at_rest(harness)
    generation = harness.coordinator.generation
    harness.run(QUIET_MS)
    assert harness.coordinator.generation == generation, _story(harness, "goes on and on")
    check_at_rest(harness)


def _story(harness: GroupHarness, what: str) -> str:
    tail = "\n".join(harness.log[-60:])
    return f"SEED={harness.seed} at {harness.now_ms}: {what}\n{tail}"
