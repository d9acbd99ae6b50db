"""The transport's promises without a real broker: deadlines, failures and its thread.

The broker is librdkafka's mock, or a socket that misbehaves on purpose.
"""

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from attrs import evolve
from confluent_kafka import Producer
from kafka.net.selector import NetworkSelector

from coopgroup.kafka.config.connection_settings import ConnectionSettings, read_connection_settings
from coopgroup.kafka.rpc.channel import Channel
from coopgroup.kafka.rpc.transport import FailureKind, GroupTransport, OnAnswer, TransportFailure
from coopgroup.member.effects import Lane
from coopgroup.model.group_api import (
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinedMember,
    JoinGroupAnswer,
    JoinGroupRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from tests.unit.kafka.one_member_group import fail

LOOK_UP = FindCoordinatorRequest(group_id="g")
HEARTBEAT = HeartbeatRequest(group_id="nobody", generation=1, member_id="m", group_instance_id=None)
# Answer of the mock for a group without members; a real broker answers 25.
UNKNOWN_GROUP = HeartbeatAnswer(error_code=69)
ANSWER_MS = 2_000
WAIT_S = 60.0
# For the mock's slow joins, and for requests that a test keeps waiting.
LONG_MS = 30_000


def settings_for(*servers: str) -> ConnectionSettings:
    settings = read_connection_settings({"bootstrap.servers": ",".join(servers)})
    return evolve(settings, api_version=(2, 3), reconnect_backoff_max_ms=100)


@contextmanager
def transport_to(
    *servers: str, reported: list[BaseException] | None = None
) -> Iterator[GroupTransport]:
    """Run a transport; it must close in time and report no unexpected error."""
    errors: list[BaseException] = [] if reported is None else reported
    transport = GroupTransport(settings_for(*servers), errors.append)
    transport.start()
    try:
        yield transport
    finally:
        assert transport.close()
    assert reported is not None or errors == []


def ask(
    transport: GroupTransport,
    request: Any,  # noqa: ANN401
    node: Coordinator | None = None,
    timeout_ms: int = ANSWER_MS,
) -> Any:  # noqa: ANN401
    outcomes: queue.Queue[Any] = queue.Queue()
    transport.send(Lane.COMMIT, request, outcomes.put, node=node, timeout_ms=timeout_ms)
    return outcomes.get(timeout=15)


def send_heartbeat(
    transport: GroupTransport, lane: Lane, node: Coordinator, on_answer: OnAnswer
) -> None:
    transport.send(lane, HEARTBEAT, on_answer, node=node, timeout_ms=LONG_MS)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """Return the address of librdkafka's mock broker."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    producer.flush(1)


@pytest.fixture
def node(broker: str) -> Coordinator:
    host, _, port = broker.partition(":")
    return Coordinator(node_id=1, host=host, port=int(port))


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """Return a listening socket on loopback, which accepts no connection, and its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def coordinator_at(address: str) -> Coordinator:
    host, _, port = address.partition(":")
    return Coordinator(node_id=7, host=host, port=int(port))


def dead_address() -> str:
    with listening() as (_, address):
        return address


@pytest.mark.slow
def test_group_works_when_the_broker_speaks_old_versions(broker: str, node: Coordinator) -> None:
    """The mock speaks JoinGroup v5 and similar versions, which carry the same values."""
    with transport_to(broker) as transport:
        assert ask(transport, LOOK_UP) == FindCoordinatorAnswer(
            error_code=0, error_message="", coordinator=node
        )
        join = JoinGroupRequest(
            group_id="g",
            member_id="",
            group_instance_id=None,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=6_000,
            protocol_type="consumer",
            protocols=(("first", b"subscription"),),
            reason="left out",
        )
        first = ask(transport, join, node, timeout_ms=LONG_MS)
        member_id = first.member_id
        if first.error_code == 79:
            first = ask(transport, evolve(join, member_id=member_id), node, timeout_ms=LONG_MS)
        assert first.generation > 0
        assert first == JoinGroupAnswer(
            error_code=0,
            generation=first.generation,
            protocol_name="first",
            leader_id=member_id,
            member_id=member_id,
            members=(
                JoinedMember(member_id=member_id, group_instance_id=None, metadata=b"subscription"),
            ),
            skip_assignment=False,
        )
        sync = SyncGroupRequest(
            group_id="g",
            generation=first.generation,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="first",
            assignments=((member_id, b"assignment"),),
        )
        assert ask(transport, sync, node) == SyncGroupAnswer(error_code=0, assignment=b"assignment")
        heartbeat = evolve(
            HEARTBEAT, group_id="g", generation=first.generation, member_id=member_id
        )
        assert ask(transport, heartbeat, node) == HeartbeatAnswer(error_code=0)


def test_request_fails_when_a_static_id_meets_an_old_broker(broker: str, node: Coordinator) -> None:
    with closing_transport(evolve(settings_for(broker), api_version=(2, 2))) as transport:
        outcome = ask(transport, evolve(HEARTBEAT, group_instance_id="static"), node)
        assert outcome.kind is FailureKind.UNSUPPORTED
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP


@contextmanager
def closing_transport(settings: ConnectionSettings) -> Iterator[GroupTransport]:
    transport = GroupTransport(settings, lambda error: None)
    transport.start()
    try:
        yield transport
    finally:
        assert transport.close()


def test_request_fails_at_once_when_nobody_listens() -> None:
    address = dead_address()
    with transport_to(address) as transport:
        began = time.monotonic()
        outcome = ask(transport, HEARTBEAT, coordinator_at(address), timeout_ms=10_000)
        assert (outcome.kind, time.monotonic() - began < 5) == (FailureKind.DISCONNECTED, True)
        assert address in outcome.message


def test_request_times_out_when_nobody_answers() -> None:
    with listening() as (_, address), transport_to(address) as transport:
        began = time.monotonic()
        outcome = ask(transport, HEARTBEAT, coordinator_at(address), timeout_ms=300)
        assert outcome == TransportFailure(
            kind=FailureKind.TIMED_OUT, message=f"no answer from {address} in time"
        )
        assert 0.3 <= time.monotonic() - began < 5


def test_connect_is_bounded_when_nobody_answers() -> None:
    with listening() as (server, address):
        settings = evolve(settings_for(address), connect_timeout_ms=200)
        with closing_transport(settings) as transport:
            outcome = ask(transport, HEARTBEAT, coordinator_at(address), timeout_ms=5_000)
            assert outcome.kind is FailureKind.TIMED_OUT
            outcome = ask(transport, HEARTBEAT, coordinator_at(address), timeout_ms=5_000)
            assert outcome.kind is FailureKind.TIMED_OUT
            for _ in range(2):
                server.accept()[0].close()


def test_handshake_is_bounded_when_the_broker_speaks_no_tls() -> None:
    with listening() as (_, address):
        settings = evolve(
            read_connection_settings(
                {"bootstrap.servers": address, "security.protocol": "SSL"},
            ),
            connect_timeout_ms=200,
        )
        with closing_transport(settings) as transport:
            outcome = ask(transport, HEARTBEAT, coordinator_at(address), timeout_ms=5_000)
            assert outcome == TransportFailure(
                kind=FailureKind.TIMED_OUT, message=f"no connection to {address} within 200 ms"
            )


def test_tls_failure_is_told_apart_when_the_broker_answers_nonsense() -> None:
    with listening() as (server, address):

        def babble() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(1000)

        speaker = threading.Thread(target=babble)
        speaker.start()
        settings = read_connection_settings(
            {"bootstrap.servers": address, "security.protocol": "SSL"}
        )
        with closing_transport(settings) as transport:
            outcome = ask(transport, HEARTBEAT, coordinator_at(address))
            assert outcome.kind is FailureKind.HANDSHAKE
        speaker.join(5)


def test_requests_fail_when_the_broker_hangs_up() -> None:
    with listening() as (server, address), transport_to(address) as transport:
        outcomes: queue.Queue[Any] = queue.Queue()
        for _ in range(3):
            send_heartbeat(transport, Lane.JOIN, coordinator_at(address), outcomes.put)
        server.accept()[0].close()
        kinds = [outcomes.get(timeout=5).kind for _ in range(3)]
        assert kinds == [FailureKind.DISCONNECTED] * 3
    assert outcomes.empty()


def test_request_waits_for_the_backoff_when_a_connect_failed(
    broker: str, node: Coordinator
) -> None:
    address = dead_address()
    settings = evolve(settings_for(broker), reconnect_backoff_ms=200, reconnect_backoff_max_ms=400)
    with closing_transport(settings) as transport:
        failed_s = [time.monotonic()]
        for _ in range(3):
            assert ask(transport, HEARTBEAT, coordinator_at(address)).kind is (
                FailureKind.DISCONNECTED
            )
            failed_s.append(time.monotonic())
        assert failed_s[2] - failed_s[0] > 0.15
        assert 0.3 < failed_s[3] - failed_s[1] < 5
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP


def test_look_up_asks_the_next_broker_when_one_is_dead(broker: str) -> None:
    with listening() as (_, silent), transport_to(dead_address(), silent, broker) as transport:
        for _ in range(3):
            outcome = ask(transport, LOOK_UP, timeout_ms=2_000)
            assert isinstance(outcome, FindCoordinatorAnswer)
            assert outcome.error_code == 0


def test_look_up_fails_when_every_broker_is_dead() -> None:
    addresses = [dead_address(), dead_address()]
    with transport_to(*addresses) as transport:
        outcome = ask(transport, LOOK_UP)
        assert outcome.kind is FailureKind.DISCONNECTED


def test_name_is_looked_up_when_the_address_is_no_number(broker: str, node: Coordinator) -> None:
    with transport_to(broker) as transport:
        named = evolve(node, host="localhost")
        assert ask(transport, HEARTBEAT, named) == UNKNOWN_GROUP
        outcome = ask(transport, HEARTBEAT, evolve(node, host="no-such-host.invalid"), 10_000)
        assert outcome.kind is FailureKind.DISCONNECTED


def test_exception_is_reported_when_a_callback_raises(broker: str, node: Coordinator) -> None:
    reported: list[BaseException] = []
    error = ValueError("in the callback")

    def fail(_: object) -> None:
        raise error

    with transport_to(broker, reported=reported) as transport:
        send_heartbeat(transport, Lane.COMMIT, node, fail)
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
    assert reported == [error]


def test_transport_goes_on_when_its_loop_crashes(
    broker: str, node: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[BaseException] = []
    crash = OSError("the selector broke")
    poll: Any = NetworkSelector.poll
    broken = threading.Event()

    def poll_once_broken(net: NetworkSelector, *arguments: Any) -> None:  # noqa: ANN401
        if broken.is_set():
            broken.clear()
            raise crash
        poll(net, *arguments)

    monkeypatch.setattr(NetworkSelector, "poll", poll_once_broken)
    with listening() as (_, silent), transport_to(broker, reported=reported) as transport:
        outcomes: queue.Queue[Any] = queue.Queue()
        send_heartbeat(transport, Lane.JOIN, coordinator_at(silent), outcomes.put)
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
        broken.set()
        transport.close_lane(Lane.COMMIT)
        assert outcomes.get(timeout=5).kind is FailureKind.DISCONNECTED
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
    assert reported == [crash]
    assert outcomes.empty()


def test_call_is_refused_when_the_transport_does_not_run(broker: str, node: Coordinator) -> None:
    transport = GroupTransport(settings_for(broker), lambda error: None)
    with pytest.raises(RuntimeError, match="not running"):
        ask(transport, HEARTBEAT, node)
    transport.start()
    with pytest.raises(RuntimeError, match="once only"):
        transport.start()
    with pytest.raises(ValueError, match="HeartbeatRequest needs the group coordinator"):
        ask(transport, HEARTBEAT)
    assert transport.close()
    assert transport.close()
    with pytest.raises(RuntimeError, match="not running"):
        ask(transport, HEARTBEAT, node)


def test_close_is_refused_when_called_on_the_own_thread(broker: str, node: Coordinator) -> None:
    reported: list[BaseException] = []

    def close(_: object) -> None:
        transport.close()

    with transport_to(broker, reported=reported) as transport:
        send_heartbeat(transport, Lane.COMMIT, node, close)
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
    assert [str(error) for error in reported] == [
        "the transport cannot be closed from its own thread"
    ]


def test_every_request_has_one_outcome_when_closed_in_full_flow(
    broker: str, node: Coordinator
) -> None:
    outcomes: list[object] = []
    transport = GroupTransport(settings_for(broker), lambda error: None)
    transport.start()
    flows, sent = threading.Event(), 0

    def flood() -> None:
        nonlocal sent
        while True:
            try:
                send_heartbeat(transport, Lane.COMMIT, node, outcomes.append)
            except RuntimeError:
                return
            sent += 1
            if sent == 200:
                flows.set()

    sender = threading.Thread(target=flood)
    sender.start()
    assert flows.wait(WAIT_S)
    assert transport.close()
    sender.join(WAIT_S)
    assert sent >= 200
    assert len(outcomes) == sent
    assert set(outcomes) <= {
        UNKNOWN_GROUP,
        TransportFailure(kind=FailureKind.DISCONNECTED, message="the transport was closed"),
    }


def test_no_thread_is_left_when_closed(broker: str, node: Coordinator) -> None:
    before = set(threading.enumerate())
    with transport_to(broker) as transport:
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
    assert set(threading.enumerate()) == before


def test_send_when_a_signal_handler_closes_meanwhile_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with transport_to(dead_address()) as transport:
        soon: Any = NetworkSelector.call_soon_threadsafe

        def interrupted(net: NetworkSelector, task: Any) -> Any:  # noqa: ANN401  (kafka-python's)
            monkeypatch.undo()
            transport.close()
            return soon(net, task)

        monkeypatch.setattr(NetworkSelector, "call_soon_threadsafe", interrupted)
        sender = threading.Thread(target=fails_to_send, args=(transport,), daemon=True)
        sender.start()
        sender.join(ANSWER_MS / 1000)
        assert not sender.is_alive()


def fails_to_send(transport: GroupTransport) -> None:
    with pytest.raises(RuntimeError, match="closed"):
        transport.send(Lane.COMMIT, LOOK_UP, lambda _: None, node=None, timeout_ms=ANSWER_MS)


@pytest.mark.parametrize("broken", ["_channel", "_candidates"])
def test_request_that_cannot_be_begun_fails(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """A member without an outcome waits forever."""
    monkeypatch.setattr(GroupTransport, broken, fail)
    reported: list[BaseException] = []
    with transport_to(dead_address(), reported=reported) as transport:
        failure = ask(transport, LOOK_UP)
    assert failure == TransportFailure(
        kind=FailureKind.DISCONNECTED, message="LookupError('a bug')"
    )
    assert [repr(one) for one in reported] == ["LookupError('a bug')"]


def test_look_up_when_the_next_broker_cannot_be_asked_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later attempts may fail, too."""
    calls: list[object] = []

    def make_one_only(*arguments: Any) -> Channel:  # noqa: ANN401  (as Channel has them)
        calls.append(arguments)
        if len(calls) > 1:
            raise LookupError("a bug")
        return Channel(*arguments)

    monkeypatch.setattr("coopgroup.kafka.rpc.channel.Channel", make_one_only)
    reported: list[BaseException] = []
    with transport_to(dead_address(), dead_address(), reported=reported) as transport:
        failure = ask(transport, LOOK_UP)
    assert failure.message == "LookupError('a bug')"
    assert (len(calls), len(reported)) == (2, 1)


def test_look_up_is_answered_when_the_list_of_brokers_cannot_be_read(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupTransport, "_learn_brokers", fail)
    monkeypatch.setattr("coopgroup.kafka.rpc.transport._LEARN_AFTER_S", 0.0)
    reported: list[BaseException] = []
    heard = threading.Event()

    def hear(error: BaseException) -> None:
        reported.append(error)
        heard.set()

    transport = GroupTransport(settings_for(broker), hear)
    transport.start()
    with closing(transport):
        answer = ask(transport, LOOK_UP)
        assert isinstance(answer, FindCoordinatorAnswer)
        assert heard.wait(WAIT_S)
    assert [repr(one) for one in reported] == ["LookupError('a bug')"]
