"""One leader among processes that are killed, frozen and ended."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from coopgroup import Leadership
from coopgroup.testing import KafkaCluster
from tests.support.candidates import Candidate, Term, terms_of
from tests.support.live_group import unique
from tests.support.waiting import wait_for

SESSION_MS = 2_000
HEARTBEAT_MS = 250
# A busy machine may need this long for steps that take milliseconds when idle.
NOISE_S = 2.0
WAIT_S = 40.0


def _configuration(cluster: KafkaCluster) -> dict[str, object]:
    return {
        **cluster.client_config(),
        "group.id": unique("leaders"),
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def _next_term(candidates: list[Candidate], after: int) -> Term:

    def newest() -> Term | None:
        terms = terms_of(candidates)
        return terms[-1] if terms and terms[-1].token > after else None

    wait_for(lambda: newest() is not None, "another leader", WAIT_S)
    term = newest()
    assert term is not None
    return term


@pytest.mark.verify
def test_leader_that_is_killed_or_frozen_is_followed_by_one_other(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Within the session timeout, and only after the old leader has ceased, frozen or not."""
    configuration = _configuration(kafka_cluster)
    candidates = [Candidate(name, tmp_path / name) for name in ("a", "b", "c")]
    by_name = {one.name: one for one in candidates}
    try:
        for one in candidates:
            one.start(configuration)
        killed = _next_term(candidates, -1)
        by_name[killed.who].signal(signal.SIGKILL)
        frozen = _next_term(candidates, killed.token)
        by_name[frozen.who].signal(signal.SIGSTOP)
        last = _next_term(candidates, frozen.token)
        by_name[frozen.who].signal(signal.SIGCONT)
        lines = len(by_name[last.who].lines())
        wait_for(lambda: len(by_name[last.who].lines()) > lines + 50, "the last one leads on")
    finally:
        for one in candidates:
            one.end()
    terms = terms_of(candidates)
    assert {term.who for term in terms} == {"a", "b", "c"}
    for before, after in pairwise(terms):
        assert before.last_s < after.first_s, "two leaders at once"
    for before, after in pairwise(terms[:3]):
        took_s = after.first_s - before.last_s
        assert took_s < (SESSION_MS + HEARTBEAT_MS) / 1000 + NOISE_S


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
