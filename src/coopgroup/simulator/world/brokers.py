"""`Brokers`: location of the group coordinator, existing topics, and answers to requests.

A request reaches the broker to which it was sent. Only the broker that has the group answers for
it. Answers return through `reply` of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import Answer, FindCoordinatorRequest
from coopgroup.simulator.coordinator import GroupCoordinator, refusal
from coopgroup.simulator.coordinator.answers import find_coordinator
from coopgroup.simulator.world import World
from coopgroup.simulator.world.calls import Call

NODES: Final = (1, 2, 3)
"""Ids of the brokers."""


@define(kw_only=True, eq=False)
class Brokers:
    """The cluster, as the group sees it.

    Attributes:
        index_min: first index of each topic: -1 in groups of connectors.
        topics: number of partitions of each topic, see `set_partitions`.
        names: name of each topic id, also of deleted topics.
        ids: id of each topic.
    """

    world: World
    coordinator: GroupCoordinator
    reply: Callable[[Call, Answer], None]
    break_off: Callable[[Call], None]
    index_min: int = 0
    topics: dict[str, int] = field(factory=dict)
    names: dict[str, str] = field(factory=dict)
    ids: dict[str, str] = field(factory=dict)
    # They rarely change, and leaders look them up often.
    _existing: ResourceSet = EMPTY
    _existing_by_id: ResourceSet = EMPTY
    _down_until_ms: int = 0
    _wakes_at_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        self.coordinator.existing = lambda: self._existing_by_id
        self.coordinator.names = lambda: self.names

    @property
    def is_up(self) -> bool:
        """Whether a broker has the group."""
        return self.world.now_ms >= self._down_until_ms

    def set_partitions(self, name: str, count: int) -> None:
        """Create, resize or delete a topic; one that is made again has a new topic id."""
        if not count:
            self.topics.pop(name, None)
            self.ids.pop(name, None)
        else:
            self.topics[name] = count
            topic_id = self.ids.setdefault(name, f"{name}/{len(self.names) + 1}")
            self.names[topic_id] = name
        first, sizes = self.index_min, self.topics.items()
        self._existing = ResourceSet({one: range(first, size) for one, size in sizes})
        by_id = {self.ids[one]: range(first, size) for one, size in sizes}
        self._existing_by_id = ResourceSet(by_id)

    def existing(self) -> ResourceSet:
        """Return every partition of every topic; every connector with its tasks."""
        return self._existing

    def serve(self, call: Call) -> None:
        """Process a request that has arrived."""
        request, to = call.send.request, call.send.coordinator
        if isinstance(request, FindCoordinatorRequest):
            self.reply(call, find_coordinator(self.coordinator.node_id, is_up=self.is_up))
        elif not self.is_up:
            self.break_off(call)
        elif to is None or to.node_id != self.coordinator.node_id:
            self.reply(call, refusal(request, ErrorCode.NOT_COORDINATOR))
        else:
            self.coordinator.receive(call, request, self.world.now_ms, client_id=call.process.name)
            self._send_answers()

    def move(self, node_id: int, down_ms: int = 0) -> None:
        """Let another broker take over the group, after `down_ms` if the old one died.

        If the old broker is alive, it refuses the waiting calls.
        """
        world = self.world
        before = self.coordinator.node_id
        if down_ms:
            world.fault(f"broker {before} dies, broker {node_id} has the group in {down_ms} ms")
        else:
            world.fault(f"group coordinator moves from broker {before} to broker {node_id}")
        self._down_until_ms = max(self._down_until_ms, world.now_ms + down_ms)
        waiting = self.coordinator.fail_over(node_id, self._down_until_ms)
        calls = [cast("Call", token) for token in waiting]  # the tokens here are calls
        for call in calls:
            if not down_ms:
                self.reply(call, refusal(call.send.request, ErrorCode.NOT_COORDINATOR))
        self._wake_in_time()

    def _send_answers(self) -> None:
        for token, answer in self.coordinator.take_answers():
            self.reply(cast("Call", token), answer)
        self._wake_in_time()

    def _wake_in_time(self) -> None:
        deadline_ms = self.coordinator.deadline_ms()
        if deadline_ms is None:
            return
        if self._wakes_at_ms is None or deadline_ms < self._wakes_at_ms:
            self._wakes_at_ms = deadline_ms
            self.world.at(deadline_ms, self._wake, deadline_ms)

    def _wake(self, at_ms: int) -> None:
        if self._wakes_at_ms != at_ms:
            return  # replaced by an earlier wake-up
        self._wakes_at_ms = None
        if self.is_up:
            self.coordinator.advance(self.world.now_ms)
            self._send_answers()
        else:
            self._wakes_at_ms = self._down_until_ms
            self.world.at(self._down_until_ms, self._wake, self._down_until_ms)
