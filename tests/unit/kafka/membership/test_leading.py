"""The leader's work: one decision at a time, always an answer, and an end when it is stopped."""

import logging
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest
from attrs import frozen

from coopgroup.assignors.sticky.assignor import StickyAssignor
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.leader import RoundRequest, TopicMetadata, read_members
from coopgroup.member.events import RejoinRequested
from coopgroup.model import GroupSnapshot, ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.model.resource_set import Int32Array, Int64Array
from coopgroup.policies.base import Offer, RoundContext, StagedRound
from coopgroup.policies.simple import SimplePolicy
from coopgroup.policies.state import PolicyState
from coopgroup.protocol import Subscription, decode_assignment, encode_subscription
from coopgroup.protocol.assignment_trailer import resources_digest
from coopgroup.session import DecideRound, LookOver, RoundDecided, SeenTopics
from coopgroup.telemetry import RoundRefused
from coopgroup.worker import Worker
from tests.support.by_hand import Hand
from tests.support.programs import output_of

WAIT_S_MAX = 5.0
EXISTING = ResourceSet({"orders": [0, 1]})


class _Lookup:
    def __init__(self) -> None:
        self.is_closed = False

    def metadata(self, _topics: object) -> TopicMetadata:
        return TopicMetadata(resources=EXISTING)

    def close(self) -> None:
        self.is_closed = True


class _SlowAssignor:
    """The sticky assignor; time passes in it.

    Attributes:
        takes_s: time of a decision.
        inside_max: highest number of decisions at a time.
    """

    name = "slow"
    needs_lags = False

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.takes_s = 0.0
        self.inside = 0
        self.inside_max = 0

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        self.inside += 1
        self.inside_max = max(self.inside_max, self.inside)
        takes_s, self.takes_s = self.takes_s, 0.0
        self.hand.advance(takes_s, urgent=True)
        self.inside -= 1
        return StickyAssignor().assign(group, lags)


def _duty(
    generation: int, *, owned: ResourceSet | None = None, state: PolicyState | None = None
) -> DecideRound:
    subscription = Subscription(
        topics=("orders",), owned=owned or ResourceSet(), generation=generation - 1
    )
    metadata = encode_subscription(subscription)
    return DecideRound(
        generation=generation,
        members=(JoinedMember(member_id="a", group_instance_id=None, metadata=metadata),),
        context=RoundContext(leader_id="a", generation=generation - 1, now_ms=0, state=state),
    )


@pytest.fixture
def slow(hand: Hand) -> _SlowAssignor:
    return _SlowAssignor(hand)


@pytest.fixture
def posted() -> list[RoundDecided | RejoinRequested]:
    return []


@pytest.fixture
def leader(slow: _SlowAssignor, posted: list[RoundDecided | RejoinRequested]) -> RoundLeader:
    """Return a leader with a time limit of 50 ms per round."""
    return RoundLeader(
        assignor=slow,
        policy=SimplePolicy(),
        lookup=cast("ClusterLookup", _Lookup()),
        timeout_ms=50,
        post=posted.append,
        sink=TelemetrySink("group"),
    )


def test_never_two_decisions_at_once_when_an_assignor_hangs(
    hand: Hand,
    leader: RoundLeader,
    slow: _SlowAssignor,
    posted: list[RoundDecided | RejoinRequested],
) -> None:
    """Each round is answered in time, also those that come while the assignor hangs."""
    slow.takes_s = 1.0
    for generation in (1, 2, 3):
        leader.start(_duty(generation))
    hand.run()
    assert [one.decision.refused for one in _answers(posted)] == [True] * 3
    assert (slow.inside, slow.inside_max) == (0, 1)
    leader.start(_duty(4))
    hand.run()
    assert not _answers(posted)[-1].decision.refused


def test_nothing_is_decided_when_it_was_stopped(
    hand: Hand, leader: RoundLeader, posted: list[RoundDecided | RejoinRequested]
) -> None:
    """A stopped leader's thread could crash inside NumPy when the interpreter exits."""
    leader.start(_duty(1))
    leader.look_over(_look_over(None))
    leader.stop()
    leader.start(_duty(2))
    hand.advance(60.0)
    assert posted == []
    assert cast("_Lookup", leader.lookup).is_closed


def _look_over(shared_digest: int | None, *, has_trailers: bool = True) -> LookOver:
    return LookOver(
        members=_duty(1).members, shared_digest=shared_digest, has_trailers=has_trailers
    )


def _answers(posted: list[RoundDecided | RejoinRequested]) -> list[RoundDecided]:
    return [one for one in posted if isinstance(one, RoundDecided)]


# --- whatever is raised, the round is answered ------------------------------------------------


class _NoLagsAssignor:
    """An assignor that does not state whether it needs lags."""

    name = "forgetful"

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        return StickyAssignor().assign(group, lags)


class _NamelessPolicy:
    """The simple policy without a name."""

    def offer(self, group: GroupSnapshot, context: RoundContext) -> Offer:
        return SimplePolicy().offer(group, context)

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        return SimplePolicy().stage(group, target, context, offer)


class _StatelessPolicy(_NamelessPolicy):
    """Return an invalid state."""

    name = "stateless"

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        plan = SimplePolicy().stage(group, target, context, offer).plan
        return StagedRound(plan=plan, state=cast("PolicyState", {"anything": 1}))


class _QuittingAssignor(_NoLagsAssignor):
    """Exit from its thread."""

    needs_lags = False

    def assign(self, group: GroupSnapshot, lags: Int64Array) -> Int32Array:
        """Exit, as a script may that ignores threads."""
        raise SystemExit(f"{len(group.members)} members, {len(lags)} lags")


@frozen
class _BrokenHandler:
    """A log handler that an application may have installed."""

    level: int = logging.NOTSET

    def handle(self, record: logging.LogRecord) -> None:
        """Fail like the handler of an unreachable log server."""
        raise OSError(f"cannot write {record.name}")


def _leader_of(
    posted: list[RoundDecided | RejoinRequested],
    *,
    assignor: object = None,
    policy: object = None,
    lookup: object = None,
    timeout_ms: int = 5_000,
) -> RoundLeader:
    return RoundLeader(
        assignor=cast("Any", assignor or StickyAssignor()),
        policy=cast("Any", policy or SimplePolicy()),
        lookup=cast("ClusterLookup", lookup or _Lookup()),
        timeout_ms=timeout_ms,
        post=posted.append,
        sink=TelemetrySink("group"),
    )


def _refusal(answer: RoundDecided) -> str:
    """Return the reason why no resource moves."""
    (record,) = (one for one in answer.decision.records if isinstance(one, RoundRefused))
    (reason,) = record.violations
    return reason


@pytest.mark.parametrize(
    ("assignor", "policy", "reason"),
    [
        (_NoLagsAssignor(), None, "needs_lags"),
        (None, _NamelessPolicy(), "name"),
        (
            None,
            _StatelessPolicy(),
            "policy stateless: TypeError: expected a PolicyState, got a dict",
        ),
        (_QuittingAssignor(), None, "SystemExit: 1 members, 2 lags"),
        (object(), object(), "attribute"),
    ],
)
def test_round_when_anything_is_raised_moves_nothing(
    hand: Hand,
    posted: list[RoundDecided | RejoinRequested],
    assignor: object,
    policy: object,
    reason: str,
) -> None:
    leader = _leader_of(posted, assignor=assignor, policy=policy)
    leader.start(_duty(2, owned=EXISTING))
    hand.run()
    (answer,) = _answers(posted)
    assert reason in _refusal(answer)
    (message,) = answer.decision.assignments
    assert decode_assignment(message[1]).assigned == EXISTING
    assert isinstance(answer.decision.state, PolicyState)


def test_round_when_the_memory_is_broken_moves_nothing(
    hand: Hand,
    posted: list[RoundDecided | RejoinRequested],
) -> None:
    leader = _leader_of(posted)
    leader.start(_duty(2, owned=EXISTING, state=cast("PolicyState", object())))
    hand.run()
    (answer,) = _answers(posted)
    assert answer.decision.refused
    assert decode_assignment(answer.decision.assignments[0][1]).assigned == EXISTING
    assert answer.decision.state.members == ("a",)
    leader.stop()


def test_round_when_the_members_cannot_be_read_leaves_all_as_it_is(
    hand: Hand,
    posted: list[RoundDecided | RejoinRequested],
) -> None:
    leader = _leader_of(posted)
    duty = _duty(2)
    leader.start(DecideRound(generation=2, members=duty.members * 2, context=duty.context))
    hand.run()
    (answer,) = _answers(posted)
    assert "members: got 'a' twice" in _refusal(answer)
    assert answer.decision.assignments == ()
    leader.stop()


def test_round_when_reading_the_members_takes_too_long_is_answered(
    hand: Hand,
    posted: list[RoundDecided | RejoinRequested],
) -> None:
    def read_slowly(members: Sequence[JoinedMember]) -> RoundRequest:
        hand.advance(0.05, urgent=True)
        return read_members(members)

    leader = _leader_of(posted, timeout_ms=50)
    leader.read = read_slowly
    leader.start(_duty(1))
    hand.run()
    assert "leader.timeout.ms (50)" in _refusal(_answers(posted)[0])
    leader.stop()
    assert len(_answers(posted)) == 1


def test_round_when_no_thread_is_to_be_had_is_answered(
    posted: list[RoundDecided | RejoinRequested], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = _leader_of(posted)

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Worker, "submit", refuse)
    leader.start(_duty(1))
    (answer,) = _answers(posted)
    assert "RuntimeError: can't start new thread" in _refusal(answer)
    leader.stop()


def test_round_when_the_log_cannot_be_written_is_decided(
    hand: Hand, posted: list[RoundDecided | RejoinRequested], monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("coopgroup")
    monkeypatch.setattr(logger, "handlers", [_BrokenHandler()])
    leader = _leader_of(posted, assignor=_NeedyAssignor())
    leader.start(_duty(1))
    hand.run()
    assert not _answers(posted)[0].decision.refused
    leader.stop()


class _NeedyAssignor(_NoLagsAssignor):
    """Need lags, which `_Lookup` does not provide."""

    needs_lags = True


def test_seen_is_replaced_only_where_no_round_was_led_meanwhile(
    hand: Hand,
    posted: list[RoundDecided | RejoinRequested],
) -> None:
    leader = _leader_of(posted)
    before = leader.seen
    leader.start(_duty(1))
    hand.run()
    assert leader.seen == SeenTopics(topics=("orders",), partitions=EXISTING)
    assert not leader.replace_seen(before, ResourceSet())
    assert leader.replace_seen(leader.seen, ResourceSet({"orders": [0]}))
    assert leader.seen == SeenTopics(topics=("orders",), partitions=ResourceSet({"orders": [0]}))
    leader.stop()


@pytest.mark.parametrize(
    ("shared_digest", "has_trailers", "asks"),
    [
        (resources_digest(EXISTING), True, False),
        (resources_digest(ResourceSet()), True, True),
        (None, True, True),
        (None, False, False),
    ],
    ids=["all is as it was", "partitions appeared", "not known", "never known to other clients"],
)
def test_leader_that_came_back_looks_its_topics_over(
    hand: Hand,
    leader: RoundLeader,
    posted: list[RoundDecided | RejoinRequested],
    shared_digest: int | None,
    *,
    has_trailers: bool,
    asks: bool,
) -> None:
    """It compares later checks with this look-up; a change in between needs a round."""
    leader.look_over(_look_over(shared_digest, has_trailers=has_trailers))
    hand.advance(1.0)
    assert leader.seen == SeenTopics(topics=("orders",), partitions=EXISTING)
    leader.stop()
    wanted = [RejoinRequested(reason="the leader returned")] if asks else []
    assert posted == wanted


def test_leader_that_came_back_to_no_metadata_asks_for_a_round_later(
    hand: Hand, leader: RoundLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise OSError("no broker")

    monkeypatch.setattr(_Lookup, "metadata", unavailable)
    leader.look_over(_look_over(None))
    hand.advance(1.0)
    assert leader.seen == SeenTopics(topics=("orders",))


def test_leader_that_came_back_leaves_alone_what_it_saw_when_it_led(
    hand: Hand, leader: RoundLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _Lookup.metadata

    def slow(lookup: _Lookup, topics: object) -> TopicMetadata:
        if not leader.seen.topics:
            leader.seen = SeenTopics(topics=("orders", "since"))
        return whole(lookup, topics)

    monkeypatch.setattr(_Lookup, "metadata", slow)
    leader.look_over(_look_over(None))
    hand.advance(1.0)
    assert leader.seen == SeenTopics(topics=("orders", "since"))


def test_leader_that_cannot_read_the_members_only_warns(
    hand: Hand, leader: RoundLeader, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = JoinedMember(member_id="a", group_instance_id=None, metadata=None)  # type: ignore[arg-type]
    leader.look_over(attrs.evolve(_look_over(None), members=(unreadable,)))
    hand.advance(1.0)
    assert "topics_unavailable" in caplog.records[0].getMessage()
    assert leader.seen == SeenTopics()


def test_look_ups_that_the_close_ends_are_no_failures(
    hand: Hand,
    leader: RoundLeader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ended(lookup: _Lookup, _topics: object) -> TopicMetadata:
        leader.stop()
        assert lookup.is_closed
        raise TimeoutError("no answer")

    monkeypatch.setattr(_Lookup, "metadata", ended)
    leader.look_over(_look_over(None))
    leader.start(_duty(1))
    hand.advance(1.0)
    assert leader.is_stopped
    assert caplog.records == []


FORK = """
import os, threading
from coopgroup.kafka.membership import leading
began, forks, loaded = threading.Event(), threading.Event(), threading.Event()
os.register_at_fork(before=forks.set)
def load():
    with leading._loading:
        began.set()
        forks.wait()
        loaded.set()
threading.Thread(target=load).start()
began.wait()
child = os.fork()
if not child:
    with leading._loading:
        os._exit(0 if loaded.is_set() else 1)
print(os.waitpid(child, 0)[1])
"""


def test_fork_waits_for_the_import_in_the_background() -> None:
    """Otherwise the child could never import NumPy."""
    assert output_of(FORK) == "0\n"
