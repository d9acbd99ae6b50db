"""The leader's work: one decision at a time, always an answer, and an end when it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import numpy as np
import pytest
from attrs import define, field

from coopgroup.core.assignors.lag.assignor import LagAwareAssignor
from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.leader import Lags, RoundRequest, TopicMetadata, read_members
from coopgroup.core.member.events import RejoinRequested
from coopgroup.core.model import GroupSnapshot, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.resource_set import Int32Array, Int64Array
from coopgroup.core.policies.built_in import IncrementalPolicy, SimplePolicy
from coopgroup.core.policies.memory import PolicyState
from coopgroup.core.policies.policy import Offer, Policy, RoundContext, StagedRound
from coopgroup.core.protocol.digests import resources_digest
from coopgroup.core.protocol.subscription import read_subscription
from coopgroup.core.session import (
    CheckLags,
    DecideRound,
    DecisionMade,
    LagsChecked,
    LagWatch,
    LeaderContext,
    LookOver,
    SeenTopics,
)
from coopgroup.kafka.membership.deciding import Decider
from coopgroup.kafka.membership.leading import LagWatcher, RoundLeader
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.policies import BalanceRule
from coopgroup.protocol import Subscription, decode_assignment, encode_subscription
from coopgroup.telemetry import RoundRefused
from coopgroup.worker import Worker
from tests.support.by_hand import Hand, by_hand
from tests.support.groups import at_rest, claim, group_of
from tests.unit.kafka.one_member_group import fail

EXISTING = ResourceSet({"orders": [0, 1]})
SEEN = SeenTopics(topics=("orders",), partitions=EXISTING)


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
    generation: int, state: object = None, now_ms: int = 0, **owned: ResourceSet
) -> DecideRound:
    """Return the duty of a leader "a" whose members own something."""
    return DecideRound(
        generation=generation,
        members=tuple(
            JoinedMember(
                member_id=name,
                group_instance_id=None,
                metadata=encode_subscription(
                    Subscription(topics=("orders",), owned=one, generation=generation - 1)
                ),
            )
            for name, one in (owned or {"a": ResourceSet()}).items()
        ),
        context=LeaderContext(
            leader_id="a",
            generation=generation - 1,
            now_ms=now_ms,
            state=cast("PolicyState", state),
        ),
    )


@define
class Led:
    """A leader with its answers."""

    posted: list[DecisionMade | RejoinRequested] = field(factory=list)
    leader: RoundLeader = field(init=False)

    def lead(
        self,
        assignor: object = None,
        policy: object = None,
        timeout_ms: int = 5_000,
        lookup: object = None,
    ) -> RoundLeader:
        self.leader = RoundLeader(
            assignor=cast("Any", assignor or StickyAssignor()),
            policy=cast("Any", policy or SimplePolicy()),
            lookup=cast("ClusterLookup", lookup or _Lookup()),
            timeout_ms=timeout_ms,
            post=self.posted.append,
            sink=TelemetrySink("group"),
        )
        return self.leader

    def answers(self) -> list[DecisionMade]:
        return [one for one in self.posted if isinstance(one, DecisionMade)]

    def refusal(self) -> str:
        """Return the reason why the only round moves nothing."""
        (answer,) = self.answers()
        (record,) = (one for one in answer.decision.records if isinstance(one, RoundRefused))
        (reason,) = record.violations
        return reason


@pytest.fixture
def led() -> Led:
    return Led()


def test_never_two_decisions_at_once_when_an_assignor_hangs(hand: Hand, led: Led) -> None:
    """Each round is answered in time, also those that come while the assignor hangs."""
    slow = _SlowAssignor(hand)
    leader = led.lead(slow, timeout_ms=50)
    slow.takes_s = 1.0
    for generation in (1, 2, 3):
        leader.start(_duty(generation))
    hand.run()
    assert [one.decision.refused for one in led.answers()] == [True] * 3
    assert (slow.inside, slow.inside_max) == (0, 1)
    leader.start(_duty(4))
    hand.run()
    assert not led.answers()[-1].decision.refused


def test_leaders_side_is_loaded_once_and_not_by_the_caller(
    hand: Hand, led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def make(*given: object) -> object:
        made.append(given)
        return given

    monkeypatch.setattr(Decider, "of", make)
    leader = led.lead()
    leader.prepare()
    assert made == []
    hand.run()
    leader.prepare()
    hand.run()
    assert len(made) == 1


def test_nothing_is_decided_when_it_was_stopped(hand: Hand, led: Led) -> None:
    """A stopped leader's thread could crash inside NumPy when the interpreter exits."""
    leader = led.lead()
    leader.start(_duty(1))
    leader.look_over(_look_over(None))
    leader.stop()
    leader.start(_duty(2))
    hand.advance(60.0)
    assert led.posted == []
    assert cast("_Lookup", leader.lookup).is_closed


# --- whatever is raised, the round is answered ------------------------------------------------


def _assignor(assign: object = StickyAssignor().assign, **more: bool) -> object:
    """Return an assignor that does not state whether it needs lags, unless told to."""
    return SimpleNamespace(name="made", assign=assign, **more)


def _quit(group: GroupSnapshot, lags: Int64Array) -> Int32Array:
    """Exit, as a script may that ignores threads."""
    raise SystemExit(f"{len(group.members)} members, {len(lags)} lags")


class _StatelessPolicy:
    """The simple policy with an invalid state."""

    name = "stateless"
    offer = SimplePolicy().offer

    def stage(
        self, group: GroupSnapshot, target: Int32Array, context: RoundContext, offer: Offer
    ) -> StagedRound:
        plan = SimplePolicy().stage(group, target, context, offer).plan
        return StagedRound(plan=plan, state=cast("PolicyState", {"anything": 1}))


DICT = "policy stateless: TypeError: expected a PolicyState, got a dict"
MEMORY = object()


@pytest.mark.parametrize(
    ("assignor", "policy", "state", "reason"),
    [
        (_assignor(), None, None, "needs_lags"),
        (None, _StatelessPolicy(), None, DICT),
        (_assignor(_quit, needs_lags=False), None, None, "SystemExit: 1 members, 2 lags"),
        (object(), object(), None, "attribute"),
        (None, None, MEMORY, "object"),
    ],
)
def test_round_when_anything_is_raised_moves_nothing(
    hand: Hand, led: Led, assignor: object, policy: object, state: object, reason: str
) -> None:
    led.lead(assignor, policy).start(_duty(2, state, a=EXISTING))
    hand.run()
    assert reason in led.refusal()
    decision = led.answers()[0].decision
    ((_, message),) = decision.assignments
    assert decode_assignment(message).assigned == EXISTING
    assert decision.state.members.ids == ("a",)


def test_round_when_reading_the_members_takes_too_long_is_answered_once(
    hand: Hand, led: Led
) -> None:
    def read_slowly(members: Sequence[JoinedMember]) -> RoundRequest:
        hand.advance(0.05, urgent=True)
        return read_members(members)

    leader = led.lead(timeout_ms=50)
    leader.read = read_slowly
    leader.start(_duty(1))
    hand.run()
    assert "no decision within 50 ms" in led.refusal()


@pytest.mark.parametrize("protocol", ["", "cooperative-sticky", "range"])
def test_refusal_decodes_no_subscription_again(
    hand: Hand, led: Led, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """A hostile subscription makes the first reading slow; a second one would be as slow."""
    reads: list[bytes] = []

    def read_slowly(content: bytes, **options: bool) -> tuple[Subscription, bytes | None]:
        reads.append(content)
        hand.advance(0.05, urgent=True)
        return read_subscription(content, index_min=0, skips_rest=options["skips_rest"])

    monkeypatch.setattr("coopgroup.core.leader.request.read_subscription", read_slowly)
    duty = _duty(1)
    context = attrs.evolve(duty.context, protocol=protocol)
    led.lead(timeout_ms=50).start(attrs.evolve(duty, context=context))
    hand.run()
    assert "no decision within 50 ms" in led.refusal()
    assert len(reads) == 1


def test_round_when_no_thread_is_to_be_had_is_answered(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Worker, "submit", refuse)
    led.lead().start(_duty(1))
    assert "RuntimeError: can't start new thread" in led.refusal()


def test_round_when_the_log_cannot_be_written_is_decided(
    hand: Hand, led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may fail, as that of an unreachable log server."""
    monkeypatch.setattr(logging.getLogger("coopgroup"), "handle", fail)
    led.lead(_assignor(needs_lags=True)).start(_duty(1))  # `_Lookup` has none
    hand.run()
    assert not led.answers()[0].decision.refused


# --- a leader that came back --------------------------------------------------------------------


def _look_over(shared_digest: int | None, *, has_digests: bool = True) -> LookOver:
    return LookOver(members=_duty(1).members, shared_digest=shared_digest, has_digests=has_digests)


@pytest.mark.parametrize(
    ("shared_digest", "has_digests", "asks"),
    [
        (resources_digest(EXISTING), True, False),
        (resources_digest(ResourceSet()), True, True),
        (None, True, True),
        (None, False, False),
    ],
    ids=["all is as it was", "partitions appeared", "not known", "never known to other clients"],
)
def test_leader_that_came_back_looks_its_topics_over(
    hand: Hand, led: Led, shared_digest: int | None, *, has_digests: bool, asks: bool
) -> None:
    """It compares later checks with this look-up; a change in between needs a round."""
    leader = led.lead()
    leader.look_over(_look_over(shared_digest, has_digests=has_digests))
    hand.advance(1.0)
    assert leader.seen == SEEN
    assert led.posted == ([RejoinRequested(reason="the leader returned")] if asks else [])


@pytest.mark.parametrize("led_since", [False, True])
def test_leader_that_came_back_without_metadata_knows_its_topics_unless_it_led_since(
    hand: Hand, led: Led, monkeypatch: pytest.MonkeyPatch, led_since: bool
) -> None:
    leader, since = led.lead(), SeenTopics(topics=("orders", "since"))

    def look(*_: object) -> TopicMetadata:
        if not led_since:
            raise OSError("no broker")
        leader.seen = since
        return TopicMetadata(resources=EXISTING)

    monkeypatch.setattr(_Lookup, "metadata", look)
    leader.look_over(_look_over(None))
    hand.advance(1.0)
    assert leader.seen == (since if led_since else SeenTopics(topics=("orders",)))


def test_leader_that_cannot_read_the_members_only_warns(
    hand: Hand, led: Led, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = JoinedMember(member_id="a", group_instance_id=None, metadata=None)  # type: ignore[arg-type]
    leader = led.lead()
    leader.look_over(attrs.evolve(_look_over(None), members=(unreadable,)))
    hand.advance(1.0)
    assert "topics_unavailable" in caplog.records[0].getMessage()
    assert leader.seen == SeenTopics()


def test_look_ups_that_the_close_ends_are_no_failures(
    hand: Hand, led: Led, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = led.lead()

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


# --- the lags of one moment hold for all rounds of a rebalance, or it never ends ----------------


ROUNDS_MAX = 8


@define
class _BusyTopic:
    """A topic with small lags that differ in each look-up, as in a group at rest."""

    random: Random
    partitions: int = 17
    looks: int = 0

    def metadata(self, _topics: object) -> TopicMetadata:
        return TopicMetadata(resources=ResourceSet({"orders": range(self.partitions)}))

    def lags(self, resources: ResourceSet) -> Lags:
        self.looks += 1
        values = [self.random.randrange(6) for _ in resources]
        return Lags(resources=resources, values=np.array(values, dtype=np.int64))


@define
class _Group:
    """Six members that follow each assignment immediately; the first one leads and owns all.

    Attributes:
        now_ms: clock; each pause that the leader announces advances it.
    """

    hand: Hand
    policy: Policy = field(factory=SimplePolicy)
    topic: _BusyTopic = field(factory=lambda: _BusyTopic(Random(1)))
    owned: dict[str, ResourceSet] = field(factory=lambda: dict.fromkeys("abcdef", ResourceSet()))
    now_ms: int = 0
    generation: int = 0
    led: Led = field(factory=Led)

    def __attrs_post_init__(self) -> None:
        self.owned["a"] = ResourceSet({"orders": range(self.topic.partitions)})
        self.led.lead(LagAwareAssignor(scope="group"), self.policy, 10_000, self.topic)

    def play_round(self) -> bool:
        """Play a round; return whether another one follows."""
        self.generation += 1
        before = self.led.answers()
        state = before[-1].decision.state if before else None
        self.led.leader.start(_duty(self.generation, state=state, now_ms=self.now_ms, **self.owned))
        self.hand.run()
        follows = False
        for name, content in self.led.answers()[-1].decision.assignments:
            assignment = decode_assignment(content)
            self.owned[name] = assignment.assigned
            pause_ms = assignment.rejoin_in_ms or 0
            follows = follows or assignment.revoked is not None or pause_ms > 0
            self.now_ms += pause_ms
        return follows

    def rebalance(self) -> None:
        """Play rounds until none follows."""
        assert not all(self.play_round() for _ in range(ROUNDS_MAX)), "it does not end"


RATIONED = IncrementalPolicy(
    max_moves_per_round=6, move_interval_ms=500, scheduled_rebalance_timeout_ms=9_000
)


def test_rebalance_ends_although_lags_change_from_round_to_round_or_in_its_pauses(
    subtests: pytest.Subtests,
) -> None:
    """The next rebalance looks the lags up again."""
    policies: list[Policy] = [SimplePolicy(), RATIONED]
    for policy, seed in product(policies, range(20)):
        with subtests.test(policy=policy, seed=seed), by_hand(waits=True) as hand:
            group = _Group(hand, policy, _BusyTopic(Random(seed)))
            group.rebalance()
            looks = group.topic.looks
            group.rebalance()
            assert group.topic.looks > looks


@pytest.mark.parametrize("happens", ["another member leads", "the topic grows"])
def test_lags_are_looked_up_again_when_something_happens_meanwhile(
    hand: Hand, happens: str
) -> None:
    group = _Group(hand)
    assert group.play_round()
    if happens == "another member leads":
        group.generation += 1
    else:
        group.topic.partitions += 1
    looks = group.topic.looks
    group.play_round()
    assert group.topic.looks == looks + 1


# --- lag checks run off the group's thread, one at a time, and never delay a round ----------------


RULE = BalanceRule(
    interval_ms=1_000,
    ratio=1.5,
    calm_ratio=1.2,
    looks=1,
    lag_min=10,
    cooldown_ms=10_000,
    moves_max=2,
)
GROUP = group_of({"T": range(4)}, claim("A", {"T": [0, 1]}), claim("B", {"T": [2, 3]}))
UNEVEN = Lags.from_mapping({"T": {0: 500, 1: 500}})


def duty(number: int = 1) -> CheckLags:
    watch = LagWatch(rule=RULE, group=GROUP, asked=False, moved=False)
    return CheckLags(number=number, watch=watch, context=at_rest(GROUP))


@define
class Watched:
    """A watcher, with its posts and warnings.

    Attributes:
        looks: results of the look-ups in order; the last one repeats.
        timeout_ms: time limit of a round, and so of a check.
        looked: number of checks so far.
    """

    hand: Hand
    looks: list[Callable[[], Lags]] = field(factory=lambda: [lambda: UNEVEN])
    timeout_ms: int = 10_000
    looked: int = 0
    posted: list[LagsChecked] = field(factory=list)
    warned: list[tuple[str, dict[str, Any]]] = field(factory=list)
    watcher: LagWatcher = field(init=False)

    def __attrs_post_init__(self) -> None:
        unused: Any = None
        sink: Any = SimpleNamespace(
            warn=lambda event, is_over, **fields: self.warned.append((event, fields))
        )
        leader = RoundLeader(
            assignor=LagAwareAssignor(),
            policy=IncrementalPolicy(lag_check_interval_ms=1_000, lag_imbalance_min=10),
            lookup=cast("Any", SimpleNamespace(lags=self._lags)),
            timeout_ms=self.timeout_ms,
            post=unused,
            sink=sink,
        )
        self.watcher = LagWatcher(leader=leader, post=self.posted.append)

    def _lags(self, resources: ResourceSet) -> Lags:
        assert resources == GROUP.resources
        self.looked += 1
        return (self.looks.pop(0) if len(self.looks) > 1 else self.looks[0])()

    def look(self, number: int = 1) -> None:
        self.watcher.start(duty(number))
        self.hand.run()


def failing() -> Lags:
    raise TimeoutError("no answer")


def test_look_when_it_fails_warns_once_and_the_next_one_counts(hand: Hand) -> None:
    watched = Watched(hand, looks=[failing, failing, lambda: UNEVEN, failing])
    watched.look()
    watched.look()
    assert watched.posted == []
    assert watched.warned == [("lag_check_failed", {"error": "TimeoutError: no answer"})]
    watched.look()
    assert len(watched.posted) == 1
    watched.look()
    assert [event for event, _ in watched.warned[1:]] == ["lag_check_succeeded", "lag_check_failed"]


def test_look_when_the_last_one_is_still_under_way_is_left_out(hand: Hand) -> None:
    watched = Watched(hand)
    for number in range(5, 10):
        watched.watcher.start(duty(number))
    hand.run()
    (checked,) = watched.posted
    assert (watched.looked, checked.number, checked.looks) == (1, 5, (("A", 1),))
    assert (checked.request is not None, watched.warned) == (True, [])


def test_look_when_a_round_is_being_decided_is_left_out(hand: Hand) -> None:
    """An assignor may not be thread-safe, and a round must not wait for a check."""
    watched = Watched(hand)
    with watched.watcher.leader.turn:
        watched.look()
    assert watched.posted == []
    watched.look()
    assert len(watched.posted) == 1


def test_look_when_no_thread_is_to_be_had_is_left_out(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    watched = Watched(hand)
    with monkeypatch.context() as patched:
        patched.setattr(Worker, "submit", no_thread)
        watched.watcher.start(duty())
    assert watched.warned[0][0] == "lag_check_failed"
    watched.look()
    assert len(watched.posted) == 1
