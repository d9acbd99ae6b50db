"""A leader that resigns."""

from coopgroup import Leadership
from coopgroup.testing import KafkaCluster
from tests.support.inner import inner
from tests.support.live_group import unique
from tests.support.waiting import wait_for

WAIT_S = 60.0


def test_leader_that_resigns_hands_over_at_once(kafka_cluster: KafkaCluster) -> None:
    """Callbacks report it on both sides; tokens grow."""
    configuration = {**kafka_cluster.client_config(), "group.id": unique("leaders")}
    heard: list[tuple[str, int | None]] = []
    first = Leadership(
        configuration,
        on_elected=lambda token: heard.append(("first", token)),
        on_lost=lambda: heard.append(("first lost", None)),
    )
    second = Leadership(configuration, on_elected=lambda token: heard.append(("second", token)))
    with first:
        token = first.wait(WAIT_S)
        assert token is not None
        assert (first.leads, first.token) == (True, token)
        with second:
            assert second.wait(1.0) is None
            leader = second.leader
            assert leader is not None
            assert leader.member_id == inner(first, "_group").member_id
            first.close()
            assert ("first lost", None) in heard
            assert first.wait_lost(0)
            later = second.wait(WAIT_S)
            assert later is not None
            assert later > token
            wait_for(lambda: len(heard) == 3, "callbacks were called")
            assert first.token is None
    assert heard == [("first", token), ("first lost", None), ("second", later)]
    assert not second.leads
