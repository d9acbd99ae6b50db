"""A group of real `GroupDriver`s over the model of Kafka's coordinator, in virtual time.

No thread runs and nothing waits: `DrivenGroup.run` moves the clock of `by_hand` in steps of
`STEP_S`, and turns the coordinator, every driver and every application once in each step. The
drivers, sessions and leaders are those of a consumer. Only the sockets, the fetching and the
application are played here: each application fetches one record of each partition in each step,
as long as its lease allows, and commits four times a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.leader import TopicMetadata
from coopgroup.core.member import MemberState
from coopgroup.core.member.effects import (
    FailMember,
    GrantResources,
    Lane,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import (
    LossHandled,
    Offset,
    RevocationCompleted,
    SubscriptionChanged,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import Coordinator, GroupRequest
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.policies.policy import Policy
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.membership import driver as driver_module
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.telemetry import (
    Envelope,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    StopReason,
)
from tests.support.by_hand import Hand, by_hand
from tests.support.turned_driver import take_notice

STEP_S: Final = 0.01
TOPIC: Final = "t"
COMMIT_EVERY_S: Final = 0.25
SETTINGS: Final = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "max.poll.interval.ms": 60_000,
    "socket.timeout.ms": 2_000,
}
_TURNS_MAX: Final = 1_000


@define(frozen=True)
class Fetch:
    """A record that an application got."""

    at_s: float
    who: str
    partition: int
    offset: int


@define(eq=False)
class _Wire:
    """The transport of one member: requests reach the coordinator in the next step.

    Attributes:
        is_cut: whether the network swallows requests and answers.
        waiting: requests without an answer by token: lane, request, end of its time, callback.
    """

    name: str
    group: DrivenGroup
    is_cut: bool = False
    waiting: dict[int, tuple[Lane, GroupRequest | FindTopics, float, Callable[[Any], None]]] = (
        field(factory=dict)
    )
    queue: list[int] = field(factory=list)

    def send(
        self,
        lane: Lane,
        request: GroupRequest | FindTopics,
        on_answer: Callable[[Any], None],
        *,
        node: Coordinator | None,
        timeout_ms: int,
    ) -> None:
        token, now_s = next(self.group.tokens), self.group.hand.now_s
        self.waiting[token] = (lane, request, now_s + timeout_ms / 1000, on_answer)
        self.queue.append(token)

    def close_lane(self, lane: Lane) -> None:
        self._fail(lambda one: one[0] is lane, FailureKind.DISCONNECTED)

    def close(self, _timeout_ms: int) -> None:
        self._fail(lambda one: True, FailureKind.DISCONNECTED)

    def answer(self, token: int, answer: Any) -> None:  # noqa: ANN401  (one of several kinds)
        """Pass on an answer, unless nobody waits for it any more."""
        if not self.is_cut and token in self.waiting:
            self.waiting.pop(token)[-1](answer)

    def turn(self) -> None:
        """Deliver what was sent, and end what waited for too long."""
        queue, self.queue = self.queue, []
        for token in queue:
            if token in self.waiting and not self.is_cut:
                self.group.deliver(token, self.waiting[token][1], self.name)
        now_s = self.group.hand.now_s
        self._fail(lambda one: one[2] <= now_s, FailureKind.TIMED_OUT)

    def _fail(self, whether: Callable[[Any], bool], kind: FailureKind) -> None:
        for token in [token for token, one in self.waiting.items() if whether(one)]:
            self.waiting.pop(token)[-1](TransportFailure(kind=kind, message=kind.value))


@define(eq=False)
class DrivenMember:
    """A driver with the application that it works for.

    Attributes:
        owned: next offset of each partition that the application may fetch.
        heard: notices that the application served: time, kind, partitions.
        codes: error codes of its commits, with their times.
        records: telemetry.
        revoke: partitions of a revocation that stop at once; the test ends the others.
        is_polling: whether the application polls.
    """

    name: str
    group: DrivenGroup
    driver: GroupDriver
    wire: _Wire
    records: list[Record]
    owned: dict[int, int] = field(factory=dict)
    heard: list[tuple[float, str, tuple[int, ...]]] = field(factory=list)
    codes: list[tuple[float, int]] = field(factory=list)
    revoke: Callable[[set[int]], set[int]] = set
    is_polling: bool = True
    _commit_at_s: float = 0.0

    def work(self) -> None:
        """Poll once: serve the notices, fetch under the lease, and commit when it is time."""
        now_s = self.group.hand.now_s
        if not self.is_polling:
            return
        self.driver.polled_at_s = now_s
        while (notice := take_notice(self.driver)) is not None:
            self._serve(notice)
        if now_s >= self.driver.lease_until_s:
            return
        for partition, offset in self.owned.items():
            self.group.fetched.append(Fetch(now_s, self.name, partition, offset))
            self.owned[partition] = offset + 1
        if now_s >= self._commit_at_s and self.owned:
            self._commit_at_s = now_s + COMMIT_EVERY_S
            self.commit(self.owned)

    def _serve(self, notice: object) -> None:
        match notice:
            case GrantResources(resources=resources):
                partitions = self._note("grant", resources)
                committed = self.group.coordinator.committed
                self.owned |= {one: committed.get((TOPIC, one), 0) for one in partitions}
                self.driver.write(ResourcesStarted(resources=resources))
            case RevokeResources(resources=resources):
                self.finish(self.revoke(set(self._note("revoke", resources))))
            case LoseResources(resources=resources):
                self._note("lose", resources)
                self.owned.clear()
                self.driver.write(ResourcesStopped(resources=resources, reason=StopReason.LOST))
                self.driver.post(LossHandled())
            case FailMember(message=message):
                pytest.fail(f"{self.name}: {message}")
            case _:
                pytest.fail(f"{self.name} has no use for {notice}")

    def _note(self, kind: str, resources: ResourceSet) -> tuple[int, ...]:
        partitions = tuple(sorted(one.index for one in resources))
        self.heard.append((self.group.hand.now_s, kind, partitions))
        return partitions

    def finish(self, partitions: Iterable[int]) -> None:
        """Commit and give up revoked partitions."""
        stopped = sorted(partitions)
        if stopped:
            self.commit(stopped)
            for one in stopped:
                del self.owned[one]
            resources = ResourceSet({TOPIC: stopped})
            self.driver.write(ResourcesStopped(resources=resources, reason=StopReason.REVOKED))
            self.driver.post(RevocationCompleted(resources=resources))

    def commit(self, partitions: Iterable[int]) -> None:
        def done(codes: Iterable[tuple[str, int, int]]) -> None:
            self.codes.extend((self.group.hand.now_s, code) for _, _, code in codes)

        offsets = tuple(Offset(TOPIC, one, self.owned[one]) for one in sorted(partitions))
        self.driver.request_commit(offsets, done)

    def turn(self) -> None:
        """Let the driver handle all events, and what is due."""
        for _ in range(_TURNS_MAX):
            event = self.driver.take(0.0)
            assert event is not None
            self.driver.turn(event)
            if self.driver.pause_s() > 0 and not self.driver._events.are_waiting:  # noqa: SLF001 -- of a host
                return
        pytest.fail(f"{self.name} never rests: {self.driver.member}")

    # --- what tests ask --------------------------------------------------------------------------

    @property
    def is_stable(self) -> bool:
        return self.driver.member.state is MemberState.STABLE

    def told(self, kind: str) -> list[tuple[int, ...]]:
        return [partitions for _, one, partitions in self.heard if one == kind]


@define(eq=False)
class DrivenGroup:
    """Several members, their coordinator, and the clock.

    Attributes:
        members: those that run; a killed or frozen member is missing.
        fetched: every record, in the order of time.
        told: the telemetry of all members.
        leader_rests: whether leaders take their time: nothing is decided meanwhile.
        found_topics: outcome of all look-ups of the topic, instead of the true one.
    """

    hand: Hand
    partitions: int
    settings: Mapping[str, object]
    coordinator: GroupCoordinator = field(factory=GroupCoordinator)
    policy: Policy = field(factory=SimplePolicy)
    members: dict[str, DrivenMember] = field(factory=dict)
    fetched: list[Fetch] = field(factory=list)
    told: list[Envelope] = field(factory=list)
    leader_rests: bool = False
    found_topics: Any = None
    tokens: Iterator[int] = field(factory=count)
    _owners: dict[int, _Wire] = field(factory=dict)
    _next_wire: _Wire | None = None

    def add(self, *names: str, **more: object) -> None:
        """Start members; keywords are keys of the configuration, with `_` for `.`."""
        given = {key.replace("_", "."): value for key, value in more.items()}
        for name in names:
            self._next_wire = wire = _Wire(name, self)
            records: list[Record] = []

            def listen(envelope: Envelope, records: list[Record] = records) -> None:
                records.append(envelope.record)
                self.told.append(evolve(envelope, at_ms=self.now_ms))

            topics = TopicMetadata(resources=ResourceSet({TOPIC: range(self.partitions)}))
            lookup: Any = SimpleNamespace(metadata=lambda _, topics=topics: topics, close=list)
            driver = GroupDriver(
                settings=read_settings({**SETTINGS, **self.settings, **given, "client.id": name}),
                assignor=StickyAssignor(),
                policy=self.policy,
                lookup=lookup,
                sink=TelemetrySink("g", listener=listen),
            )
            self.members[name] = DrivenMember(name, self, driver, wire, records)
            driver.post(SubscriptionChanged(topics=(TOPIC,)))

    def close(self, name: str) -> None:
        """Close a consumer as its application would: commit, give up, leave."""
        member = self.members[name]
        if member.owned:
            member.commit(member.owned)
        member.owned.clear()
        member.driver.leave("closed", for_good=False)
        self.play_to(lambda: member.driver.member.state is MemberState.UNSUBSCRIBED, work=False)
        del self.members[name]
        member.driver.stop()

    def take_away(self, name: str) -> DrivenMember:
        """Freeze or kill a member: neither its threads nor its application run."""
        return self.members.pop(name)

    def move_coordinator(self) -> None:
        """Let another broker take over the group; connections to the old broker break."""
        for token in self.coordinator.fail_over(self.coordinator.node_id + 1, self.now_ms):
            gone = TransportFailure(kind=FailureKind.DISCONNECTED, message="moved")
            self._owners.pop(int(token)).answer(int(token), gone)  # type: ignore[call-overload]

    def deliver(self, token: int, request: GroupRequest | FindTopics, client: str) -> None:
        if isinstance(request, FindTopics):
            found = dict.fromkeys(request.names, FoundTopic(0, self.partitions))
            self.members[client].wire.answer(token, self.found_topics or found)
            return
        self._owners[token] = self.members[client].wire
        self.coordinator.receive(token, request, self.now_ms, client_id=client)

    @property
    def now_ms(self) -> int:
        return int(self.hand.now_s * 1000)

    # --- time ------------------------------------------------------------------------------------

    def run(self, seconds: float, *, work: bool = True) -> None:
        """Let the group live for some seconds."""
        for _ in range(round(seconds / STEP_S)):
            self._step(work=work)

    def play_to(
        self, condition: Callable[[], object], limit_s: float = 60.0, *, work: bool = True
    ) -> float:
        """Let the group live until a condition holds; return the seconds that this took."""
        began_s = self.hand.now_s
        while not condition():
            assert self.hand.now_s < began_s + limit_s, f"not within {limit_s:g} s: {self.shares()}"
            self._step(work=work)
        return self.hand.now_s - began_s

    def settle(self, limit_s: float = 60.0) -> float:
        """Live until every member is at rest with a fair share; return the seconds until then."""
        return self.play_to(self.is_fair, limit_s)

    def _step(self, *, work: bool) -> None:
        if self.leader_rests:
            self.hand.now_s += STEP_S
        else:
            self.hand.advance(STEP_S)
        for member in tuple(self.members.values()):
            member.wire.turn()
        self.coordinator.advance(self.now_ms)
        for token, answer in self.coordinator.take_answers():
            self._owners.pop(int(token)).answer(int(token), answer)  # type: ignore[call-overload]
        for member in tuple(self.members.values()):
            if work or member.owned:
                member.work()
            member.turn()

    # --- what tests ask --------------------------------------------------------------------------

    def shares(self) -> dict[str, set[int]]:
        return {name: set(member.owned) for name, member in self.members.items()}

    def is_fair(self) -> bool:
        counts = [len(one.owned) for one in self.members.values()]
        is_all = sum(counts) == self.partitions and max(counts) - min(counts) <= 1
        return is_all and all(one.is_stable for one in self.members.values())

    def leader(self) -> str:
        return next(name for name, one in self.members.items() if one.driver.leads)

    def gaps_s(self, begin_s: float) -> dict[int, float]:
        """Return the longest time without a record of each partition, from a time on."""
        last = dict.fromkeys(range(self.partitions), begin_s)
        gaps = dict.fromkeys(last, 0.0)
        for one in self.fetched:
            if one.at_s >= begin_s:
                gaps[one.partition] = max(gaps[one.partition], one.at_s - last[one.partition])
                last[one.partition] = one.at_s
        return {one: max(gaps[one], self.hand.now_s - last[one]) for one in gaps}

    def repeated(self) -> int:
        """Return how many records came more than once; fail if any record is missing."""
        offsets: dict[int, list[int]] = defaultdict(list)
        for one in self.fetched:
            offsets[one.partition].append(one.offset)
        for partition, got in offsets.items():
            assert set(got) == set(range(max(got) + 1)), f"partition {partition} lost records"
        return sum(len(got) - len(set(got)) for got in offsets.values())

    def check_single_owner(self) -> None:
        """Fail if two members fetched a partition at the same time."""
        owners: dict[tuple[float, int], str] = {}
        for one in self.fetched:
            assert owners.setdefault((one.at_s, one.partition), one.who) == one.who, one


@contextmanager
def driven_group(
    partitions: int = 12, settings: Mapping[str, object] = MappingProxyType({})
) -> Iterator[DrivenGroup]:
    """Yield a group without members; all of it ends with the test."""
    with by_hand() as hand, pytest.MonkeyPatch.context() as patch:
        group = DrivenGroup(hand, partitions, settings)
        patch.setattr(driver_module, "GroupTransport", lambda *_: group._next_wire)  # noqa: SLF001
        yield group
        group.check_single_owner()
        for member in group.members.values():
            member.driver.stop()
