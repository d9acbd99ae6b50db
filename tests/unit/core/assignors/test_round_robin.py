"""`RoundRobinAssignor`: Kafka's documented examples."""

from coopgroup import RoundRobinAssignor
from coopgroup.core.model import GroupSnapshot
from tests.support.groups import by_member, claim, group_of, no_lags

Held = dict[str, dict[str, list[int]]]


def _assigned(group: GroupSnapshot) -> Held:
    return by_member(group, RoundRobinAssignor().assign(group, no_lags(group)))


def test_documented_example_when_subscriptions_are_equal_takes_turns() -> None:
    """RoundRobinAssignor's documentation: "C0: [t0p0, t0p2, t1p1], C1: [t0p1, t1p0, t1p2]"."""
    topics = ["t0", "t1"]
    group = group_of({"t0": range(3), "t1": range(3)}, *(claim(m, topics=topics) for m in "BA"))
    assert _assigned(group) == {"A": {"t0": [0, 2], "t1": [1]}, "B": {"t0": [1], "t1": [0, 2]}}


def test_documented_example_when_subscriptions_differ_passes_over_those_without() -> None:
    """The same page: "C0: [t0p0], C1: [t1p0], C2: [t1p1, t2p0, t2p1, t2p2]"."""
    group = group_of(
        {"t0": range(1), "t1": range(2), "t2": range(3)},
        claim("C0", topics=["t0"]),
        claim("C1", topics=["t0", "t1"]),
        claim("C2", topics=["t0", "t1", "t2"]),
    )
    assert _assigned(group) == {
        "C0": {"t0": [0]},
        "C1": {"t1": [0]},
        "C2": {"t1": [1], "t2": [0, 1, 2]},
    }


def test_static_members_when_there_are_any_come_first_by_instance_id() -> None:
    """The result of kafka-clients 4.3.0 for this group: i1 and i9 before the dynamic member."""
    group = group_of(
        {"t": range(3), "u": range(4)},
        claim("m1", topics=["t", "u"]),
        claim("m2", topics=["t", "u"], instance_id="i9"),
        claim("m3", topics=["t"], instance_id="i1"),
    )
    assert _assigned(group) == {
        "m1": {"t": [2], "u": [1, 3]},
        "m2": {"t": [1], "u": [0, 2]},
        "m3": {"t": [0]},
    }
