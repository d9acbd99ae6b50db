"""Deployments under the waiting policies: bounces, scaling, heavy resources."""

from collections.abc import Mapping
from itertools import pairwise

import pytest

from coopgroup.model import Resource
from coopgroup.telemetry import RoundDecided, RoundRefused
from coopgroup.testing import KafkaCluster
from tests.support.policy_chapters import (
    DEPLOYMENTS,
    FOUR,
    HEAVY,
    HEAVY_STOP_MS,
    JOINERS,
    MOVE_INTERVAL_MS,
    MOVES_MAX,
    SCALE_DELAY_MS,
)
from tests.support.policy_stories import PARTITIONS, Played, told

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]  # the first test waits for all stories

SHARE = PARTITIONS // len(FOUR)

CLOCK_MS = 400
"""What a time of telemetry, which is that of writing, may be later than the decision."""


@pytest.fixture(scope="module")
def deployments(kafka_cluster: KafkaCluster) -> Mapping[str, Played]:
    return told(kafka_cluster, DEPLOYMENTS)


def _led(played: Played, since: str = "begin") -> list[RoundDecided]:
    return [one.record for one in played.rounds(since) if isinstance(one.record, RoundDecided)]


@pytest.mark.parametrize("story", [story.name for story in DEPLOYMENTS.stories])
def test_nothing_is_lost_and_nothing_has_two_owners(
    deployments: Mapping[str, Played], story: str
) -> None:
    """No plan is refused, and no record is repeated: no process is killed."""
    played = deployments[story]
    facts = played.facts()
    assert (facts.lost, facts.duplicated, facts.double_owner_transitions) == (0, 0, 0)
    assert [one for one in played.telemetry if isinstance(one.record, RoundRefused)] == []


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_a_rolling_bounce_moves_nothing(deployments: Mapping[str, Played], policy: str) -> None:
    """No process proves its identity, yet each gets its partitions back; the others' stay."""
    played = deployments[f"{policy}-rolling"]
    assert played.moves() == {}
    assert played.shares("end") == played.shares("begin")
    rounds = _led(played)
    assert [one.revoked for one in rounds if one.revoked] == []
    lost = [one.lost for one in rounds if one.lost]
    granted = [one.granted for one in rounds if one.granted]
    assert [len(one) for one in granted] == [SHARE] * len(FOUR)
    assert list(dict.fromkeys(lost)) == granted


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_scaling_up_moves_only_to_those_who_come(
    deployments: Mapping[str, Played], policy: str
) -> None:
    """Until all eight have their share; no member is lost, so no partition waits."""
    played = deployments[f"{policy}-scale"]
    assert {after for _, after in played.moves("begin", "eight")} == set(JOINERS)
    assert [len(one) for one in played.shares("eight").values()] == [SHARE // 2] * 8
    facts = played.facts("begin", "eight")
    assert facts.moved <= SHARE * len(FOUR)
    until_eight = _led(played)[: -len(_led(played, "eight"))]
    assert [one.lost for one in until_eight if one.lost] == []


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_scaling_down_shares_when_the_delay_is_over(
    deployments: Mapping[str, Played], policy: str
) -> None:
    """Each partition of the departed members moves once, the others never; paced or not."""
    played = deployments[f"{policy}-scale"]
    shares = played.shares("eight")
    gone = sorted(partition for name in JOINERS for partition in shares[name])
    assert sorted(played.moved("eight", "end")) == gone
    assert {name: len(one) for name, one in played.shares("end").items()} == dict.fromkeys(
        FOUR, SHARE
    )
    led = played.rounds("eight")
    rounds = _led(played, "eight")
    assert [one.revoked for one in rounds if one.revoked] == []
    first_lost = next(number for number, one in enumerate(rounds) if one.lost)
    first_granted = next(number for number, one in enumerate(rounds) if one.granted)
    waited_ms = led[first_granted].at_ms - led[first_lost].at_ms
    assert waited_ms >= SCALE_DELAY_MS - CLOCK_MS


def test_scaling_up_incrementally_keeps_to_the_ration(deployments: Mapping[str, Played]) -> None:
    """The limit per round and one such round per interval; deferred moves all in one round."""
    revoking = _taken(deployments["incremental-scale"])
    assert {count for _, count in revoking} <= set(range(1, MOVES_MAX + 1))
    between_ms = [after - before for (before, _), (after, _) in pairwise(revoking)]
    assert min(between_ms) >= MOVE_INTERVAL_MS - CLOCK_MS, revoking
    assert max(count for _, count in _taken(deployments["deferred-scale"])) > MOVES_MAX


def _taken(played: Played) -> list[tuple[int, int]]:
    found = []
    told_before: set[Resource] = set()
    for envelope, led in zip(played.rounds(), _led(played), strict=True):
        told_now = set(led.revoked)
        if told_now - told_before:
            found.append((envelope.at_ms, len(told_now - told_before)))
        told_before = told_now
    return found


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_heavy_partitions_hold_back_no_light_ones(
    deployments: Mapping[str, Played], policy: str
) -> None:
    played = deployments[f"{policy}-heavy"]
    assert played.moves() == {("m1", "m2"): PARTITIONS // 2}
    heavy = [partition for partition in played.moved() if partition in HEAVY]
    light = [partition for partition in played.moved() if partition not in HEAVY]
    assert heavy
    begins = {
        spell.partition: spell.first_ns
        for spell in played.log.spells
        if played.names[spell.member] == "m2"
    }
    ends = {
        spell.partition: spell.last_ns
        for spell in played.log.spells
        if played.names[spell.member] == "m1"
    }
    stopping = {
        partition: event.at_ns
        for event in played.log.events
        if event.name == "stopping" and isinstance(event.fields["partitions"], list)
        for partition in event.fields["partitions"]
    }
    assert sorted(stopping) == sorted(heavy)
    first_stopped_ns = min(stopping.values()) + HEAVY_STOP_MS * 1_000_000
    assert min(begins[partition] for partition in light) < first_stopped_ns
    for partition in heavy:
        # A revoked partition yields no records, and has no owner until it has stopped.
        assert ends[partition] < stopping[partition]
        assert begins[partition] > stopping[partition] + HEAVY_STOP_MS * 1_000_000


def test_nobody_joins_in_a_loop_while_a_heavy_partition_stops(
    deployments: Mapping[str, Played],
) -> None:
    """One round for the new member, one for free partitions, at most two per stopped partition."""
    played = deployments["deferred-heavy"]
    heavy = [partition for partition in played.moved() if partition in HEAVY]
    assert len(_led(played)) <= 2 + 1 + 2 * len(heavy)
