"""A broker that vanishes silently: its host is gone, or a firewall forgot the connection.

The broker runs in a network namespace. Removing the routes silences both the program and its
kernel. A proxy that stops forwarding would not do: its kernel answers the keep-alive probes.
"""

import itertools
import os
import queue
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from attrs import evolve

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.config.settings import read_settings
from coopgroup.kafka.rpc.outcomes import FailureKind
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.support.group_requests import join
from tests.support.waiting import wait_for

PORT = 9092
WITHIN_MS = 3_000
JOIN_MS = 60_000
# It reads requests and never answers, like a JoinGroup that waits for the group.
SILENT_BROKER = f"""
import socket, sys, threading
server = socket.create_server(("0.0.0.0", {PORT}))
print("ready", flush=True)
while True:
    peer, _ = server.accept()
    def serve(peer=peer):
        while data := peer.recv(4096):
            print(len(data), flush=True)
    threading.Thread(target=serve, daemon=True).start()
"""
JOIN = join("m", session_timeout_ms=6_000, rebalance_timeout_ms=JOIN_MS)
_numbers = itertools.count()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S607


@contextmanager
def silent_broker() -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the address of a broker, and what makes it vanish after a request."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    number = next(_numbers)
    name, wire = f"cg-dead-{os.getpid()}-{number}", f"cgd{os.getpid()}-{number}"
    # Documentation addresses (RFC 5737), a pair for each namespace of each process.
    block = (os.getpid() * 8 + number) % 64 * 4
    here, there = f"203.0.113.{block + 1}", f"203.0.113.{block + 2}"
    with ExitStack() as cleanup:
        try:
            ip("netns", "add", name)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
        cleanup.callback(ip, "netns", "delete", name)
        ip("link", "add", wire, "type", "veth", "peer", "eth0", "netns", name)
        # The namespace itself lasts as long as its kernel tries to end its connections.
        cleanup.callback(ip, "link", "delete", wire)
        ip("address", "add", f"{here}/30", "dev", wire)
        ip("link", "set", wire, "up")
        ip("-netns", name, "address", "add", f"{there}/30", "dev", "eth0")
        ip("-netns", name, "link", "set", "eth0", "up")
        broker = cleanup.enter_context(
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-c", SILENT_BROKER],  # noqa: S607
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        cleanup.callback(broker.kill)

        def heard() -> str:
            assert broker.stdout is not None
            assert select.select([broker.stdout], [], [], 20)[0], "the broker says nothing"
            return broker.stdout.readline().strip()

        def is_reached() -> bool:
            with suppress(OSError):
                socket.create_connection((there, PORT), timeout=1).close()
                return True
            return False

        def vanish() -> None:
            assert int(heard()) > 0
            ip("-netns", name, "route", "add", "blackhole", f"{here}/32")

        assert heard() == "ready"
        wait_for(is_reached, "the kernel reports a carrier at most once a second")
        yield there, vanish


@pytest.mark.verify
@pytest.mark.parametrize("has_probes", [True, False])
def test_request_to_a_broker_that_vanishes_fails_soon(has_probes: bool) -> None:
    """A join that waits fails by keep-alive probes.

    Without them only the kernel can notice, if it has something to send. It would retransmit for
    15 minutes.
    """
    outcomes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with silent_broker() as (address, vanish):
        settings = read_connection_settings(
            {"bootstrap.servers": f"{address}:{PORT}", "socket.keepalive.enable": has_probes},
            dead_peer_ms=WITHIN_MS,
        )
        # So old that no versions are requested: the first request is the JoinGroup.
        transport = GroupTransport(evolve(settings, api_version=(0, 9)), lambda _: None)
        node = Coordinator(node_id=1, host=address, port=PORT)
        transport.start()
        try:
            transport.send(Lane.JOIN, JOIN, outcomes.put, node=node, timeout_ms=JOIN_MS)
            vanish()
            if not has_probes:
                with pytest.raises(queue.Empty):
                    outcomes.get(timeout=2 * WITHIN_MS / 1000)
                transport.send(Lane.JOIN, JOIN, outcomes.put, node=node, timeout_ms=JOIN_MS)
            outcome = outcomes.get(timeout=3 * WITHIN_MS / 1000)
            assert outcome.kind is FailureKind.DISCONNECTED
        finally:
            assert transport.close()


def test_options_follow_the_session_time_out() -> None:
    """A third of the session timeout, as for heartbeats; short sessions get the minimum."""
    given = {"bootstrap.servers": "localhost:9092", "group.id": "g", "heartbeat.interval.ms": 10}
    for session_ms, options in (
        (45_000, (5, 5, 2, 15_000)),
        (6_000, (1, 1, 1, 2_000)),
        (100, (1, 1, 1, 1_000)),
    ):
        settings = read_settings({**given, "session.timeout.ms": session_ms})
        found = settings.connection.dead_peer_options
        assert tuple(value for _, _, value in found[1:]) == options
