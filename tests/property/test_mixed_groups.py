"""Mixed groups in the simulator: no partition has two owners, and the group comes to rest.

The coordinator chooses one protocol among the lists, as Kafka does; members of other clients are
`ForeignProcess`, which shares no decision with ours. The runs are drawn as the swarm's
(`tests.swarm.mixed`); `make soak` plays more of them.
"""

import itertools

import pytest

from coopgroup.telemetry import AssigningMoved, AssignmentReceived, MembershipLost
from tests.swarm.mixed import Client
from tests.swarm.play import play
from tests.swarm.runs import Act, ActKind, SwarmRun


@pytest.mark.parametrize(
    ("theirs", "client", "spoken"),
    [
        ("cooperative-sticky", Client.OURS, ["coopgroup", "cooperative-sticky", "coopgroup"]),
        ("range", Client.OURS, ["coopgroup", "range", "coopgroup"]),
        ("range", Client.BACK, ["range"]),
    ],
)
def test_rounds_of_a_group_are_in_the_protocol_that_all_offer(
    theirs: str, client: Client, spoken: list[str]
) -> None:
    """Ours before another client joins, theirs while it is a member, and ours again afterwards."""
    acts = (
        Act(kind=ActKind.RESIZE, topics=("T",), number=4),
        Act(kind=ActKind.START, process="a", topics=("T",), client=client),
        Act(after_ms=300, kind=ActKind.START, process="f", topics=("T",), client=Client.OTHER),
    )
    played = play(SwarmRun(seed=1, theirs=theirs, acts=acts, healed_after_ms=300))
    assert played.violations == ()
    rounds = [
        one.record.protocol
        for one in played.telemetry
        if one.client == "a" and isinstance(one.record, AssignmentReceived)
    ]
    assert [protocol for protocol, _ in itertools.groupby(rounds)] == spoken


def test_members_of_kip_848_make_the_broker_assign_until_they_leave() -> None:
    """No member of ours loses anything, and no partition that stays is stopped."""
    topic, start = Act(kind=ActKind.RESIZE, topics=("T",), number=6), ActKind.START
    acts = (
        topic,
        *(Act(kind=start, process=name, topics=("T",)) for name in "ab"),
        Act(after_ms=300, kind=start, process="k", topics=("T",), client=Client.OTHER),
        Act(after_ms=600, kind=ActKind.CLOSE, process="k"),
    )
    played = play(SwarmRun(seed=1, theirs="kip-848", acts=acts, healed_after_ms=600))
    assert played.violations == ()
    moves = [
        one.record.to_broker
        for one in played.telemetry
        if one.client == "a" and isinstance(one.record, AssigningMoved)
    ]
    assert moves == [True, False]
    assert not [one for one in played.telemetry if isinstance(one.record, MembershipLost)]
