"""Members of KIP-848 by hand: single heartbeats and commits on connections of a test.

A member of the library never sends a wrong epoch or claims a foreign partition. These do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self
from uuid import uuid4

from attrs import define, field
from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest

from coopgroup.core.member.effects import Lane
from coopgroup.core.model import group_api as api
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.questions import FindGroupTimeouts, FindTopics, Question
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.testing import KafkaCluster
from tests.support.waiting import wait_for

_TIMEOUT_MS: Final = 30_000
_GROUP: Final = 32
_SET: Final = 0
Owned = tuple[tuple[str, tuple[int, ...]], ...]


class _SetGroupConfig:
    """IncrementalAlterConfigs of a group."""

    asks_any_broker = True

    def __init__(self, group_id: str, values: Mapping[str, str]) -> None:
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        self._resource = kind(
            resource_type=_GROUP,
            resource_name=group_id,
            configs=[
                kind.AlterableConfig(name=name, config_operation=_SET, value=value)
                for name, value in values.items()
            ],
        )

    def message(self) -> Any:  # noqa: ANN401  (kafka-python's message)
        return IncrementalAlterConfigsRequest(resources=[self._resource], validate_only=False)

    def read(self, response: Any) -> tuple[int, str]:  # noqa: ANN401  (kafka-python's message)
        (answer,) = response.responses
        return answer.error_code, answer.error_message or ""


@define(eq=False)
class Wire:
    """A client's connections to one broker."""

    cluster: KafkaCluster
    reported: list[BaseException] = field(factory=list)
    node: api.Coordinator = field(init=False)
    _transport: GroupTransport = field(init=False)

    def __enter__(self) -> Self:
        settings = read_connection_settings(self.cluster.client_config())
        self._transport = GroupTransport(settings, self.reported.append)
        self._transport.start()
        self.find("any")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._transport.close()
        assert self.reported == []

    def find(self, group_id: str) -> None:
        """Find the coordinator; a new broker needs a moment until it knows one."""

        def found() -> bool:
            answer = self.ask(api.FindCoordinatorRequest(group_id=group_id))
            if answer.coordinator is not None:
                self.node = answer.coordinator
            return answer.coordinator is not None

        wait_for(found, "a coordinator")

    def ask(self, request: api.GroupRequest | Question, lane: Lane = Lane.JOIN) -> Any:  # noqa: ANN401  (the answer to the request)
        asks_any = isinstance(request, api.FindCoordinatorRequest)
        node = None if asks_any else self.node
        return self._transport.ask(lane, request, node=node, timeout_ms=_TIMEOUT_MS)

    def topic_id(self, topic: str) -> str:
        found = self.ask(FindTopics(names=(topic,)))
        return str(found[topic].topic_id)

    def set_group(self, group_id: str, **values: int) -> None:
        """Set configurations of a group; `_` stands for a dot."""
        named = {f"consumer.{name.replace('_', '.')}": str(value) for name, value in values.items()}
        assert self.ask(_SetGroupConfig(group_id, named)) == (0, "")
        if "session_timeout_ms" in values:  # brokers apply it a little later
            wait_for(lambda: self.session_ms(group_id) == values["session_timeout_ms"])

    def session_ms(self, group_id: str) -> int:
        """Return the session timeout of a group."""
        told = self.ask(FindGroupTimeouts(group_id=group_id))
        assert told.session_ms is not None
        return int(told.session_ms)


@define(eq=False)
class RawConsumer:
    """A member of a group. Its fields follow its answers.

    Attributes:
        owned: what the next heartbeat claims.
        assigned: the last assignment that an answer had.
    """

    wire: Wire
    group_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 60_000
    member_id: str = field(factory=lambda: str(uuid4()))
    epoch: int = 0
    owned: Owned = ()
    assigned: Owned = ()

    def beat(self, epoch: int | None = None, owned: Owned | None = None) -> api.ConsumerBeatAnswer:
        """Send a full heartbeat."""
        answer: api.ConsumerBeatAnswer = self.wire.ask(
            api.ConsumerBeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                epoch=self.epoch if epoch is None else epoch,
                group_instance_id=self.instance_id,
                topics=self.topics,
                owned=self.owned if owned is None else owned,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                assignor=self.assignor,
            )
        )
        if answer.error_code == 0 and answer.epoch >= 0:
            self.epoch = answer.epoch
            if answer.assigned is not None:
                self.assigned = answer.assigned
        return answer

    def join(self) -> api.ConsumerBeatAnswer:
        """Join, and own what the answer assigns."""
        answer = self.beat(epoch=api.JOINS, owned=())
        self.owned = self.assigned
        return answer

    def settle(self, *shares: int) -> None:
        """Beat and own the whole assignment until it has this many partitions."""

        def is_settled() -> bool:
            answer = self.beat()
            assert answer.error_code == 0, answer
            self.owned = self.assigned
            return self.count in shares

        wait_for(is_settled, f"{shares} partitions")

    @property
    def count(self) -> int:
        """How many partitions are assigned."""
        return sum(len(indices) for _, indices in self.assigned)

    def leave(self, *, for_now: bool = False) -> int:
        """Leave; return the error code."""
        epoch = api.LEAVES_FOR_NOW if for_now else api.LEAVES
        request = api.ConsumerBeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            epoch=epoch,
            group_instance_id=self.instance_id,
        )
        code: int = self.wire.ask(request).error_code
        return code

    def commit(
        self, *partitions: int, offset: int = 7, epoch: int | None = None, member_id: str = "own"
    ) -> list[int]:
        """Commit an offset of partitions of the first topic; return their error codes."""
        answer = self.wire.ask(
            api.OffsetCommitRequest(
                group_id=self.group_id,
                generation=self.epoch if epoch is None else epoch,
                member_id=self.member_id if member_id == "own" else member_id,
                group_instance_id=self.instance_id,
                offsets=tuple((self.topics[0], one, offset, -1, "") for one in partitions),
            ),
            Lane.COMMIT,
        )
        return [code for *_, code in answer.codes]
