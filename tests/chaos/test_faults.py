"""Plans of faults: reproducible by seed, overlapping, and of all kinds."""

from tests.chaos.faults import KINDS, draw, draw_group
from tests.chaos.stage import Stage
from tests.support.coordinators import java_hash


def test_plan_is_the_same_for_the_same_seed() -> None:
    assert draw(7, 60, network=True) == draw(7, 60, network=True)
    assert draw(7, 60, network=True) != draw(8, 60, network=True)


def test_plans_without_a_network_leave_only_its_faults_out() -> None:
    """Faults of members and brokers need no root."""
    with_network = {one.kind for seed in range(40) for one in draw(seed, 60, network=True)}
    without = {one.kind for seed in range(40) for one in draw(seed, 60, network=False)}
    assert with_network == set(KINDS)
    assert without == {name for name, kind in KINDS.items() if kind.on != "link"}


def test_faults_overlap() -> None:
    """Most faults begin during another fault."""
    overlapping = total = 0
    for seed in range(20):
        end_s = 0.0
        for fault in draw(seed, 60, network=True):
            overlapping += fault.at_s < end_s
            total += 1
            end_s = max(end_s, fault.at_s + fault.seconds)
    assert total > 20 * 40
    assert overlapping > total * 0.7


def test_six_seeds_in_a_row_meet_every_policy_with_every_assignor() -> None:
    """Every group has members of each identity."""
    groups = [draw_group(seed) for seed in range(100, 106)]
    assert len({(one.policy["name"], one.assignor["name"]) for one in groups}) == 6
    assert {tuple(sorted(one.identities)) for one in groups} == {
        ("kept", "kept", "none", "none", "static", "static")
    }


def test_every_kind_of_target_has_an_action() -> None:
    """A kind without an action would never count."""
    assert all(hasattr(Stage, f"_on_{kind.on}") for kind in KINDS.values())


def test_hash_of_a_group_is_that_of_java() -> None:
    """The values are from Java's `String.hashCode`."""
    assert [java_hash(text) for text in ("", "a", "hello", "polygenelubricants")] == [
        0,
        97,
        99162322,
        -(1 << 31),
    ]


def test_group_whose_broker_assigns_has_no_leader_to_hit() -> None:
    """It has the same members, and neither policy nor assignor."""
    kinds = {
        one.kind for seed in range(40) for one in draw(seed, 60, network=True, protocol="consumer")
    }
    assert set(KINDS) - kinds == {"kill group leader", "freeze group leader", "hand over member"}
    group = draw_group(7, "consumer")
    assert not group.policy
    assert not group.assignor
    assert group.identities == draw_group(7).identities
