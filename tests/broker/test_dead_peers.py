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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import evolve, field, frozen

from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import Coordinator, JoinGroupRequest

PORT = 9092
WAIT_S = 20.0
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
_numbers = itertools.count()


class Namespace:
    """A network namespace with one link to this one, and a silent broker in it."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"cg-dead-{os.getpid()}-{number}"
        self.wire, self.inner = f"cgd{os.getpid()}-{number}", "eth0"
        # Documentation addresses (RFC 5737), a pair for each namespace of each process.
        block = (os.getpid() * 8 + number) % 64 * 4
        self.here, self.there = f"203.0.113.{block + 1}", f"203.0.113.{block + 2}"
        self.broker: subprocess.Popen[str] | None = None
        ip("netns", "add", self.name)
        try:
            ip("link", "add", self.wire, "type", "veth", "peer", self.inner, "netns", self.name)
            ip("address", "add", f"{self.here}/30", "dev", self.wire)
            ip("link", "set", self.wire, "up")
            self.run("address", "add", f"{self.there}/30", "dev", self.inner)
            self.run("link", "set", self.inner, "up")
            self.broker = subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, "-c", SILENT_BROKER],  # noqa: S607
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self.hear() == "ready"
            self._reach()
        except BaseException:
            self.remove()
            raise

    def run(self, *arguments: str) -> None:
        ip("-netns", self.name, *arguments)

    def _reach(self) -> None:
        """Wait until the link works: the kernel reports a carrier at most once a second."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                socket.create_connection((self.there, PORT), timeout=1).close()
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.05)
            else:
                return

    def hear(self) -> str:
        assert self.broker is not None
        assert self.broker.stdout is not None
        assert select.select([self.broker.stdout], [], [], WAIT_S)[0], "the broker says nothing"
        return self.broker.stdout.readline().strip()

    def vanish(self) -> None:
        """Drop all packets that leave the namespace from now on."""
        self.run("route", "add", "blackhole", f"{self.here}/32")

    def remove(self) -> None:
        if self.broker is not None:
            self.broker.kill()
            self.broker.wait()
            assert self.broker.stdout is not None
            self.broker.stdout.close()
        # The namespace itself lasts as long as its kernel tries to end its connections.
        subprocess.run(["ip", "link", "delete", self.wire], check=False, capture_output=True)  # noqa: S607
        ip("netns", "delete", self.name)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)  # noqa: S607


@contextmanager
def silent_broker() -> Iterator[Namespace]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    try:
        namespace = Namespace()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr!r}")
    try:
        yield namespace
    finally:
        namespace.remove()


@contextmanager
def transport_to(namespace: Namespace, **configuration: Any) -> Iterator["Asking"]:  # noqa: ANN401
    """Return a transport to the silent broker."""
    servers = {"bootstrap.servers": f"{namespace.there}:{PORT}"}
    settings = read_connection_settings(servers | configuration, dead_peer_ms=WITHIN_MS)
    # So old that no versions are requested: the first request is the JoinGroup.
    transport = GroupTransport(evolve(settings, api_version=(0, 9)), lambda _: None)
    transport.start()
    try:
        yield Asking(transport, namespace)
    finally:
        assert transport.close()


@frozen
class Asking:
    transport: GroupTransport
    namespace: Namespace
    outcomes: "queue.SimpleQueue[Any]" = field(factory=queue.SimpleQueue)

    def join(self) -> None:
        join = JoinGroupRequest(
            group_id="g",
            member_id="m",
            group_instance_id=None,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=JOIN_MS,
            protocol_type="consumer",
            protocols=(("coopgroup", b"subscription"),),
            reason="",
        )
        node = Coordinator(node_id=1, host=self.namespace.there, port=PORT)
        self.transport.send(Lane.JOIN, join, self.outcomes.put, node=node, timeout_ms=JOIN_MS)

    def join_and_vanish(self) -> None:
        """Send a join, wait until it has arrived, then make the broker vanish."""
        self.join()
        assert int(self.namespace.hear()) > 0
        self.namespace.vanish()

    def fails_soon(self) -> bool:
        """Return whether the next outcome is a lost connection, within a few seconds."""
        outcome = self.outcomes.get(timeout=3 * WITHIN_MS / 1000)
        return isinstance(outcome, TransportFailure) and outcome.kind is FailureKind.DISCONNECTED


@pytest.mark.verify
def test_join_that_waits_fails_soon_when_its_broker_vanishes() -> None:
    with silent_broker() as broker, transport_to(broker) as asking:
        asking.join_and_vanish()
        assert asking.fails_soon()


@pytest.mark.verify
def test_request_that_nobody_acknowledges_fails_soon() -> None:
    """The kernel would retransmit for 15 minutes. Without keep-alive probes, only it can notice."""
    keepalive: dict[str, Any] = {"socket.keepalive.enable": False}
    with silent_broker() as broker, transport_to(broker, **keepalive) as asking:
        asking.join_and_vanish()
        with pytest.raises(queue.Empty):
            asking.outcomes.get(timeout=2 * WITHIN_MS / 1000)
        asking.join()
        assert asking.fails_soon()
