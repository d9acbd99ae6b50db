"""The leader's duty: one decision at a time, always an answer, and an end when told to."""

import threading
import time
from collections.abc import Callable
from typing import cast

import pytest

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.kafka.leading import RoundLeader
from coopgroup.kafka.lookup import ClusterLookup
from coopgroup.kafka.telemetry_sink import TelemetrySink
from coopgroup.leader import TopicMetadata
from coopgroup.member.events import RejoinRequested
from coopgroup.model import GroupSnapshot, ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies.base import RoundContext
from coopgroup.policies.simple import SimplePolicy
from coopgroup.protocol import Subscription, encode_subscription
from coopgroup.session import LeadRound, RoundLed

WAIT_S_MAX = 5.0
EXISTING = ResourceSet({"orders": [0, 1]})


class _Lookup:
    """A cluster with one topic."""

    def __init__(self) -> None:
        self.is_closed = False

    def metadata(self, _topics: object) -> TopicMetadata:
        """What exists."""
        return TopicMetadata(resources=EXISTING)

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True


class _Gate:
    """The sticky assignor, which waits until it is let go.

    Attributes:
        opened: lets it go.
        inside: how many decisions are in it.
        inside_max: how many were at most.
    """

    name = "gate"
    needs_lags = False

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.inside = 0
        self.inside_max = 0

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Wait, then assign."""
        self.inside += 1
        self.inside_max = max(self.inside_max, self.inside)
        self.opened.wait(WAIT_S_MAX)
        self.inside -= 1
        return StickyAssignor().assign(group, lags)


def _duty(generation: int) -> LeadRound:
    metadata = encode_subscription(Subscription(topics=("orders",)))
    return LeadRound(
        generation=generation,
        members=(JoinedMember(member_id="a", group_instance_id=None, metadata=metadata),),
        context=RoundContext(leader_id="a", generation=generation - 1, now_ms=0, state=None),
    )


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def gate() -> _Gate:
    """An assignor that waits."""
    return _Gate()


@pytest.fixture
def posted() -> list[RoundLed | RejoinRequested]:
    """What the leader gave to the driver."""
    return []


@pytest.fixture
def leader(gate: _Gate, posted: list[RoundLed | RejoinRequested]) -> RoundLeader:
    """A leader that has 50 ms for a round."""
    return RoundLeader(
        assignor=gate,
        policy=SimplePolicy(),
        lookup=cast("ClusterLookup", _Lookup()),
        timeout_ms=50,
        post=posted.append,
        sink=TelemetrySink("group"),
    )


def _leader_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "coopgroup-leader"]


def test_never_two_decisions_at_once_when_an_assignor_hangs(
    leader: RoundLeader, gate: _Gate, posted: list[RoundLed | RejoinRequested]
) -> None:
    """Every round is answered in time; threads do not pile up behind the one that hangs."""
    for generation in (1, 2, 3):
        leader.start(_duty(generation))
        _wait(lambda: len(_answers(posted)) == generation)  # noqa: B023  (waited for at once)
    assert [one.led.refused for one in _answers(posted)] == [True] * 3
    assert gate.inside_max == 1
    _wait(lambda: sum(not isinstance(one, threading.Timer) for one in _leader_threads()) == 1)
    gate.opened.set()
    _wait(lambda: gate.inside == 0)
    leader.start(_duty(4))
    _wait(lambda: len(_answers(posted)) == 4)
    assert not _answers(posted)[-1].led.refused
    leader.stop()
    assert _leader_threads() == []


def test_no_thread_is_left_when_it_is_stopped(
    leader: RoundLeader, gate: _Gate, posted: list[RoundLed | RejoinRequested]
) -> None:
    """Also the one that waits to ask for another round; look-ups are told to end."""
    leader.start(_duty(1))
    _wait(lambda: len(_answers(posted)) == 1)
    gate.opened.set()
    leader.stop()
    assert _leader_threads() == []
    assert cast("_Lookup", leader.lookup).is_closed
    assert len(posted) == 1  # no other round is asked for any more


def _answers(posted: list[RoundLed | RejoinRequested]) -> list[RoundLed]:
    return [one for one in posted if isinstance(one, RoundLed)]
