"""Minimal clients of other vendors: `ClassicProcess` as KIP-429 requires, and `Kip848Process`.

They follow Kafka's documents and deliberately do not use the member, leader, assignors and policies
of coopgroup. Only the codecs are shared. They have no lease and no static id, and rejoin after an
error, as Kafka's clients do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from attrs import Factory, define, field

from coopgroup.member import ErrorCode
from coopgroup.member.effects import Lane, Send
from coopgroup.member.events import Answered, RequestFailed
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.claims import NO_GENERATION
from coopgroup.model.group_api import (
    Coordinator,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.protocol import (
    KafkaAssignment,
    Subscription,
    decode_kafka_assignment,
    decode_subscription,
    encode_kafka_assignment,
    encode_subscription,
)
from coopgroup.simulator.coordinator.consumer_api import (
    JOINS,
    LEAVES,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
)
from coopgroup.telemetry import (
    AssignmentReceived,
    EndCause,
    ProcessEnded,
    ProcessStarted,
    ResourcesStopped,
    StopReason,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Sequence

    from coopgroup.member import MemberConfig
    from coopgroup.model.group_api import Answer, GroupRequest, JoinedMember
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import World

COOPERATIVE: Final = "cooperative-sticky"
"""The protocol of KIP-429; all others of Kafka's clients are eager."""

KIP_848: Final = "kip-848"
"""Stands for members of KIP-848 in place of the protocols of other clients."""

_BEAT_MS: Final = 40
_STOP_MS_MAX: Final = 10
_RETRY_MS: Final = 20
_REQUEST_TIMEOUT_MS: Final = 10_000


@define(eq=False, kw_only=True)
class ForeignProcess:
    """A process with one consumer; a subclass speaks the protocol.

    Attributes:
        simulation: the group.
        name: of the process.
        topics: subscribed topics, ascending.
        alive: False once it has ended.
        owned: owned partitions.
        state: "joining", "syncing", "stable" or "stopping".
    """

    vendor: ClassVar[str]
    simulation: Simulation
    name: str
    topics: tuple[str, ...]
    alive: bool = True
    owned: ResourceSet = EMPTY
    state: str = "joining"
    _member_id: str = ""
    _generation: int = NO_GENERATION
    _requests: int = 0
    _dice: random.Random = field(init=False)

    def start(self) -> None:
        """Join the group."""
        self._dice = self.simulation.world.dice(f"{self.vendor} {self.name}")
        self._write(ProcessStarted(topics=self.topics))
        self._join()
        self._later(_BEAT_MS, self._live)

    def close(self) -> None:
        """Stop all partitions, leave the group and end."""
        if self.alive:
            self._stop(self.owned, StopReason.CLOSED)
            self._leave()
            self._end(EndCause.CLOSED)

    def crash(self) -> None:
        """End without leaving the group."""
        if self.alive:
            self._end(EndCause.CRASHED)

    def give(self, event: Answered | RequestFailed) -> None:
        """Take the result of a request."""
        raise NotImplementedError

    @property
    def config(self) -> MemberConfig:
        """Settings that the network needs."""
        return self.simulation.config

    @property
    def world(self) -> World:
        """The world of the simulation."""
        return self.simulation.world

    def _join(self) -> None:
        raise NotImplementedError

    def _leave(self) -> None:
        raise NotImplementedError

    def _beat(self) -> None:
        raise NotImplementedError

    def _live(self) -> None:
        self._later(_BEAT_MS, self._live)
        self._beat()

    def _send(self, request: GroupRequest | ConsumerBeatRequest, lane: Lane) -> None:
        self._requests += 1
        node_id = self.simulation.brokers.coordinator.node_id
        send = Send(
            request_id=self._requests,
            lane=lane,
            coordinator=Coordinator(node_id=node_id, host="", port=1),
            request=cast("GroupRequest", request),
            timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        self.simulation.network.send(cast("Process", self), send)

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        if resources:
            self.owned -= resources
            self._write(ResourcesStopped(resources=resources, reason=reason, duration_ms=0))

    def _stop_soon(self, resources: ResourceSet) -> None:
        self.state = "stopping"
        self._later(self._dice.randint(1, _STOP_MS_MAX), self._revoke, resources)

    def _revoke(self, resources: ResourceSet) -> None:
        self._stop(resources & self.owned, StopReason.REVOKED)
        self._revoked(resources)

    def _revoked(self, resources: ResourceSet) -> None:
        raise NotImplementedError

    def _end(self, cause: EndCause) -> None:
        self.alive = False
        self._write(ProcessEnded(cause=cause))
        self.simulation.network.forget(cast("Process", self))

    def _later(self, delay_ms: int, action: Any, *arguments: Any) -> None:  # noqa: ANN401
        self.simulation.world.later(delay_ms, self._if_alive, action, arguments)

    def _if_alive(self, action: Any, arguments: tuple[Any, ...]) -> None:  # noqa: ANN401
        if self.alive:
            action(*arguments)

    def _write(self, record: Any) -> None:  # noqa: ANN401  (any record)
        self.simulation.world.write(
            record, client=self.name, member=self._member_id, generation=self._generation
        )


@define(eq=False, kw_only=True)
class Kip848Process(ForeignProcess):
    """A member of KIP-848, which the broker gives its partitions.

    As a real one, it sends only ConsumerGroupHeartbeat: to join, to live, to tell its owned
    partitions, and to leave. It joins again as a new member when it is fenced. A broker that
    refuses to convert the group ends a real client. Here a supervisor starts it again.
    """

    vendor = KIP_848
    _member_id: str = Factory(lambda self: self.name, takes_self=True)
    _generation: int = JOINS
    _stopping: ResourceSet = EMPTY

    def give(self, event: Answered | RequestFailed) -> None:
        """Take the answer to its last heartbeat."""
        if not self.alive or event.request_id != self._requests or isinstance(event, RequestFailed):
            return
        answer = cast("ConsumerBeatAnswer", event.answer)
        match answer.error_code:
            case ErrorCode.NONE:
                self._take(answer)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH:
                self._stop(self.owned, StopReason.LOST)
                self._generation, self._stopping, self.state = JOINS, EMPTY, "joining"
            case _:
                self.state = "joining"

    def _take(self, answer: ConsumerBeatAnswer) -> None:
        self._generation = answer.epoch
        gained, lacks = answer.assigned - self.owned, self.owned - answer.assigned - self._stopping
        if gained or lacks:
            kept = answer.assigned & self.owned
            record = AssignmentReceived(leader=False, gained=gained, kept=kept, revoked=lacks)
            self._write(record)
        self.owned |= gained
        self._stopping |= lacks
        self.state = "stopping" if self._stopping else "stable"
        if lacks:
            self._stop_soon(lacks)

    def _revoked(self, resources: ResourceSet) -> None:
        self._stopping -= resources
        self._beat()

    def _join(self) -> None:
        self._beat()

    def _leave(self) -> None:
        self._generation = LEAVES
        self._beat()

    def _beat(self) -> None:
        config = self.simulation.config
        request = ConsumerBeatRequest(
            group_id=config.group_id,
            member_id=self.name,
            epoch=self._generation,
            topics=self.topics,
            owned=self.owned,
            session_ms=config.session_timeout_ms,
            rebalance_ms=config.rebalance_timeout_ms,
        )
        self._send(request, Lane.COMMIT)


@define(eq=False, kw_only=True)
class ClassicProcess(ForeignProcess):
    """A client of Kafka's classic protocols.

    It is eager if one of its protocols is eager, as in Kafka's Java client.

    Attributes:
        protocols: supported protocols, in order of preference.
    """

    vendor = "foreign"
    protocols: tuple[str, ...]
    _protocol: str = ""
    # Partition counts of the topics when it led last; None for a follower.
    _dealt_of: dict[str, int] | None = None
    _asked: dict[int, GroupRequest] = field(factory=dict)

    @property
    def is_eager(self) -> bool:
        """Whether it revokes all partitions before each join."""
        return self.protocols != (COOPERATIVE,)

    def _leave(self) -> None:
        leave = LeaveGroupRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            group_instance_id=None,
            reason="closed",
        )
        self._ask(leave, Lane.COMMIT)

    # --- what happens to it -----------------------------------------------------------------------

    def give(self, event: Answered | RequestFailed) -> None:
        """Take the result of a request if it is the last of its kind."""
        asked = self._asked.pop(event.request_id, None)
        if asked is None or not self.alive:
            return
        if isinstance(event, RequestFailed):
            if not isinstance(asked, (HeartbeatRequest, LeaveGroupRequest)):
                self._later(_RETRY_MS, self._rejoin)
            return
        self._take(event.answer)

    def _take(self, answer: Answer) -> None:
        match answer:
            case JoinGroupAnswer(error_code=0):
                self._joined(answer)
            case JoinGroupAnswer(error_code=79):
                self._member_id = answer.member_id
                self._join()
            case JoinGroupAnswer(error_code=23):
                self._stop(self.owned, StopReason.LOST)
                self._end(EndCause.CLOSED)
            case SyncGroupAnswer(error_code=0):
                self._synced(decode_kafka_assignment(answer.assignment).assigned)
            case SyncGroupAnswer(error_code=22 | 27):
                self._rejoin()
            case HeartbeatAnswer():
                self._heard(answer.error_code)
            case JoinGroupAnswer() | SyncGroupAnswer():
                self._lose()
            case _:
                pass

    def _heard(self, code: int) -> None:
        """Handle a heartbeat's error code; during a round only an unknown member id matters."""
        if code == 25 or (code == 22 and self.state == "stable"):
            self._lose()
        elif code == 27 and self.state == "stable":
            self._rejoin()

    def _joined(self, answer: JoinGroupAnswer) -> None:
        self._member_id, self._generation = answer.member_id, answer.generation
        self._protocol, self.state = answer.protocol_name, "syncing"
        decided: tuple[tuple[str, bytes], ...] = ()
        self._dealt_of = None
        if answer.leader_id == answer.member_id:
            decided = self._assign(answer.members)
        self._later(self._dice.randint(1, 10), self._sync, answer.generation, decided)

    def _synced(self, assigned: ResourceSet) -> None:
        taken = self.owned - assigned
        self._write(
            AssignmentReceived(
                leader=False,
                gained=assigned - self.owned,
                kept=assigned & self.owned,
                revoked=taken,
            )
        )
        self.owned |= assigned
        self.state = "stable"
        if taken:  # KIP-429: stop it, then rejoin without it
            self._stop_soon(taken)

    def _rejoin(self) -> None:
        if self.is_eager and self.owned:
            self._stop_soon(self.owned)
        else:
            self._join()

    def _revoked(self, resources: ResourceSet) -> None:
        self._join()

    def _lose(self) -> None:
        self._stop(self.owned, StopReason.LOST)
        self._member_id, self._generation = "", NO_GENERATION
        self._join()

    # --- its duty as a leader ---------------------------------------------------------------------

    def _assign(self, members: Sequence[JoinedMember]) -> tuple[tuple[str, bytes], ...]:
        """Assign the partitions of each topic to its subscribers.

        A member without topics is ignored and gets no assignment, as in librdkafka. In the
        cooperative protocol no member gets a partition that another member still claims (KIP-429).
        """
        said = {member.member_id: decode_subscription(member.metadata) for member in members}
        said = {member_id: one for member_id, one in said.items() if one.topics}
        given: dict[str, list[tuple[str, int]]] = {member_id: [] for member_id in said}
        topics = sorted({topic for one in said.values() for topic in one.topics})
        self._dealt_of = self._counts(topics)
        for topic, count in self._dealt_of.items():
            claims = {
                member_id: {index for name, index in one.owned if name == topic}
                for member_id, one in said.items()
                if topic in one.topics
            }
            for member_id, share in self._dealt(claims, count).items():
                given[member_id] += [(topic, index) for index in share]
        return tuple(
            (
                member_id,
                encode_kafka_assignment(KafkaAssignment(assigned=ResourceSet.from_pairs(share))),
            )
            for member_id, share in sorted(given.items())
        )

    def _counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: self.simulation.brokers.topics.get(topic, 0) for topic in topics}

    def _dealt(self, claims: dict[str, set[int]], count: int) -> dict[str, set[int]]:
        if self._protocol != COOPERATIVE:
            return _dealt_evenly({member_id: set() for member_id in claims}, count)
        shares = _dealt_evenly(claims, count)
        for member_id in shares:
            others = (claimed for other, claimed in claims.items() if other != member_id)
            shares[member_id] -= set().union(*others)
        return shares

    # --- what it sends ----------------------------------------------------------------------------

    def _join(self) -> None:
        self.state = "joining"
        subscription = Subscription(
            topics=self.topics, owned=self.owned, generation=self._generation
        )
        config = self.simulation.config
        self._ask(
            JoinGroupRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                group_instance_id=None,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
                protocol_type="consumer",
                protocols=tuple(
                    (name, encode_subscription(subscription)) for name in self.protocols
                ),
                reason="",
            ),
            Lane.JOIN,
        )

    def _sync(self, generation: int, decided: tuple[tuple[str, bytes], ...]) -> None:
        if self.state == "syncing" and generation == self._generation:
            self._ask(
                SyncGroupRequest(
                    group_id=self._group_id,
                    generation=generation,
                    member_id=self._member_id,
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocol_name=self._protocol,
                    assignments=decided,
                ),
                Lane.JOIN,
            )

    def _beat(self) -> None:
        if self._generation != NO_GENERATION:
            beat = HeartbeatRequest(
                group_id=self._group_id,
                generation=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
            )
            self._ask(beat, Lane.COMMIT)
        if (
            self.state == "stable"
            and self._dealt_of is not None
            and self._dealt_of != self._counts(self._dealt_of)
        ):
            self._rejoin()  # the leader watches the topics

    def _ask(self, request: GroupRequest, lane: Lane) -> None:
        kept = (asked for asked in self._asked.items() if not isinstance(asked[1], type(request)))
        self._asked = {**dict(kept), self._requests + 1: request}
        self._send(request, lane)

    @property
    def _group_id(self) -> str:
        return self.simulation.config.group_id


def _dealt_evenly(wishes: dict[str, set[int]], count: int) -> dict[str, set[int]]:
    """Return an even assignment that keeps claimed partitions with their claimants if possible."""
    shares: dict[str, set[int]] = {member_id: set() for member_id in sorted(wishes)}
    least_size, larger_max = divmod(count, len(shares))
    rest = []
    for partition in range(count):
        larger = sum(len(share) > least_size for share in shares.values())
        size_max = least_size + (larger < larger_max)
        wisher = next(
            (m for m, s in shares.items() if partition in wishes[m] and len(s) < size_max), None
        )
        if wisher is None:
            rest.append(partition)
        else:
            shares[wisher].add(partition)
    for partition in rest:
        least = min(shares, key=lambda member_id: len(shares[member_id]))
        shares[least].add(partition)
    return shares
