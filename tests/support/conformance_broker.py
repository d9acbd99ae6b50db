"""The real side of `conformance`: several clients of one broker, each with its own connections.

The clients are kept from program to program; each program has its own group.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from coopgroup.core.member.effects import Lane
from coopgroup.core.model import group_api as api
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.support.waiting import wait_for

LONG_MS: Final = 90_000
READY_S: Final = 30.0
# Numbers of groups; parallel players share the broker.
_NUMBERS: Final = itertools.count(1)


class BrokerClients:
    """Connections of several clients, and names for new groups."""

    def __init__(self, configuration: dict[str, Any], count: int) -> None:
        self.reported: list[BaseException] = []
        settings = read_connection_settings(configuration)
        self._transports = [GroupTransport(settings, self.reported.append) for _ in range(count)]
        for transport in self._transports:
            transport.start()
        self._node = self._find("warm-up")
        for number in range(count):
            self._connect_lane(number, Lane.JOIN)
            self._connect_lane(number, Lane.COMMIT)

    def new_group(self) -> str:
        return f"conformance-{next(_NUMBERS)}"

    def begin(self, client: int, lane: Lane, request: api.GroupRequest) -> queue.Queue[Any]:
        """Send a request; its outcome comes through the queue."""
        outcome: queue.Queue[Any] = queue.Queue()
        node = None if isinstance(request, api.FindCoordinatorRequest) else self._node
        self._transports[client].send(lane, request, outcome.put, node=node, timeout_ms=LONG_MS)
        return outcome

    def hang_up(self, client: int) -> None:
        """Close a client's connection for joins, and open it again."""
        self._transports[client].close_lane(Lane.JOIN)
        self._connect_lane(client, Lane.JOIN)

    def close(self) -> None:
        closed = [transport.close() for transport in self._transports]
        assert all(closed)
        assert self.reported == []

    def _connect_lane(self, client: int, lane: Lane) -> None:
        """Open the connection, so that the next request arrives without delay."""
        request = api.HeartbeatRequest(
            group_id="warm-up", generation=0, member_id="nobody", group_instance_id=None
        )
        answer = self.begin(client, lane, request).get(timeout=READY_S)
        assert isinstance(answer, api.HeartbeatAnswer), answer

    def _find(self, group_id: str) -> api.Coordinator:
        """Find the coordinator; a new broker needs a moment until it knows one."""
        request = api.FindCoordinatorRequest(group_id=group_id)
        found: list[api.Coordinator] = []

        def is_found() -> bool:
            outcome: queue.Queue[Any] = queue.Queue()
            transport = self._transports[0]
            transport.send(Lane.COMMIT, request, outcome.put, node=None, timeout_ms=LONG_MS)
            answer = outcome.get(timeout=READY_S)
            if isinstance(answer, api.FindCoordinatorAnswer) and answer.coordinator is not None:
                found.append(answer.coordinator)
            return bool(found)

        wait_for(is_found, "the broker has a coordinator", READY_S)
        return found[0]


@contextmanager
def connect(configuration: dict[str, Any], count: int) -> Iterator[BrokerClients]:
    """Yield clients; close them at the end."""
    clients = BrokerClients(configuration, count)
    try:
        yield clients
    finally:
        clients.close()
