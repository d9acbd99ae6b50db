"""Member processes join, leave, bounce and die while a producer runs."""

from collections.abc import Iterator

import pytest
from attrs import frozen

from coopgroup.telemetry import (
    MembershipLost,
    ResourcesStopped,
    RoundDecided,
    RoundRefused,
    StopReason,
)
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial.analysis import Facts, Window, measure
from tests.support.live_group import NOISE_MS, Player, playing

pytestmark = pytest.mark.verify

PARTITIONS = 12
STORY = ("join", "leave", "bounce", "leader leaves", "leader dies", "follower dies", "rolling")


@frozen
class Played:
    """The results of the whole story.

    Attributes:
        facts: by the name of the scene.
        whole: facts from the first scene to the last.
        led: names of the leaders, round by round.
        refused: rounds that a safety check refused.
        stops: why resources were stopped, in any order.
        losses: causes of lost memberships.
    """

    facts: dict[str, Facts]
    whole: Facts
    led: list[str]
    refused: list[RoundRefused]
    stops: set[StopReason]
    losses: list[str]


def _leader(player: Player) -> str:
    return player.telemetry(RoundDecided)[-1][0]


def _follower(player: Player) -> str:
    leader = _leader(player)
    return next(name for name in player.group.living if name != leader)


def _play(player: Player, scene: str) -> None:
    group = player.group
    match scene:
        case "join":
            group.start("m3")
        case "leave":
            group.stop(_follower(player))
        case "bounce":
            name = _follower(player)
            group.stop(name)
            group.start(name)
        case "leader leaves":
            group.stop(_leader(player))
        case "leader dies":
            group.kill(_leader(player))
        case "follower dies":
            group.kill(_follower(player))
        case _:
            for name in group.living:
                group.stop(name)
                group.start(name)
                player.settle()
    player.settle()


def _restore(player: Player, scene: str) -> None:
    """Between scenes: start missing members, and preload processes for the next scene."""
    group = player.group
    group.start(*(name for name in ("m1", "m2", "m3") if name not in group.living))
    if scene == "rolling":
        group.start("m4")
    player.settle()
    if scene == "bounce":
        group.prepare(_follower(player))
    if scene == "rolling":
        group.prepare(*group.living)


@pytest.fixture(scope="module")
def played(kafka_cluster: KafkaCluster) -> Iterator[Played]:
    windows: dict[str, Window] = {}
    with playing(kafka_cluster, partitions=PARTITIONS) as player:
        player.group.prepare("m1", "m2", "m3")
        player.group.start("m1", "m2")
        player.settle()
        for scene in STORY:
            if scene != "join":
                _restore(player, scene)
            with player.trial.window() as window:
                _play(player, scene)
            windows[scene] = window.window
        player.trial.finish()
        log = player.log()
        whole = Window(begin_ns=windows["join"].begin_ns, end_ns=windows["rolling"].end_ns)
        yield Played(
            facts={scene: measure(log, windows[scene]) for scene in STORY},
            whole=measure(log, whole),
            led=[name for name, _ in player.telemetry(RoundDecided)],
            refused=[record for _, record in player.telemetry(RoundRefused)],
            stops={record.reason for _, record in player.telemetry(ResourcesStopped)},
            losses=[record.cause for _, record in player.telemetry(MembershipLost)],
        )


def test_nothing_is_lost_or_owned_twice_when_members_come_and_go(played: Played) -> None:
    """Each record is consumed, no partition has two owners, and no commit fails."""
    whole = played.whole
    assert (whole.lost, whole.double_owner_transitions, whole.failed_commits) == (0, 0, 0)
    assert played.refused == []
    assert played.losses == []  # only processes lost partitions here, and those are dead
    assert played.stops == {StopReason.REVOKED, StopReason.CLOSED}


@pytest.mark.verify
@pytest.mark.parametrize("scene", [scene for scene in STORY if scene != "rolling"])
def test_retained_partitions_do_not_pause_when(played: Played, scene: str) -> None:
    facts = played.facts[scene]
    assert facts.retained >= PARTITIONS // 3
    assert facts.retained_pause_ms_max < NOISE_MS


@pytest.mark.parametrize("scene", ["join", "leave", "bounce", "leader leaves", "rolling"])
def test_nothing_is_repeated_when_members_close_properly(played: Played, scene: str) -> None:
    assert played.facts[scene].duplicated == 0


@pytest.mark.parametrize("scene", ["leader dies", "follower dies"])
def test_only_what_was_not_committed_is_repeated_when_a_member_is_killed(
    played: Played, scene: str
) -> None:
    """Commits run every 200 ms at 50 records a second: far fewer than 50 records each."""
    assert 0 <= played.facts[scene].duplicated <= PARTITIONS * 50 // 2
    assert played.facts[scene].pause_ms_max < 3_000 + 2_000  # session timeout, then a round


@pytest.mark.parametrize(
    ("scene", "moved"), [("join", 4), ("leave", 4), ("leader leaves", 4), ("follower dies", 4)]
)
def test_only_as_much_moves_as_must_when(played: Played, scene: str, moved: int) -> None:
    """12 partitions on 2 or 3 members: four of them change their owner."""
    assert (played.facts[scene].moved, played.facts[scene].moved_twice) == (moved, 0)


def test_another_member_leads_when_the_leader_is_gone(played: Played) -> None:
    assert len(set(played.led)) >= 2
