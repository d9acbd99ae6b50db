"""Commits and retained partitions while somebody is slow to give up what it has."""

from collections.abc import Iterator

import numpy as np
import pytest
from attrs import frozen

from coopgroup.telemetry import CommitFailed, ResourcesStopped, StopReason
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import Facts, TrialLog, Window, measure
from tests.support.live_group import NOISE_MS, playing

REVOKE_SLEEP_MS = 2_000
COMMIT_MS_MAX = 500.0


@frozen
class SlowRevoke:
    """A fourth member joins three with four partitions: one of them gives one up, slowly.

    Attributes:
        facts: of the join.
        pauses: longest wait by member, in partitions that stay.
        revokers: members that gave something up.
        refused: commits that the members reported as failed.
        slowest_commit_ms: by member.
    """

    facts: Facts
    pauses: dict[str, float]
    revokers: list[str]
    refused: list[CommitFailed]
    slowest_commit_ms: float


def _pauses_by_member(log: TrialLog, members: list[str], window: Window) -> dict[str, float]:
    rows = log.rows[(log.rows["at_ns"] >= window.begin_ns) & (log.rows["at_ns"] < window.end_ns)]
    kept = [
        partition
        for partition in np.unique(rows["partition"]).tolist()
        if len(np.unique(rows[rows["partition"] == partition]["member"])) == 1
    ]
    rows = rows[np.isin(rows["partition"], kept)]
    waits = (rows["at_ns"] - np.maximum(rows["waiting_since_ns"], window.begin_ns)) / 1e6
    return {
        members[member]: float(waits[rows["member"] == member].max())
        for member in np.unique(rows["member"]).tolist()
    }


@pytest.fixture(scope="module")
def slow_revoke(kafka_cluster: KafkaCluster) -> Iterator[SlowRevoke]:
    """Play it once."""
    with playing(
        kafka_cluster,
        partitions=4,
        rate=100.0,
        commit_interval_ms=100,
        revoke_sleep_ms=REVOKE_SLEEP_MS,
    ) as player:
        player.group.prepare("m1", "m2", "m3", "m4")
        player.group.start("m1", "m2", "m3")
        player.settle(quiet_s=REVOKE_SLEEP_MS / 1000 + 0.5)
        with player.trial.window() as opened:
            player.group.start("m4")
            player.settle(quiet_s=REVOKE_SLEEP_MS / 1000 + 0.5)
        stopped = [
            name
            for name, record in player.telemetry(ResourcesStopped)
            if record.reason is StopReason.REVOKED
        ]
        player.trial.finish()
        log = player.log()
        window = opened.window
        commits = [event for event in log.events if event.name == "committed"]
        during = [one for one in commits if window.begin_ns <= one.at_ns < window.end_ns]
        yield SlowRevoke(
            facts=measure(log, window),
            pauses=_pauses_by_member(log, sorted(player.group.names), window),
            revokers=stopped[-1:],
            refused=[record for _, record in player.telemetry(CommitFailed)],
            slowest_commit_ms=max(float(str(one.fields["took_ms"])) for one in during),
        )


def test_no_commit_fails_or_waits_when_a_round_is_held_up(slow_revoke: SlowRevoke) -> None:
    """For two seconds the others' joins wait; their commits, every 100 ms, go through at once."""
    facts = slow_revoke.facts
    assert (facts.failed_commits, slow_revoke.refused) == (0, [])
    assert facts.commits >= 3 * (REVOKE_SLEEP_MS // 100) // 2
    assert slow_revoke.slowest_commit_ms < COMMIT_MS_MAX


def test_others_do_not_pause_when_a_revoker_is_slow(slow_revoke: SlowRevoke) -> None:
    """Only the member whose application sits in its own callback waits for it."""
    (revoker,) = slow_revoke.revokers
    others = {name: pause for name, pause in slow_revoke.pauses.items() if name != revoker}
    assert len(others) == 2
    assert all(pause < NOISE_MS for pause in others.values())


def test_nothing_is_lost_or_repeated_when_a_revoker_is_slow(slow_revoke: SlowRevoke) -> None:
    """The partition changes its owner only after callback and commit."""
    facts = slow_revoke.facts
    assert (facts.moved, facts.lost, facts.duplicated) == (1, 0, 0)
    assert facts.double_owner_transitions == 0
