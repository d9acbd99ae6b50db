"""What a broker answers to members of KIP-848, where the member's machine depends on it.

Each test is a fact about Kafka, tried with single requests. If a release changes one, the machine
or its documentation has to follow.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition

from coopgroup.core.member import MemberConfig
from coopgroup.core.member.error_actions import ErrorCode
from coopgroup.core.model import group_api as api
from coopgroup.kafka.membership.group_metadata import Fence, encode_group_metadata
from coopgroup.kafka.rpc.questions import (
    DescribeGroupRequest,
    FetchOffsetsRequest,
    FindGroupTimeouts,
    GroupTimeouts,
)
from coopgroup.testing import KafkaCluster
from tests.support.live_group import unique
from tests.support.raw_consumers import RawConsumer, Wire
from tests.support.waiting import wait_for

OK, STALE, FENCED = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.FENCED_MEMBER_EPOCH
UNKNOWN, UNRELEASED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.fixture(scope="module")
def wire(consumer_cluster: KafkaCluster) -> Iterator[Wire]:
    with Wire(consumer_cluster) as made:
        yield made


@pytest.fixture
def group_id() -> str:
    return unique("answers")


@pytest.fixture
def topic(wire: Wire) -> str:
    name = unique("answers")
    wire.cluster.create_topic(name, 4)
    return name


@pytest.fixture
def a(wire: Wire, group_id: str, topic: str) -> RawConsumer:
    """Return a member that owns all four partitions."""
    return alone(RawConsumer(wire, group_id, (topic,)))


def alone(member: RawConsumer) -> RawConsumer:
    """Let a first member join. The coordinator may learn of the new topic a little later."""
    assert member.join().error_code == OK
    member.settle(4)
    member.beat()
    return member


def beside(a: RawConsumer, **settings: object) -> RawConsumer:
    """Let a second member join: the next heartbeat of the first one revokes two partitions."""
    b = RawConsumer(a.wire, a.group_id, a.topics, **settings)  # type: ignore[arg-type]
    assert b.join().error_code == OK
    assert b.count == 0
    return b


def shared(a: RawConsumer) -> tuple[RawConsumer, list[int], list[int]]:
    """Let a second member join; return it and the partitions of both."""
    b = beside(a)
    a.settle(2)
    a.beat()
    b.settle(2)
    return b, list(a.owned[0][1]), list(b.owned[0][1])


# --- commits -------------------------------------------------------------------------------------


def test_commit_with_an_older_epoch_is_accepted_for_kept_partitions_only(a: RawConsumer) -> None:
    """KIP-1251. One partition with a newer assignment refuses the whole request."""
    b, kept, moved = shared(a)
    before = a.epoch
    assert b.leave() == OK
    a.settle(4)
    assert a.epoch > before
    assert a.commit(kept[0], epoch=before) == [OK]
    assert a.commit(moved[0], epoch=before) == [STALE]
    assert a.commit(kept[0], moved[0], epoch=before) == [STALE, STALE]
    assert a.commit(kept[0], moved[0]) == [OK, OK]


def test_commit_of_a_foreign_partition_is_accepted(a: RawConsumer) -> None:
    """So the member itself must not send it: it would overwrite the offset of the owner."""
    _, _, moved = shared(a)
    assert a.commit(moved[0]) == [OK]


def test_commit_of_a_revoked_partition_must_precede_the_acknowledgement(a: RawConsumer) -> None:
    b = beside(a)
    before = a.epoch
    assert a.beat().epoch == before
    (topic_id, kept), *_ = a.assigned
    moved = sorted({0, 1, 2, 3} - set(kept))
    assert a.commit(moved[0], epoch=before) == [OK]
    a.owned = ((topic_id, kept),)
    assert a.beat().epoch > before
    assert a.commit(moved[0], epoch=before) == [STALE]
    assert a.commit(moved[0]) == [OK]
    b.settle(2)


def test_commit_with_a_future_epoch_or_of_no_member_is_refused(a: RawConsumer) -> None:
    assert a.commit(0, epoch=a.epoch + 1) == [STALE]
    assert a.commit(0, member_id="stranger") == [UNKNOWN]
    assert a.commit(0, member_id="", epoch=-1) == [UNKNOWN]
    assert a.commit(0) == [OK]


def test_offsets_are_fetched_without_a_member(a: RawConsumer) -> None:
    """So a changed epoch cannot refuse them, and no member starts at the wrong offset."""
    assert a.commit(0, offset=17) == [OK]
    request = FetchOffsetsRequest(
        group_id=a.group_id, partitions=((a.topics[0], 0),), require_stable=True
    )
    answer = a.wire.ask(request)
    assert (answer.error_code, answer.offsets[a.topics[0], 0].offset) == (OK, 17)


def _commit_transaction(a: RawConsumer, fence: Fence, partition: int) -> int:
    """Commit an offset in a transaction; return the error code."""
    config = a.wire.cluster.client_config() | {"transactional.id": unique("answers")}
    producer = Producer({**config, "log_level": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    metadata = encode_group_metadata(MemberConfig(group_id=a.group_id), fence)
    offsets = [TopicPartition(a.topics[0], partition, 3)]
    try:
        producer.send_offsets_to_transaction(offsets, metadata, 20)
        producer.commit_transaction(20)
    except KafkaException as error:
        producer.abort_transaction(20)
        code: int = error.args[0].code()
        return code
    return int(OK)


def test_transaction_is_fenced_by_member_and_epoch(a: RawConsumer) -> None:
    """KIP-1251 applies: an older epoch is accepted for a partition that the member has kept."""
    _, (kept, *_), (moved, *_) = shared(a)
    old = Fence(a.member_id, a.epoch - 1)
    assert _commit_transaction(a, Fence(a.member_id, a.epoch), kept) == OK
    assert _commit_transaction(a, old, kept) == OK
    assert _commit_transaction(a, old, moved) == ErrorCode.ILLEGAL_GENERATION
    assert _commit_transaction(a, Fence("stranger", a.epoch), kept) == UNKNOWN


# --- epochs and ids ------------------------------------------------------------------------------


def test_heartbeat_with_the_epoch_before_is_accepted(a: RawConsumer) -> None:
    """So a lost answer is harmless. Any other epoch is fenced."""
    b, *_ = shared(a)
    assert b.leave() == OK
    a.settle(4)
    now = a.epoch
    answer = a.beat(epoch=now - 1)
    assert (answer.error_code, answer.epoch) == (OK, now)
    assert a.beat(epoch=now - 2).error_code == FENCED
    assert a.beat(epoch=now + 1).error_code == FENCED
    assert a.beat().error_code == OK  # only the request was refused


def test_heartbeat_of_a_removed_member_is_refused(a: RawConsumer) -> None:
    assert a.leave() == OK
    assert a.beat().error_code == UNKNOWN
    assert a.commit(0) != [OK]


def test_member_that_does_not_acknowledge_in_time_is_removed(
    wire: Wire, group_id: str, topic: str
) -> None:
    a = alone(RawConsumer(wire, group_id, (topic,), rebalance_timeout_ms=1_000))
    b = beside(a)
    assert a.beat().error_code == OK  # the first answer that revokes
    began_s = time.monotonic()
    wait_for(lambda: a.beat().error_code == UNKNOWN, "its removal", poll=lambda: time.sleep(0.05))
    assert time.monotonic() - began_s > 0.9
    b.settle(4)


def test_part_of_a_revocation_releases_nothing(a: RawConsumer) -> None:
    b = beside(a)
    assert a.beat().error_code == OK
    ((topic_id, kept),) = a.assigned
    moved = sorted({0, 1, 2, 3} - set(kept))
    before = a.epoch
    answer = a.beat(owned=((topic_id, tuple(sorted({*kept, moved[0]}))),))
    assert (answer.error_code, answer.epoch) == (OK, before)
    assert b.beat().error_code == OK
    assert b.count == 0
    a.owned = ((topic_id, kept),)
    assert a.beat().epoch > before
    b.settle(2)


def test_join_with_a_known_id_changes_nothing(a: RawConsumer) -> None:
    """The way in which a killed process returns with its stored id."""
    b, kept, _ = shared(a)
    epochs = (a.epoch, b.epoch)
    again = RawConsumer(a.wire, a.group_id, a.topics, member_id=a.member_id)
    assert again.join().error_code == OK
    assert (again.epoch, list(again.owned[0][1])) == (a.epoch, kept)
    assert b.beat().error_code == OK
    assert (again.epoch, b.epoch) == epochs


def test_join_with_a_known_id_acknowledges_a_revocation(a: RawConsumer) -> None:
    b = beside(a)
    assert a.beat().error_code == OK
    assert a.join().error_code == OK
    assert a.count == 2
    b.settle(2)


def test_member_makes_its_own_id(a: RawConsumer) -> None:
    """KIP-1082. In version 0, a lost answer would leave a member that no process knows."""
    nameless = RawConsumer(a.wire, a.group_id, a.topics, member_id="")
    assert nameless.join().error_code == ErrorCode.INVALID_REQUEST


def test_leave_of_the_classic_protocol_removes_the_member(a: RawConsumer) -> None:
    """A supervisor sends it for a process that died, and need not know the protocol."""
    leave = api.LeaveGroupRequest(
        group_id=a.group_id, member_id=a.member_id, group_instance_id=None, reason=""
    )
    assert a.wire.ask(leave).error_code == OK
    assert a.beat().error_code == UNKNOWN


def test_leave_that_overtakes_its_join_leaves_a_ghost(a: RawConsumer) -> None:
    """So joins, heartbeats and leaves share one connection."""
    late = RawConsumer(a.wire, a.group_id, a.topics)
    assert late.leave() == UNKNOWN
    assert late.join().error_code == OK
    a.settle(2)  # for the ghost


# --- static members ------------------------------------------------------------------------------


def test_static_id_is_refused_while_its_member_lives(wire: Wire, group_id: str, topic: str) -> None:
    """Also to the same member id, so a stored member id does not help a static member."""
    first = alone(RawConsumer(wire, group_id, (topic,), instance_id="one"))
    second = RawConsumer(wire, group_id, (topic,), instance_id="one")
    assert second.join().error_code == UNRELEASED
    same = RawConsumer(wire, group_id, (topic,), instance_id="one", member_id=first.member_id)
    assert same.join().error_code == UNRELEASED
    wire.set_group(group_id, session_timeout_ms=1_000, heartbeat_interval_ms=100)
    assert first.beat().error_code == OK
    wait_for(lambda: second.join().error_code == OK, "the end of the session")
    assert second.count == 4


def test_static_member_that_leaves_for_now_gets_its_partitions_back(
    wire: Wire, group_id: str, topic: str
) -> None:
    first = alone(RawConsumer(wire, group_id, (topic,), instance_id="one"))
    other = beside(first)
    first.settle(2)
    first.beat()
    other.settle(2)
    epochs = (first.epoch, other.epoch)
    assert first.leave(for_now=True) == OK
    assert other.beat().error_code == OK
    assert other.count == 2
    second = RawConsumer(wire, group_id, (topic,), instance_id="one")
    assert second.join().error_code == OK
    assert other.beat().error_code == OK
    assert second.owned == first.owned
    assert (second.epoch, other.epoch) == epochs
    # The replaced process is told.
    assert first.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(0) == [UNKNOWN]
    assert second.commit(0) == [OK]


# --- subscriptions, topics, settings -------------------------------------------------------------


def test_broker_knows_two_assignors_by_name(wire: Wire, group_id: str, topic: str) -> None:
    for name in ("uniform", "range"):
        assert RawConsumer(wire, unique("g"), (topic,), assignor=name).join().error_code == OK
    answer = RawConsumer(wire, group_id, (topic,), assignor="sticky").join()
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform" in answer.error_message
    assert "range" in answer.error_message


def test_topic_that_is_made_again_has_another_id(a: RawConsumer, topic: str) -> None:
    ((old_id, _),) = a.owned
    a.wire.cluster.delete_topic(topic)
    a.settle(0)
    a.wire.cluster.create_topic(topic, 4)
    a.settle(4)
    ((new_id, _),) = a.assigned
    assert new_id != old_id
    assert new_id == a.wire.topic_id(topic)


def test_new_partitions_are_assigned_by_a_heartbeat(a: RawConsumer, topic: str) -> None:
    a.wire.cluster.add_partitions(topic, 6)
    a.settle(6)


def test_missing_topic_is_no_error(wire: Wire, group_id: str) -> None:
    name = unique("missing")
    member = RawConsumer(wire, group_id, (name,))
    assert member.join().error_code == OK
    assert member.count == 0
    wire.cluster.create_topic(name, 3)
    member.settle(3)


def test_classic_description_of_the_group_is_dead(a: RawConsumer) -> None:
    described = a.wire.ask(DescribeGroupRequest(group_id=a.group_id))
    assert (described.state, described.members) == ("Dead", ())


def test_group_tells_its_timeouts(wire: Wire, a: RawConsumer) -> None:
    """The answers to heartbeats tell the interval only."""

    def told() -> GroupTimeouts:
        answer: GroupTimeouts = wire.ask(FindGroupTimeouts(group_id=a.group_id))
        return answer

    assert told() == GroupTimeouts(error_code=OK, session_ms=45_000, assignment_interval_ms=0)
    wire.set_group(a.group_id, session_timeout_ms=2_000, heartbeat_interval_ms=300)
    assert told() == GroupTimeouts(error_code=OK, session_ms=2_000, assignment_interval_ms=0)
    assert a.beat().interval_ms == 300


def test_session_ends_without_heartbeats(wire: Wire, a: RawConsumer) -> None:
    wire.set_group(a.group_id, session_timeout_ms=1_000, heartbeat_interval_ms=100)
    assert a.beat().error_code == OK
    b = beside(a)
    began_s = time.monotonic()
    b.settle(4)
    assert time.monotonic() - began_s < 10  # not the default of 45 s
    assert a.beat().error_code == UNKNOWN


def test_short_heartbeat_renews_the_session_and_changes_nothing(a: RawConsumer) -> None:
    answer = a.wire.ask(
        api.ConsumerBeatRequest(group_id=a.group_id, member_id=a.member_id, epoch=a.epoch)
    )
    assert (answer.error_code, answer.epoch, answer.assigned) == (OK, a.epoch, None)


def test_assignment_interval_delays_the_second_target(wire: Wire, a: RawConsumer) -> None:
    """KIP-1263: no bell can hurry the second of two joins in a row."""
    wire.set_group(a.group_id, assignment_interval_ms=1_000)
    began_s = time.monotonic()
    b = beside(a)
    c = beside(a)
    while c.count == 0:
        for one in (a, b, c):
            assert one.beat().error_code == OK
            one.owned = one.assigned
        assert time.monotonic() - began_s < 30
    assert time.monotonic() - began_s > 0.9
