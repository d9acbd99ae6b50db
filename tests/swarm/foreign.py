"""`ForeignProcess`: a minimal client of another vendor, as KIP-429 and the protocols require.

It follows Kafka's documents and deliberately does not use the member, leader, assignors and
policies of coopgroup. Only the codecs are shared. It has no lease and no static id. After an error
it rejoins, as Kafka's clients do. A process is eager if one of its protocols is eager, as in
Kafka's Java client.

A process with `lies` is hostile: it says and decides what they tell it, owns nothing, and leaves no
telemetry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field

from coopgroup.core.member.effects import Lane, Send
from coopgroup.core.member.events import Answered, RequestFailed
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group import NO_GENERATION
from coopgroup.core.model.group_api import (
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

    from coopgroup.core.member import MemberConfig
    from coopgroup.core.model.group_api import Answer, GroupRequest, JoinedMember
    from coopgroup.simulator.host.process import Process
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import World
    from tests.swarm.hostile import Lies

COOPERATIVE: Final = "cooperative-sticky"
"""The protocol of KIP-429; all others of Kafka's clients are eager."""

_HEARTBEAT_MS: Final = 40
_STOP_MS_MAX: Final = 10
_RETRY_MS: Final = 20
_REQUEST_TIMEOUT_MS: Final = 10_000


@define(eq=False)
class ForeignProcess:
    """A process with one consumer.

    Attributes:
        simulation: the group.
        name: of the process.
        topics: subscribed topics, ascending.
        protocols: supported protocols, in order of preference.
        lies: what a hostile process says and decides; None for an honest process.
        alive: False once it has ended.
        refused: whether the coordinator rejected it.
        owned: owned partitions.
        state: "joining", "syncing", "stable" or "stopping".
    """

    simulation: Simulation
    name: str
    topics: tuple[str, ...]
    protocols: tuple[str, ...]
    lies: Lies | None = None
    alive: bool = True
    refused: bool = False
    owned: ResourceSet = EMPTY
    state: str = "joining"
    _member_id: str = ""
    _generation: int = NO_GENERATION
    _protocol: str = ""
    # Partition counts of the topics when it led last; None for a follower.
    _dealt_of: dict[str, int] | None = None
    _requests: int = 0
    _asked: dict[int, GroupRequest] = field(factory=dict)
    _dice: random.Random = field(init=False)

    @property
    def is_eager(self) -> bool:
        """Whether it revokes all partitions before each join."""
        return self.protocols != (COOPERATIVE,)

    @property
    def is_at_rest(self) -> bool:
        """Whether the process does nothing until an outside event."""
        return self.state == "stable"

    def start(self) -> None:
        """Join the group."""
        self._dice = self.simulation.world.dice(f"foreign {self.name}")
        self._write(ProcessStarted(topics=self.topics))
        self._join()
        self._later(_HEARTBEAT_MS, self._beat)

    def close(self) -> None:
        """Stop all partitions, leave the group and end."""
        if self.alive:
            self._stop(self.owned, StopReason.CLOSED)
            leave = LeaveGroupRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                group_instance_id=None,
                reason="closed",
            )
            self._send(leave, Lane.COMMIT)
            self._end(EndCause.CLOSED)

    def crash(self) -> None:
        """End without leaving the group."""
        if self.alive:
            self._end(EndCause.CRASHED)

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
                self.refused = True
                self._stop(self.owned, StopReason.LOST)
                self._end(EndCause.CLOSED)
            case SyncGroupAnswer(error_code=0):
                self._synced(answer.assignment)
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
            if self.lies is None:
                decided = self._assign(answer.members)
            else:
                told = self.lies.decided(answer.member_id, answer.members)
                if told is None:  # it never sends its sync
                    return
                decided = told
        self._later(self._dice.randint(1, 10), self._sync, answer.generation, decided)

    def _synced(self, assignment: bytes) -> None:
        if self.lies is not None:
            self.state = "stable"
            return
        assigned = decode_kafka_assignment(assignment).assigned
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
            self.state = "stopping"
            self._later(self._dice.randint(1, _STOP_MS_MAX), self._stop_and_join, taken)

    def _rejoin(self) -> None:
        if self.is_eager and self.owned:
            self.state = "stopping"
            self._later(self._dice.randint(1, _STOP_MS_MAX), self._stop_and_join, self.owned)
        else:
            self._join()

    def _stop_and_join(self, resources: ResourceSet) -> None:
        self._stop(resources & self.owned, StopReason.REVOKED)
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
        if self.lies is None:
            subscription = Subscription(
                topics=self.topics, owned=self.owned, generation=self._generation
            )
            told = encode_subscription(subscription)
        else:
            told = self.lies.subscription(self._generation)
        config = self.simulation.config
        self._send(
            JoinGroupRequest(
                group_id=self._group_id,
                member_id=self._member_id,
                group_instance_id=None,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_timeout_ms,
                protocol_type="consumer",
                protocols=tuple((name, told) for name in self.protocols),
                reason="",
            ),
            Lane.JOIN,
        )

    def _sync(self, generation: int, decided: tuple[tuple[str, bytes], ...]) -> None:
        if self.state == "syncing" and generation == self._generation:
            self._send(
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
        self._later(_HEARTBEAT_MS, self._beat)
        if self._generation != NO_GENERATION:
            beat = HeartbeatRequest(
                group_id=self._group_id,
                generation=self._generation,
                member_id=self._member_id,
                group_instance_id=None,
            )
            self._send(beat, Lane.COMMIT)
        if (
            self.state == "stable"
            and self._dealt_of is not None
            and self._dealt_of != self._counts(self._dealt_of)
        ):
            self._rejoin()  # the leader watches the topics
        elif self.state == "stable" and self.lies is not None and self.lies.rejoins:
            self._join()

    def _send(self, request: GroupRequest, lane: Lane) -> None:
        self._requests += 1
        kept = (asked for asked in self._asked.items() if not isinstance(asked[1], type(request)))
        self._asked = {**dict(kept), self._requests: request}
        node_id = self.simulation.brokers.coordinator.node_id
        send = Send(
            request_id=self._requests,
            lane=lane,
            coordinator=Coordinator(node_id=node_id, host="", port=1),
            request=request,
            timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        self.simulation.network.send(cast("Process", self), send)

    # --- the rest ---------------------------------------------------------------------------------

    @property
    def _group_id(self) -> str:
        return self.simulation.config.group_id

    @property
    def config(self) -> MemberConfig:
        """Settings that the network needs."""
        return self.simulation.config

    @property
    def world(self) -> World:
        """The world of the simulation."""
        return self.simulation.world

    def _stop(self, resources: ResourceSet, reason: StopReason) -> None:
        if resources:
            self.owned -= resources
            self._write(ResourcesStopped(resources=resources, reason=reason, duration_ms=0))

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
        if self.lies is not None:
            return
        self.simulation.world.write(
            record, client=self.name, member=self._member_id, generation=self._generation
        )


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
