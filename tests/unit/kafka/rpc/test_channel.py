"""A connection: bytes that arrive whole, wrong answers, and commits that outlive it."""

from __future__ import annotations

import queue
import select
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest
from attrs import frozen

from coopgroup.core.model.group_api import (
    Coordinator,
    HeartbeatAnswer,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.kafka.rpc.outcomes import FailureKind
from coopgroup.kafka.rpc.transport import GroupTransport
from tests.unit.kafka.rpc.transport_stage import (
    CORRELATION,
    HEARTBEAT,
    HEARTBEAT_KEY,
    LONG_MS,
    WAIT_S,
    PlayedBroker,
    begin,
    key_of,
    listening,
    node_at,
    transport_to,
)

SHORT_MS: Final = 500  # a connection and a request take more than 100 ms on a busy machine
COMMIT_KEY: Final = 8
SYNC_KEY: Final = 14
ALIVE: Final = struct.pack(">ih", 0, 0)
COMMIT: Final = OffsetCommitRequest(
    group_id="g",
    generation=1,
    member_id="m",
    group_instance_id=None,
    offsets=(("t", 0, 5, -1, ""),),
)


@frozen
class Stage:
    """A transport, and its broker that answers only when told to."""

    transport: GroupTransport
    broker: PlayedBroker
    node: Coordinator

    def send(self, request: object, timeout_ms: int) -> queue.Queue[Any]:
        return begin(self.transport, request, self.node, timeout_ms)

    def accept(self) -> socket.socket:
        return self.broker.accept({COMMIT_KEY: 7, HEARTBEAT_KEY: 3, SYNC_KEY: 3})

    def give_up(self) -> None:
        """Let a heartbeat time out, which abandons its connection."""
        late = self.send(HEARTBEAT, SHORT_MS)
        assert late.get(timeout=WAIT_S).kind is FailureKind.TIMED_OUT


@pytest.fixture
def stage() -> Iterator[Stage]:
    with listening() as (server, address), transport_to(address) as transport:
        made = Stage(transport, PlayedBroker(server), node_at(address))
        yield made
        made.broker.close()


def is_reset(connection: socket.socket) -> bool:
    """Return whether a reset arrives. An orderly close is not a reset."""
    watched = select.poll()
    watched.register(connection, select.POLLERR)
    return any(events & select.POLLERR for _, events in watched.poll(WAIT_S * 1_000))


def test_commit_when_a_heartbeat_times_out_waits_on_the_old_connection(stage: Stage) -> None:
    """The commit failed, was sent again with newer offsets, and arrived last."""
    committed = stage.send(COMMIT, LONG_MS)
    old = stage.accept()
    commit = stage.broker.request(old)
    assert key_of(commit) == COMMIT_KEY
    stage.give_up()
    stage.send(HEARTBEAT, LONG_MS)
    assert key_of(stage.broker.request(stage.accept())) == HEARTBEAT_KEY
    assert committed.empty()
    assert key_of(stage.broker.request(old)) == HEARTBEAT_KEY  # the heartbeat that timed out
    stage.broker.answer(commit, struct.pack(">ii", 0, 0), old)
    assert committed.get(timeout=WAIT_S) == OffsetCommitAnswer(codes=())
    assert is_reset(old)  # no request waits there


def test_commit_when_its_own_time_is_over_is_discarded_by_the_kernel(stage: Stage) -> None:
    """After a plain close, the kernel would keep sending the commit for minutes."""
    committed = stage.send(COMMIT, SHORT_MS)
    connection = stage.accept()
    assert key_of(stage.broker.request(connection)) == COMMIT_KEY
    assert committed.get(timeout=WAIT_S).kind is FailureKind.TIMED_OUT
    assert is_reset(connection)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("lost", FailureKind.DISCONNECTED),
        ("closed", FailureKind.DISCONNECTED),
        ("timed out", FailureKind.TIMED_OUT),
    ],
)
def test_commit_on_a_given_up_connection_has_one_outcome_however_it_ends(
    end: str, kind: FailureKind, stage: Stage
) -> None:
    committed = stage.send(COMMIT, 2 * SHORT_MS if end == "timed out" else LONG_MS)
    old = stage.accept()
    stage.broker.request(old)
    stage.give_up()
    if end == "lost":
        old.close()
    elif end == "closed":
        stage.transport.close()
    assert committed.get(timeout=WAIT_S).kind is kind
    assert committed.empty()


def test_answer_to_another_request_closes_the_connection(stage: Stage) -> None:
    outcome = stage.send(HEARTBEAT, LONG_MS)
    stage.accept()
    request = stage.broker.request()
    stage.broker.answer(request[: CORRELATION.start] + struct.pack(">i", 1_000_000), ALIVE)
    assert outcome.get(timeout=WAIT_S).kind is FailureKind.DISCONNECTED


def test_request_larger_than_the_buffer_of_the_kernel_arrives_whole(stage: Stage) -> None:
    assignment = bytes(range(256)) * 80_000
    sync = SyncGroupRequest(
        group_id="g",
        generation=1,
        member_id="m",
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="p",
        assignments=(("m", assignment),),
    )
    synced = stage.send(sync, LONG_MS)
    beaten = stage.send(HEARTBEAT, LONG_MS)  # waits until the request before it has left
    stage.accept()
    request = stage.broker.request()
    assert request.endswith(assignment)
    stage.broker.answer(request, struct.pack(">ihi", 0, 0, 0))
    assert synced.get(timeout=WAIT_S) == SyncGroupAnswer(error_code=0, assignment=b"")
    stage.broker.answer(stage.broker.request(), ALIVE)
    assert beaten.get(timeout=WAIT_S) == HeartbeatAnswer(error_code=0)
