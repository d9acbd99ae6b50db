"""Killed processes under the waiting policies: which of them return, and which member leads."""

from collections.abc import Mapping

import pytest

from coopgroup.model import ResourceSet
from coopgroup.telemetry import (
    AssignmentReceived,
    MembershipLost,
    RequestRefused,
    RoundDecided,
    RoundRefused,
)
from coopgroup.testing import KafkaCluster
from tests.support.policy_chapters import DEATHS, DELAY_MS, LONG_MS
from tests.support.policy_stories import PARTITIONS, Played, told

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]  # the first test waits for all stories

BOUND_MS = 10_000
"""Beyond a delay: heartbeats, a round, and a machine that does other things."""

CLOCK_MS = 1_000
"""What a time of telemetry, which is that of writing, may be later than the decision."""


@pytest.fixture(scope="module")
def deaths(kafka_cluster: KafkaCluster) -> Mapping[str, Played]:
    return told(kafka_cluster, DEATHS)


def _led(played: Played) -> list[RoundDecided]:
    return [one.record for one in played.rounds() if isinstance(one.record, RoundDecided)]


def _partitions(resources: ResourceSet) -> list[int]:
    return [one.index for one in resources]


def _is_safe(played: Played) -> bool:
    """Assert: no lost record, no second owner, and no plan that the leader refused."""
    facts = played.facts()
    refused = [one for one in played.telemetry if isinstance(one.record, RoundRefused)]
    return (facts.lost, facts.double_owner_transitions, refused) == (0, 0, [])


@pytest.mark.parametrize("story", [story.name for story in DEATHS.stories])
def test_nothing_is_lost_and_nothing_has_two_owners(
    deaths: Mapping[str, Played], story: str
) -> None:
    assert _is_safe(deaths[story])


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_what_a_killed_process_had_waits_until_it_is_back(
    deaths: Mapping[str, Played], policy: str
) -> None:
    """The member gets all back immediately, under a new id; other members' partitions stay."""
    played = deaths[f"{policy}-return"]
    waiting = played.shares("begin")["m2"]
    noticed, *_, returned = _led(played)
    assert (_partitions(noticed.lost), _partitions(noticed.granted)) == (waiting, [])
    assert LONG_MS - BOUND_MS < noticed.scheduled_rebalance_timeout_ms <= LONG_MS
    assert _partitions(returned.granted) == waiting
    assert [len(one.revoked) for one in _led(played)] == [0] * len(_led(played))
    assert len(set(returned.members) - set(noticed.members)) == 1
    facts = played.facts()
    assert (facts.moved, facts.retained) == (0, PARTITIONS - len(waiting))
    assert played.shares("end") == played.shares("begin")


def test_what_waits_for_a_static_id_is_not_for_a_stranger(deaths: Mapping[str, Played]) -> None:
    """A new member gets a share of the rest; the owner, once back, gets all its partitions."""
    played = deaths["static-return"]
    waiting = played.shares("begin")["m2"]
    moved_before = played.moved("begin", "returned")
    assert moved_before
    assert sorted(set(moved_before) & set(waiting)) == []
    assert {after for _, after in played.moves("begin", "returned")} == {"m4"}
    returned_ms = (played.marks["returned"] + played.wall_ns) / 1e6
    gained = [
        _partitions(one.record.gained)
        for one in played.telemetry
        if isinstance(one.record, AssignmentReceived)
        and one.record.gained
        and one.member.startswith("m2")
        and one.at_ms >= returned_ms
    ]
    # In the round of its return it gets all its partitions, and the next round moves some of them.
    # The leader may begin that round before the owner's sync: the broker then refuses the sync, and
    # the owner may learn only the second round.
    led = [
        (one.at_ms, one.record) for one in played.telemetry if isinstance(one.record, RoundDecided)
    ]
    first, *later = [record for at_ms, record in led if at_ms >= returned_ms]
    assert _partitions(first.granted) == waiting
    overtaken = any(
        isinstance(one.record, RequestRefused)
        and (one.record.request, one.record.error) == ("SyncGroup", "REBALANCE_IN_PROGRESS")
        and one.member.startswith("m2")
        and one.at_ms >= returned_ms
        for one in played.telemetry
    )
    assert later or not overtaken
    assert gained == [waiting] or (overtaken and gained == [played.shares("end")["m2"]])
    assert set(gained[0]) <= set(waiting)


def test_who_is_kept_returns_without_a_round(deaths: Mapping[str, Played]) -> None:
    """No member notices a kill if the next process of the host presents the identity in time."""
    played = deaths["kept-return"]
    assert played.rounds() == []
    assert [one for one in played.telemetry if isinstance(one.record, MembershipLost)] == []
    facts = played.facts()
    assert (facts.moved, facts.retained) == (0, PARTITIONS - PARTITIONS // 3)
    assert played.shares("end") == played.shares("begin")


@pytest.mark.parametrize("policy", ["deferred", "incremental"])
def test_what_nobody_returns_for_is_shared_when_the_delay_is_over(
    deaths: Mapping[str, Played], policy: str
) -> None:
    """Not earlier, and in one round, paced or not; partitions of other members stay."""
    played = deaths[f"{policy}-death"]
    waiting = played.shares("begin")["m2"]
    led = played.rounds()
    rounds = _led(played)
    grants = [number for number, one in enumerate(rounds) if one.granted]
    assert [_partitions(rounds[number].granted) for number in grants] == [waiting]
    assert all(_partitions(one.lost) == waiting for one in rounds[: grants[0]])
    waited_ms = led[grants[0]].at_ms - led[0].at_ms
    assert DELAY_MS // 2 - CLOCK_MS <= waited_ms <= DELAY_MS // 2 + BOUND_MS
    assert [len(one.revoked) for one in rounds] == [0] * len(rounds)
    assert played.moves() == {("m2", "m1"): len(waiting) // 2, ("m2", "m3"): len(waiting) // 2}
    assert played.facts().retained == PARTITIONS - len(waiting)


def test_a_delay_goes_on_when_the_leader_dies_meanwhile(deaths: Mapping[str, Played]) -> None:
    played = deaths["leader-lost"]
    first, second = [act.member for act in played.acts if act.how == "kill"]
    waiting = played.shares("begin")[first]
    led, rounds = played.rounds(), _led(played)
    assert led[0].member.startswith(second)
    assert not any(one.member.startswith(second) for one in led[1:])
    assert _partitions(rounds[0].lost) == waiting
    granted = next(
        number for number, one in enumerate(rounds) if set(waiting) & set(_partitions(one.granted))
    )
    assert set(waiting) <= set(_partitions(rounds[granted].granted))
    waited_ms = led[granted].at_ms - led[0].at_ms
    assert DELAY_MS - CLOCK_MS <= waited_ms <= DELAY_MS + BOUND_MS
    for number in range(1, granted):
        gone_ms = led[number].at_ms - led[0].at_ms
        left_ms = rounds[number].scheduled_rebalance_timeout_ms
        assert left_ms <= DELAY_MS - gone_ms + 1_000  # the delay continues; it does not restart
    facts = played.facts()
    assert (facts.moved, facts.moved_twice) == (PARTITIONS // 2, 0)
    assert {before for before, _ in played.moves()} == {first, second}
    assert sorted(len(one) for one in played.shares("end").values()) == [PARTITIONS // 2] * 2
