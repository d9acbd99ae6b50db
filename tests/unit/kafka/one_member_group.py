"""A driver, turned by hand, over a transport and a coordinator with one member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from uuid import UUID

import attrs
import pytest
from attrs import define, field

from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.leader import TopicMetadata
from coopgroup.core.member import GroupProtocol
from coopgroup.core.member.effects import GrantResources, Lane
from coopgroup.core.member.events import Offset, SubscriptionChanged
from coopgroup.core.model import ResourceSet
from coopgroup.core.model import group_api as api
from coopgroup.core.policies.built_in import SimplePolicy
from coopgroup.core.session import SeenTopics
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.membership import driver as driver_module
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.identity import IdentitySlot
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import FindGroupTimeouts, GroupTimeouts
from tests.support.by_hand import Hand
from tests.support.turned_driver import take_notice, turn_drivers

WAIT_S = 60.0  # of a wait that an event ends
ORDERS = ResourceSet({"orders": [0, 1]})
ORDERS_ID = UUID(int=848)
SEEN = SeenTopics(topics=("orders",), partitions=ORDERS)
SETTINGS = {
    "bootstrap.servers": "127.0.0.1:1",
    "coopgroup.bell.topic": "",
    "group.id": "g",
    "session.timeout.ms": 600,
    "heartbeat.interval.ms": 20,
    "max.poll.interval.ms": 800,
    "socket.timeout.ms": 200,
}
STATE = {"coopgroup.state.dir": "the slot counts"}
Outcome = api.Answer | TransportFailure | None


@define(eq=False)
class OneMemberGroup:
    """A transport and a coordinator in one.

    Attributes:
        requests: kinds of requests, in order.
        override: returns an answer that replaces the usual one; None keeps the request waiting.
        silent: kinds of requests that wait for their answer.
        held: pending requests with their callbacks.
        is_closed: whether the driver closed it.
        report: receives the transport's own errors.
        failure: raised by the next request.
        timeouts: what it answers to the question for the group's session timeout.
    """

    requests: list[type] = field(factory=list)
    override: Callable[[api.GroupRequest], Outcome] | None = None
    silent: frozenset[type] = frozenset()
    held: list[tuple[api.GroupRequest, Callable[[Any], None]]] = field(factory=list)
    is_closed: bool = False
    report: Callable[[BaseException], None] | None = None
    failure: Exception | None = None
    timeouts: GroupTimeouts | TransportFailure = field(
        factory=lambda: GroupTimeouts(error_code=0, session_ms=45_000)
    )

    def start(self) -> None:
        pass

    def close(self, _timeout_ms: int) -> None:
        self.is_closed = True

    def close_lane(self, _lane: Lane) -> None:
        pass

    def send(
        self,
        _lane: Lane,
        request: api.GroupRequest | FindGroupTimeouts,
        on_answer: Callable[[Any], None],
        *,
        node: api.Coordinator | None,
        timeout_ms: int,
    ) -> None:
        assert timeout_ms > 0
        if self.failure is not None:
            raise self.failure
        if isinstance(request, FindGroupTimeouts):
            on_answer(self.timeouts)
            return
        self.requests.append(type(request))
        if type(request) in self.silent:
            self.held.append((request, on_answer))
            return
        answer = None if self.override is None else self.override(request)
        on_answer(usual_answer(request) if answer is None else answer)

    def refuse(self, kind: type, failure: FailureKind) -> None:
        refusal = TransportFailure(kind=failure, message="refused")
        self.override = lambda request: refusal if isinstance(request, kind) else None

    def answer_held(self) -> None:
        """Answer the pending requests, and all later requests immediately."""
        self.silent = frozenset()
        held, self.held = self.held, []
        for request, on_answer in held:
            on_answer(usual_answer(request))


_DONE: dict[type, api.Answer] = {
    api.HeartbeatRequest: api.HeartbeatAnswer(error_code=0),
    api.LeaveGroupRequest: api.LeaveGroupAnswer(error_code=0),
}


def usual_answer(request: api.GroupRequest) -> api.Answer:
    match request:
        case api.FindCoordinatorRequest():
            here = api.Coordinator(node_id=1, host="localhost", port=1)
            return api.FindCoordinatorAnswer(error_code=0, error_message="", coordinator=here)
        case api.JoinGroupRequest():
            name, subscription = request.protocols[0]
            member = api.JoinedMember(member_id="m", group_instance_id=None, metadata=subscription)
            return api.JoinGroupAnswer(
                error_code=0,
                generation=1,
                protocol_name=name,
                leader_id="m",
                member_id="m",
                members=(member,),
                skip_assignment=False,
            )
        case api.SyncGroupRequest():
            return api.SyncGroupAnswer(error_code=0, assignment=dict(request.assignments)["m"])
        case api.HeartbeatRequest() | api.LeaveGroupRequest():
            return _DONE[type(request)]
        case api.ConsumerBeatRequest():
            assigned = ((str(ORDERS_ID), (0, 1)),)
            return api.ConsumerBeatAnswer(error_code=0, epoch=1, interval_ms=100, assigned=assigned)
        case api.OffsetCommitRequest():
            codes = tuple((one[0], one[1], 0) for one in request.offsets)
            return api.OffsetCommitAnswer(codes=codes)


class _Lookup:
    def metadata(self, _topics: object) -> TopicMetadata:
        return TopicMetadata(resources=ORDERS)

    def close(self) -> None:
        pass


DriverAndGroup = tuple[GroupDriver, OneMemberGroup]


@contextmanager
def running(
    hand: Hand,
    slot: IdentitySlot | None = None,
    more: Mapping[str, object] = MappingProxyType({}),
    protocol: GroupProtocol = GroupProtocol.CLASSIC,
) -> Iterator[DriverAndGroup]:
    """Start a driver; its events and deadlines are jobs of the hand.

    Args:
        hand: runs the jobs.
        slot: stored identity, or None.
        more: configuration.
        protocol: group protocol of the member.
    """
    settings = read_settings(SETTINGS | dict(more))
    member = attrs.evolve(settings.member, protocol=protocol)
    settings = attrs.evolve(settings, member=member)
    group = OneMemberGroup()

    def transport(_settings: object, report: Callable[[BaseException], None]) -> OneMemberGroup:
        group.report = report
        return group

    lookup: Any = _Lookup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver_module, "GroupTransport", transport)
        turn_drivers(patch)
        driver = GroupDriver(
            settings=settings,
            assignor=StickyAssignor(),
            policy=SimplePolicy(),
            lookup=lookup,
            sink=TelemetrySink("g"),
            slot=slot,
        )
        driver.start()
        yield driver, group
        driver.stop()
    assert group.is_closed


def subscribe(hand: Hand, driver: GroupDriver) -> None:
    driver.post(SubscriptionChanged(topics=("orders",)))
    hand.run()
    assert take_notice(driver) == GrantResources(resources=ORDERS)
    assert driver.inbox.take_call() is None


def commit(driver: GroupDriver) -> list[tuple[tuple[str, int, int], ...]]:
    """Request a commit; the list receives the outcome."""
    outcome: list[tuple[tuple[str, int, int], ...]] = []
    driver.request_commit((Offset("orders", 0, 5),), outcome.append)
    return outcome


def fail(*_: object, **__: object) -> Any:  # noqa: ANN401  (never returns)
    """Stand in for a part with a bug."""
    raise LookupError("a bug")


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(one.getMessage() for one in caplog.records)
