"""The stories of the policies that wait: deaths, returns, and deployments."""

from __future__ import annotations

import time
from typing import Final

from tests.support.policy_stories import PARTITIONS, SETTINGS, Cast, Chapter, Story

__all__ = ["DEATHS", "DELAY_MS", "DEPLOYMENTS", "HEAVY", "HEAVY_STOP_MS", "MOVES_MAX"]

HEARTBEAT_S: Final = SETTINGS["heartbeat_interval_ms"] / 1_000
LONG_MS: Final = 120_000  # longer than any event of a story
DELAY_MS: Final = 10_000
SCALE_DELAY_MS: Final = 2_000
MOVES_MAX: Final = 2
MOVE_INTERVAL_MS: Final = 1_000
HEAVY_STOP_MS: Final = 4_000
HEAVY: Final = (4, 5, 16, 17)  # any half of all moves has some heavy resources
THREE: Final = ("m1", "m2", "m3")
FOUR: Final = ("m1", "m2", "m3", "m4")
JOINERS: Final = ("m5", "m6", "m7", "m8")


# --- deaths -------------------------------------------------------------------------------------


def _return_in_the_window(cast: Cast) -> None:
    """The member returns after its session timeout, while its partitions wait for it."""
    cast.group.prepare("m2")
    cast.kill("m2")
    _until_noticed(cast)
    cast.start("m2")


def _until_noticed(cast: Cast) -> None:
    """Wait so long that the next event is in another round, on a broker as in the simulator."""
    cast.until(cast.loss_is_noticed, "the loss is noticed")
    time.sleep(3 * HEARTBEAT_S)


def _return_after_a_stranger(cast: Cast) -> None:
    """A new member joins while the partitions of a lost member wait."""
    cast.group.prepare("m2", "m4")
    cast.kill("m2")
    _until_noticed(cast)
    cast.start("m4")
    cast.until(lambda: bool(cast.owned("m4")), "the stranger has something")
    cast.group.wait_settled(quiet_s=1.0, timeout_s=3.0)  # never at rest: partitions wait
    cast.mark("returned")
    cast.start("m2")


def _return_in_the_session(cast: Cast) -> None:
    """The member returns before its session timeout."""
    cast.group.prepare("m2")
    cast.kill("m2")
    cast.start("m2")


def _no_return(cast: Cast) -> None:
    cast.kill("m2")
    cast.until(cast.loss_is_noticed, "the loss is noticed")


def _leader_lost_in_the_window(cast: Cast) -> None:
    """The leader that remembers the start of the wait dies, too."""
    leader = _leader(cast)
    cast.kill(next(name for name in FOUR if name != leader))
    cast.until(cast.loss_is_noticed, "the loss is noticed")
    cast.kill(leader)


def _leader(cast: Cast) -> str:
    """Return the leader; a broker makes a member id of the client id and a random part."""
    led = [one for one in cast.envelopes() if one.record in cast.rounds()]
    return led[-1].member.partition("-")[0]


DEATHS: Final = Chapter(
    name="deaths",
    stories=(
        Story(
            name="deferred-return",
            kind="coopgroup-deferred",
            members=THREE,
            play=_return_in_the_window,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
        ),
        Story(
            name="incremental-return",
            kind="coopgroup-incremental",
            members=THREE,
            play=_return_in_the_window,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
        ),
        Story(
            name="static-return",
            kind="coopgroup-deferred-static",
            members=THREE,
            play=_return_after_a_stranger,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
            first_leads=True,  # a new leader would not know which member the loss waits for
        ),
        Story(
            name="kept-return",
            kind="coopgroup-incremental-kept",
            members=THREE,
            play=_return_in_the_session,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
            settings={"session_timeout_ms": 20_000},
        ),
        Story(
            name="deferred-death",
            kind="coopgroup-deferred",
            members=THREE,
            play=_no_return,
            policy_arguments={"scheduled_rebalance_timeout_ms": DELAY_MS // 2},
        ),
        Story(
            name="incremental-death",
            kind="coopgroup-incremental",
            members=THREE,
            play=_no_return,
            policy_arguments={
                "scheduled_rebalance_timeout_ms": DELAY_MS // 2,
                "max_moves_per_round": MOVES_MAX,
                "move_interval_ms": MOVE_INTERVAL_MS,
            },
        ),
        Story(
            name="leader-lost",
            kind="coopgroup-deferred",
            members=FOUR,
            play=_leader_lost_in_the_window,
            policy_arguments={"scheduled_rebalance_timeout_ms": DELAY_MS},
        ),
    ),
)


# --- deployments --------------------------------------------------------------------------------


def _rolling(cast: Cast) -> None:
    """Each member closes and returns; the next one follows when all others have noticed."""
    for name in FOUR:
        cast.group.prepare(name)
        cast.close(name)
        _until_noticed(cast)
        cast.start(name)
        cast.rest()


def _scale(cast: Cast) -> None:
    """Scale up one by one, and down together, only by `close`."""
    for name in JOINERS:
        cast.start(name)
        cast.rest()
    cast.mark("eight")
    cast.close(*JOINERS)
    cast.until(cast.loss_is_noticed, "the loss is noticed")


def _heavy(cast: Cast) -> None:
    cast.start("m2")
    cast.until(lambda: bool(cast.owned("m2")), "the light ones move")
    cast.mark("light")
    cast.until(lambda: len(cast.owned("m2")) == PARTITIONS // 2, "all has moved")


DEPLOYMENTS: Final = Chapter(
    name="deployments",
    stories=(
        Story(
            name="deferred-rolling",
            kind="coopgroup-deferred",
            members=FOUR,
            play=_rolling,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
        ),
        Story(
            name="incremental-rolling",
            kind="coopgroup-incremental",
            members=FOUR,
            play=_rolling,
            policy_arguments={"scheduled_rebalance_timeout_ms": LONG_MS},
        ),
        Story(
            name="deferred-scale",
            kind="coopgroup-deferred",
            members=FOUR,
            play=_scale,
            policy_arguments={"scheduled_rebalance_timeout_ms": SCALE_DELAY_MS},
        ),
        Story(
            name="incremental-scale",
            kind="coopgroup-incremental",
            members=FOUR,
            play=_scale,
            policy_arguments={
                "scheduled_rebalance_timeout_ms": SCALE_DELAY_MS,
                "max_moves_per_round": MOVES_MAX,
                "move_interval_ms": MOVE_INTERVAL_MS,
            },
        ),
        Story(
            name="deferred-heavy",
            kind="coopgroup-deferred",
            members=("m1",),
            play=_heavy,
            settings={"heavy_partitions": HEAVY, "heavy_stop_ms": HEAVY_STOP_MS},
        ),
        Story(
            name="incremental-heavy",
            kind="coopgroup-incremental",
            members=("m1",),
            play=_heavy,
            policy_arguments={"max_moves_per_round": MOVES_MAX, "move_interval_ms": 0},
            settings={"heavy_partitions": HEAVY, "heavy_stop_ms": HEAVY_STOP_MS},
        ),
    ),
)
