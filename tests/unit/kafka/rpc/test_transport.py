"""The transport's promises without a real broker: deadlines, failures and its thread.

The broker is librdkafka's mock, or a socket that misbehaves on purpose.
"""

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from kafka.net.selector import NetworkSelector

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorRequest,
    HeartbeatAnswer,
)
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.transport import THREAD_PREFIX, GroupTransport
from tests.support.mock_broker import mock_broker
from tests.unit.kafka.one_member_group import fail
from tests.unit.kafka.rpc.transport_stage import (
    HEARTBEAT,
    LONG_MS,
    WAIT_S,
    ask,
    begin,
    dead_address,
    listening,
    node_at,
    running,
    settings_for,
    transport_to,
)

LOOK_UP = FindCoordinatorRequest(group_id="g")
# Answer of the mock for a group without members; a real broker answers 25.
UNKNOWN_GROUP = HeartbeatAnswer(error_code=69)
NOT_RUNNING = "the transport is not running"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with mock_broker() as address:
        yield address


@pytest.fixture
def node(broker: str) -> Coordinator:
    return node_at(broker)


def test_request_fails_when_a_static_id_meets_an_old_broker(broker: str, node: Coordinator) -> None:
    with running(settings_for(broker, api_version=(2, 2))) as transport:
        outcome = ask(transport, evolve(HEARTBEAT, group_instance_id="static"), node)
        assert outcome.kind is FailureKind.UNSUPPORTED
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP


CONNECT = {"socket.connection.setup.timeout.ms": 200}
TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("is_dead", "keys", "timeout_ms", "said"),
    [
        (True, {}, LONG_MS, "ADDRESS"),
        (False, {}, 300, "no answer from ADDRESS in time"),
        (False, CONNECT, LONG_MS, "ADDRESS within 200 ms"),
        (False, CONNECT | TLS, LONG_MS, "no connection to ADDRESS within 200 ms"),
    ],
    ids=["nobody listens", "nobody answers", "nobody connects", "no TLS"],
)
def test_request_fails_by_the_limit_that_it_names(
    is_dead: bool, keys: dict[str, Any], timeout_ms: int, said: str
) -> None:
    with listening() as (_, silent):
        address = dead_address() if is_dead else silent
        settings = read_connection_settings({"bootstrap.servers": address, **keys})
        if "security.protocol" not in keys:
            settings = evolve(settings, api_version=(2, 3))
        with running(settings) as transport:
            for _ in range(2):
                began = time.monotonic()
                outcome = ask(transport, HEARTBEAT, node_at(address), timeout_ms)
                took_s = time.monotonic() - began
                kind = FailureKind.DISCONNECTED if is_dead else FailureKind.TIMED_OUT
                assert outcome.kind == kind
                assert said.replace("ADDRESS", address) in outcome.message
                assert is_dead or took_s >= 0.2


def test_look_up_asks_the_next_broker_when_one_is_dead(broker: str) -> None:
    with listening() as (_, silent), transport_to(dead_address(), silent, broker) as transport:
        for _ in range(3):
            assert ask(transport, LOOK_UP).error_code == 0


def test_brokers_are_learned_after_a_look_up(
    broker: str, node: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked when all bootstrap brokers are gone."""
    monkeypatch.setattr("coopgroup.kafka.rpc.transport._LEARN_AFTER_S", 0.0)
    ran: queue.Queue[int] = queue.Queue()
    with transport_to(broker) as transport:
        ask(transport, LOOK_UP)
        transport.later(0.05, lambda: ran.put(1))
        assert ran.get(timeout=WAIT_S)
        ask(transport, LOOK_UP)  # answered after the list of brokers
        assert transport._known_brokers == ((node.host, node.port),)  # noqa: SLF001


@pytest.mark.parametrize("is_close", [False, True])
def test_exception_of_callback_is_told(broker: str, node: Coordinator, *, is_close: bool) -> None:
    """Also that of a close, which would wait for its own thread."""
    reported: list[BaseException] = []

    def answered(_: object) -> None:
        if is_close:
            transport.close()
        raise RuntimeError("in the callback")

    with transport_to(broker, reported=reported) as transport:
        transport.send(Lane.COMMIT, HEARTBEAT, answered, node=node, timeout_ms=LONG_MS)
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
    own = "the transport cannot be closed from its own thread"
    assert [str(one) for one in reported] == [own if is_close else "in the callback"]


def test_action_runs_later_on_the_transports_thread() -> None:
    reported: list[BaseException] = []
    ran: queue.Queue[tuple[str, float]] = queue.Queue()

    def note() -> None:
        ran.put((threading.current_thread().name, time.monotonic() - begun))

    with transport_to(dead_address(), reported=reported) as transport:
        begun = time.monotonic()
        transport.later(0.0, fail)
        transport.later(0.2, note)
        name, took_s = ran.get(timeout=WAIT_S)
        assert name.startswith(THREAD_PREFIX)
        assert took_s >= 0.2
        transport.later(60.0, fail)  # does not delay the end
    assert [repr(one) for one in reported] == ["LookupError('a bug')"]


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
    ran: queue.Queue[int] = queue.Queue()
    with listening() as (_, silent), transport_to(broker, reported=reported) as transport:
        outcomes = begin(transport, HEARTBEAT, node_at(silent), LONG_MS, Lane.JOIN)
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
        transport.later(0.5, lambda: ran.put(1))
        broken.set()
        transport.close_lane(Lane.COMMIT)
        assert outcomes.get(timeout=WAIT_S).kind is FailureKind.DISCONNECTED
        assert ask(transport, HEARTBEAT, node) == UNKNOWN_GROUP
        assert ran.get(timeout=WAIT_S) == 1
    assert reported == [crash]
    assert (outcomes.empty(), ran.empty()) == (True, True)


def test_call_fails_when_the_transport_does_not_run(broker: str, node: Coordinator) -> None:
    transport = GroupTransport(settings_for(broker), lambda error: None)
    refused = TransportFailure(kind=FailureKind.DISCONNECTED, message=NOT_RUNNING)
    assert ask(transport, HEARTBEAT, node) == refused
    transport.start()
    with pytest.raises(RuntimeError, match="once only"):
        transport.start()
    with pytest.raises(ValueError, match="HeartbeatRequest needs the group coordinator"):
        ask(transport, HEARTBEAT)
    assert transport.close()
    assert transport.close()
    assert ask(transport, HEARTBEAT, node) == refused
    assert not transport.later(0.0, lambda: None)


def test_each_request_has_one_outcome_when_closed_in_full_flow(
    broker: str, node: Coordinator
) -> None:
    outcomes: list[object] = []
    transport = GroupTransport(settings_for(broker), lambda error: None)
    transport.start()
    flows, sent = threading.Event(), 0

    def flood() -> None:
        nonlocal sent
        while transport.later(0.0, lambda: None):
            transport.send(Lane.COMMIT, HEARTBEAT, outcomes.append, node=node, timeout_ms=LONG_MS)
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
        TransportFailure(kind=FailureKind.DISCONNECTED, message=NOT_RUNNING),
    }


def test_send_while_a_signal_handler_closes_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    with transport_to(dead_address()) as transport:
        soon: Any = NetworkSelector.call_soon_threadsafe

        def interrupted(net: NetworkSelector, task: Any) -> Any:  # noqa: ANN401  (kafka-python's)
            monkeypatch.undo()
            transport.close()
            return soon(net, task)

        monkeypatch.setattr(NetworkSelector, "call_soon_threadsafe", interrupted)
        sender = threading.Thread(target=fails_to_send, args=(transport,), daemon=True)
        sender.start()
        sender.join(5.0)
        assert not sender.is_alive()


def fails_to_send(transport: GroupTransport) -> None:
    with pytest.raises(RuntimeError, match="closed"):
        begin(transport, LOOK_UP)


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
