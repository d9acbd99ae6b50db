"""`RangeAssignor`: Kafka's documented examples, and the rack-aware results of its own class."""

import pytest

from coopgroup import RangeAssignor
from coopgroup.core.model import GroupSnapshot, ResourceSet, resolve_claims
from tests.support.groups import by_member, claim, group_of, no_lags

Racks = dict[str, list[str]]
Members = dict[str, tuple[str, str, str]]


def _assigned(group: GroupSnapshot) -> dict[str, str]:
    """Return each member's assignment in the documents' notation: "t0p0 t0p1"."""
    held = by_member(group, RangeAssignor().assign(group, no_lags(group)))
    return {
        member: " ".join(f"{name}p{index}" for name, some in mine.items() for index in some)
        for member, mine in held.items()
    }


def _racked(racks: Racks, members: Members) -> GroupSnapshot:
    """Return a group of members, each with instance id, rack and topics ("" for none).

    A partition's replicas are in the racks whose letters its entry has.
    """
    claims = [
        claim(member, topics=topics.split(), instance_id=instance or None, rack=rack or None)
        for member, (instance, rack, topics) in members.items()
    ]
    existing = ResourceSet({name: range(len(each)) for name, each in racks.items()})
    letters = {name: dict(enumerate(map(list, each))) for name, each in racks.items()}
    return resolve_claims(claims, existing, letters)


def test_documented_example_when_assigned_gives_the_documented_result() -> None:
    """RangeAssignor's documentation: "C0: [t0p0, t0p1, t1p0, t1p1], C1: [t0p2, t1p2]"."""
    topics = ["t0", "t1"]
    group = group_of({"t0": range(3), "t1": range(3)}, *(claim(m, topics=topics) for m in "BA"))
    assert _assigned(group) == {"A": "t0p0 t0p1 t1p0 t1p1", "B": "t0p2 t1p2"}


def test_documented_example_when_members_restart_stays_with_instance_ids() -> None:
    """A bounce changes member ids and their order. Static members keep their partitions."""
    racks = {"t0": [""] * 3, "t1": [""] * 3}
    before = {"C0": ("I0", "", "t0 t1"), "C1": ("I1", "", "t0 t1")}
    after = {"C3": ("I0", "", "t0 t1"), "C2": ("I1", "", "t0 t1")}
    first, second = "t0p0 t0p1 t1p0 t1p1", "t0p2 t1p2"
    assert _assigned(_racked(racks, before)) == {"C0": first, "C1": second}
    assert _assigned(_racked(racks, after)) == {"C2": second, "C3": first}


# Results of org.apache.kafka.clients.consumer.RangeAssignor of kafka-clients 4.3.0.
# fmt: off
OF_KAFKA: list[tuple[str, Racks, Members, dict[str, str]]] = [
    (
        "one topic in three racks",
        {"t": ["a", "b", "c", "a", "b", "c"]},
        {"m1": ("", "a", "t"), "m2": ("", "b", "t"), "m3": ("", "c", "t")},
        {"m1": "tp0 tp3", "m2": "tp1 tp4", "m3": "tp2 tp5"},
    ),
    (
        "racks that counts do not allow",
        {"t": ["a", "a", "a", "a", "b", "ab", ""]},
        {"m1": ("", "a", "t"), "m2": ("", "b", "t"), "m3": ("", "z", "t")},
        {"m1": "tp0 tp1 tp2", "m2": "tp4 tp5", "m3": "tp3 tp6"},
    ),
    (
        "topics cut alike, in the same racks",
        {"t": ["a", "b", "c", "a", "b", "c"], "u": ["a", "b", "c", "a", "b", "c"]},
        {"m1": ("", "c", "t u"), "m2": ("", "b", "t u"), "m3": ("", "a", "t u")},
        {"m1": "tp2 tp5 up2 up5", "m2": "tp1 tp4 up1 up4", "m3": "tp0 tp3 up0 up3"},
    ),
    (
        "topics cut alike, in different racks",
        {"t": ["ab", "b", "ca", "a", "b"], "u": ["b", "ab", "c", "a", "ca"]},
        {"m1": ("", "c", "t u"), "m2": ("", "b", "t u"), "m3": ("", "", "t u")},
        {"m1": "tp2 up2", "m2": "tp0 tp1 up0 up1", "m3": "tp3 tp4 up3 up4"},
    ),
    (
        "static members first, one member without a rack",
        {"t": ["ab", "c", "a", "b", "c", "a", "ab"]},
        {"m1": ("", "c", "t"), "m2": ("i9", "b", "t"), "m3": ("i1", "a", "t"), "m4": ("", "", "t")},
        {"m1": "tp1 tp4", "m2": "tp3 tp6", "m3": "tp0 tp2", "m4": "tp5"},
    ),
    (
        "different subscriptions",
        {"t": ["a", "b", "c", "a"], "u": ["b", "b", "a", "c"], "v": ["c", "a"]},
        {"m1": ("i1", "a", "t u"), "m2": ("", "b", "t u v"), "m3": ("", "c", "v"),
         "m4": ("", "a", "t u")},
        {"m1": "tp0 tp2 up0 up2", "m2": "tp1 up1 vp1", "m3": "vp0", "m4": "tp3 up3"},
    ),
    (
        "one topic with replicas everywhere, one without",
        {"t": ["ab", "ab", "ab", "ab"], "u": ["a", "b", "a", "b", "a"]},
        {"m1": ("", "b", "t u"), "m2": ("", "a", "t u")},
        {"m1": "tp0 tp1 up1 up3", "m2": "tp2 tp3 up0 up2 up4"},
    ),
]
# fmt: on


@pytest.mark.parametrize(
    ("racks", "members", "expected"),
    [case[1:] for case in OF_KAFKA],
    ids=[case[0] for case in OF_KAFKA],
)
def test_racks_when_known_give_what_kafka_gives(
    racks: Racks, members: Members, expected: dict[str, str]
) -> None:
    """KIP-881: members in a replica's rack first, as far as counts and joint topics allow."""
    assert _assigned(_racked(racks, members)) == expected
