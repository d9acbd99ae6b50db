"""The bell of a member of KIP-848: members beat now instead of with their next regular heartbeat.

Each hop of a rebalance is a heartbeat of a member. The first one joins, others revoke, acknowledge,
and grant. The next regular heartbeat may be five seconds away. A ring is a hint, as in the classic
protocol: a lost ring costs that time, and a false ring costs a heartbeat.

A member rings on four occasions:

1. Its join was answered. Other members may have to give up partitions.
2. Its leave was answered. Its partitions are free.
3. The heartbeat that acknowledged a revocation was answered. The revoked partitions are free.
4. A regular heartbeat, or a look, brought news. Other members may not know the new target. All
   members of a large group look at the same time. So this ring waits for up to a quarter of a
   second, each member for a time of its own. It is not needed if another member rings before.

A heartbeat for a ring is no occasion, because other members heard the same ring.

A ring is heeded by a heartbeat now, and by looks: the target may not be made before the assignment
interval (KIP-1263, one second) is over, and only a heartbeat makes it. A later release may also
compute it aside. The short looks follow the first ring since the last news, and the long one
follows the last ring. A member cannot know whether it waits for a partition, so it never ignores
the last ring. From the fifth heartbeat without news on, the pause to the next one doubles, up to a
second. So a sender of false rings costs each member two heartbeats per second.

Without `MemberConfig.has_bell`, a member neither rings nor looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import attrs

from coopgroup.core.member.consumer.changes import set_beat
from coopgroup.core.member.effects import RingBell
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.parts import BELL_PAUSE_MS
from coopgroup.core.member.transitions import MemberState

if TYPE_CHECKING:
    from coopgroup.core.member.member import Member
    from coopgroup.core.member.turn import Turn

_SHORT_LOOKS_MS: Final = (25, 120)
_LONG_LOOK_MS: Final = 1_050
_SPREAD_MS: Final = 250
_PAUSE_MAX_MS: Final = 1_000
_EVEN_PAUSES: Final = 4
_DOUBLINGS_MAX: Final = 5
_OWNING: Final = frozenset({MemberState.STABLE, MemberState.REVOKING})


def heed_ring(turn: Turn) -> None:
    """Let the next heartbeat be due for a ring.

    A heartbeat on its way may have been served before the change, so another one follows it.
    """
    member = turn.member
    waits = RequestKind.CONSUMER_BEAT in member.outstanding
    if not (member.config.has_bell and (waits or member.state in _OWNING)):
        return
    set_beat(turn, rings_at_ms=None)
    at_ms = max(turn.now_ms, member.rings.heed_at_ms)
    if at_ms < member.heartbeat_at_ms:
        turn.set(heartbeat_at_ms=at_ms)
        set_beat(turn, is_rung=True)
    _look_later(turn, at_ms, also_soon=not member.beat.fruitless)


def count_heeded(turn: Turn) -> None:
    """Count a heartbeat that is sent for a ring, and set the pause to the next one."""
    member, fruitless = turn.member, turn.member.beat.fruitless
    doublings = min(max(fruitless - _EVEN_PAUSES + 1, 0), _DOUBLINGS_MAX)
    pause_ms = min(BELL_PAUSE_MS << doublings, _PAUSE_MAX_MS)
    turn.set(rings=attrs.evolve(member.rings, heed_at_ms=turn.now_ms + pause_ms))
    set_beat(turn, fruitless=fruitless + 1)


def ring_after_answer(turn: Turn, *, is_first: bool, gains: bool, is_news: bool) -> None:
    """Ring for the answer to a heartbeat, if it is an occasion.

    Args:
        turn: the step.
        is_first: whether the heartbeat joined.
        gains: whether the answer granted something.
        is_news: whether the answer has a new epoch or another assignment.
    """
    if not turn.member.config.has_bell:
        return
    beat = turn.member.beat
    if is_news:
        set_beat(turn, looks=(), fruitless=0)
    if is_first and not gains:
        _look_later(turn, turn.now_ms, also_soon=True)
    if is_first or beat.acknowledged or (is_news and beat.was_own):
        _want_ring(turn)
    elif is_news and not beat.was_rung:
        set_beat(turn, rings_at_ms=turn.now_ms + own_ms(turn.member, _SPREAD_MS))


def own_ms(member: Member, max_ms: int) -> int:
    """Return a time below a limit that differs from member to member, and stays the same."""
    return crc32(member.member_id.encode()) % max(max_ms, 1)


def ring_after_leave(turn: Turn) -> None:
    """Ring for the answer to a leave; there may be no later moment."""
    if turn.member.config.has_bell and turn.member.config.instance_id is None:
        turn.emit(RingBell())


def ring_if_due(turn: Turn) -> None:
    """Ring at the end of a step, and not twice within 50 ms."""
    rings_at_ms = turn.member.beat.rings_at_ms
    if rings_at_ms is not None and turn.now_ms >= rings_at_ms:
        set_beat(turn, rings_at_ms=None)
        _want_ring(turn)
    rings = turn.member.rings
    if rings.ring_at_ms is None:
        return
    at_ms = rings.ring_at_ms
    if rings.rung_at_ms is not None:
        at_ms = max(at_ms, rings.rung_at_ms + BELL_PAUSE_MS)
    if turn.now_ms < at_ms:
        turn.set(rings=attrs.evolve(rings, ring_at_ms=at_ms))
        return
    turn.emit(RingBell())
    turn.set(rings=attrs.evolve(rings, ring_at_ms=None, rung_at_ms=turn.now_ms))


def _want_ring(turn: Turn) -> None:
    turn.set(rings=attrs.evolve(turn.member.rings, ring_at_ms=turn.now_ms))


def _look_later(turn: Turn, at_ms: int, *, also_soon: bool) -> None:
    short = tuple(at_ms + after_ms for after_ms in _SHORT_LOOKS_MS)
    before = short if also_soon else turn.member.beat.looks[:-1]
    set_beat(turn, looks=(*before, at_ms + _LONG_LOOK_MS))
