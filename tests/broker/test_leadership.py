"""One leader among processes that are killed, frozen and ended."""

from __future__ import annotations

import threading

from coopgroup import Leadership
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.waiting import wait_for

SESSION_MS = 2_000
HEARTBEAT_MS = 250
WAIT_S = 40.0


def _configuration(cluster: KafkaCluster) -> dict[str, object]:
    return {
        **cluster.client_config(),
        "group.id": unique("leaders"),
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def test_leader_that_resigns_hands_over_at_once(kafka_cluster: KafkaCluster) -> None:
    """Callbacks report it on both sides; tokens grow."""
    configuration = _configuration(kafka_cluster)
    heard: list[tuple[str, int | None]] = []
    first_lost = threading.Event()

    def lose() -> None:
        heard.append(("first lost", None))
        first_lost.set()

    first = Leadership(
        configuration,
        on_elected=lambda token: heard.append(("first", token)),
        on_lost=lose,
    )
    second = Leadership(configuration, on_elected=lambda token: heard.append(("second", token)))
    with first:
        token = first.wait(WAIT_S)
        assert token is not None
        assert (first.leads, first.token) == (True, token)
        with second:
            assert second.wait(1.0) is None
            first.close()
            assert first_lost.wait(0)
            assert first.wait_lost(0)
            later = second.wait(WAIT_S)
            assert later is not None
            assert later > token
            wait_for(lambda: len(heard) == 3, "callbacks were called")
            assert first.token is None
    assert heard == [("first", token), ("first lost", None), ("second", later)]
    assert not second.leads
