"""How many members may listen on one partition of the bell's topic before its cost shows?

Each listener has a connection of its own and a Fetch that the broker holds, as a member has. The
listeners are sockets of this process, with requests that are encoded once: 2,000 consumers would
measure this machine instead of the broker. A ring is the record that a member sends.

For each number of listeners: the time from a ring until half of the listeners, and until the last,
have their answer; the processor time of the broker for a ring, and in a second without rings; and
its memory. The reading of the answers is part of the times. `read_ms` says how long it takes alone.
"""

from __future__ import annotations

import os
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from coopgroup.kafka.config.keys import BELL_TOPIC
from coopgroup.kafka.rpc.topics import ListenForRings, Produce
from coopgroup.testing import KafkaCluster

LISTENERS: Final = (10, 50, 200, 500, 1_000, 2_000)
RINGS: Final = 15
PAUSE_S: Final = 0.5
IDLE_S: Final = 5.0
_LISTEN_MS: Final = 30_000
_VERSION: Final = 12  # of both requests, as members send them
_LIMIT_S: Final = 60.0
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_LENGTH: Final = struct.Struct(">i")


def run(
    *, listeners: Sequence[int] = LISTENERS, rings: int = RINGS, idle_s: float = IDLE_S
) -> dict[str, Any]:
    """Measure each number of listeners.

    Returns:
        By number of listeners: medians over the rings in ms, and the broker's memory in MiB.
    """
    found: dict[str, Any] = {}
    for count in listeners:
        with KafkaCluster() as cluster, ExitStack() as opened:
            crowd = _Crowd(cluster, opened)
            for _ in range(count):
                crowd.add()
            crowd.listen()
            time.sleep(2.0)  # the broker has all requests, and has compiled their path
            idle_ms = _spent_ms(cluster, idle_s) / idle_s
            crowd.ring()  # the first ring opens files
            rows = [crowd.ring() for _ in range(rings)]
            found[str(count)] = {
                "half_ms": round(statistics.median(row.half_ms for row in rows), 2),
                "last_ms": round(statistics.median(row.last_ms for row in rows), 2),
                "read_ms": round(statistics.median(row.read_ms for row in rows), 2),
                "broker_ms_of_a_ring": round(
                    max(0.0, statistics.median(row.broker_ms for row in rows)), 1
                ),
                "broker_ms_of_an_idle_second": round(idle_ms, 1),
                "broker_mib": _memory_mib(cluster.pid(1)),
            }
            print(count, found[str(count)], flush=True)
    return found


@define(kw_only=True)
class _Ring:
    half_ms: float
    last_ms: float
    read_ms: float
    broker_ms: float


@define
class _Crowd:
    """The listeners, and a producer that rings for them."""

    cluster: KafkaCluster
    opened: ExitStack
    sockets: list[socket.socket] = field(factory=list)
    selector: selectors.BaseSelector = field(factory=selectors.DefaultSelector)
    producer: socket.socket = field(init=False)
    rung: int = 0

    def __attrs_post_init__(self) -> None:
        self.producer = self._connect()
        self.opened.callback(self.selector.close)

    def _connect(self) -> socket.socket:
        host, _, port = self.cluster.bootstrap_servers.rpartition(":")
        return self.opened.enter_context(socket.create_connection((host, int(port))))

    def add(self) -> None:
        listener = self._connect()
        self.sockets.append(listener)
        self.selector.register(listener, selectors.EVENT_READ)

    def listen(self) -> None:
        """Send the requests for the next ring."""
        request = _encoded(
            ListenForRings(topic=BELL_TOPIC, partition=0, offset=self.rung, wait_ms=_LISTEN_MS)
        )
        for one in self.sockets:
            one.sendall(request)

    def ring(self) -> _Ring:
        """Ring once, and let all listeners hear it and listen again."""
        request = _encoded(
            Produce(
                topic=BELL_TOPIC,
                partition=0,
                group_id="orders",
                records=((time.time_ns() // 1_000_000, b""),),
                timeout_ms=5_000,
                acks=1,
            )
        )
        before_ms = _processor_ms(self.cluster.pid(1))
        began_s = time.perf_counter()
        self.producer.sendall(request)
        heard_s: list[float] = []
        reading_s = 0.0
        waiting = set(self.sockets)
        while waiting:
            if time.perf_counter() - began_s > _LIMIT_S:
                raise TimeoutError(f"{len(waiting)} listeners did not hear ring {self.rung}")
            for key, _ in self.selector.select(_LIMIT_S):
                at_s = time.perf_counter()
                listener = key.fileobj
                assert isinstance(listener, socket.socket)
                _read_answer(listener)
                waiting.discard(listener)
                heard_s.append(time.perf_counter() - began_s)
                reading_s += time.perf_counter() - at_s
        _read_answer(self.producer)
        self.rung += 1
        self.listen()
        time.sleep(PAUSE_S)
        return _Ring(
            half_ms=1000 * statistics.median(heard_s),
            last_ms=1000 * heard_s[-1],
            read_ms=1000 * reading_s,
            broker_ms=_processor_ms(self.cluster.pid(1)) - before_ms,
        )


def _encoded(request: ListenForRings | Produce) -> bytes:
    message = request.message()
    message.API_VERSION = _VERSION
    message.with_header(correlation_id=1, client_id="bench")
    encoded: bytes = bytes(message.encode(header=True, framed=True))
    return encoded


def _read_answer(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = connection.recv(size - len(read))
        if not more:
            raise ConnectionError("the broker closed a connection")
        read += more
    return read


def _spent_ms(cluster: KafkaCluster, seconds: float) -> float:
    before_ms = _processor_ms(cluster.pid(1))
    time.sleep(seconds)
    return _processor_ms(cluster.pid(1)) - before_ms


def _processor_ms(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return 1000 * _TICK_S * (int(fields[11]) + int(fields[12]))


def _memory_mib(process: int) -> int:
    return (
        int(Path(f"/proc/{process}/statm").read_text().split()[1])
        * os.sysconf("SC_PAGE_SIZE")
        // (1 << 20)
    )
