"""The choice of offsets for a commit."""

from collections import deque
from typing import Any

import attrs
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from coopgroup.core.member import MemberConfig, new_member
from coopgroup.core.member.effects import GrantResources
from coopgroup.core.member.events import Offset
from coopgroup.core.model import ResourceSet
from coopgroup.kafka.membership.group_metadata import Fence, encode_group_metadata
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.records.offsets import OffsetStore, given_offsets
from coopgroup.kafka.records.partitions import all_but, to_partitions
from coopgroup.kafka.rpc.questions import CommittedOffset
from tests.unit.kafka.fakes import FakeCoordinator, FakeLibrdkafka, record, starts

HELD = ResourceSet({"t": [0, 1]})
ERROR = Message(error=KafkaError(KafkaError._PARTITION_EOF, "the end"))


def store(*, automatic: bool) -> tuple[OffsetStore, FakeLibrdkafka]:
    """Return a store over a fetcher with one record of each of two partitions."""
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka, starts())
    fetching.begin(to_partitions(HELD))
    librdkafka.feed([record(1, 4), record(0, 9)])
    fetching.fetch(2, 0)
    return OffsetStore(fetching, automatic), librdkafka


def test_due_when_automatic_are_positions_that_are_not_committed() -> None:
    """With the epoch of the last record (KIP-320)."""
    offsets, _ = store(automatic=True)
    offsets.fetching.record_buffer.take(2)
    assert offsets.due(HELD) == (Offset("t", 0, 10, 4), Offset("t", 1, 5, 4))
    offsets.mark_committed([Offset("t", 0, 10)])
    assert offsets.due(HELD) == (Offset("t", 1, 5, 4),)
    assert offsets.due(ResourceSet()) == ()
    offsets.forget(ResourceSet({"t": [0]}))
    assert offsets.due(ResourceSet({"t": [0]})) == (Offset("t", 0, 10, 4),)


def test_due_of_a_partition_that_still_stops_is_what_was_stored() -> None:
    """Its position may pass records that processing has not handled."""
    offsets, _ = store(automatic=True)
    offsets.fetching.record_buffer.take(2)
    offsets.store([Offset("t", 0, 2), Offset("t", 1, 3)])
    offsets.stored_only = ResourceSet({"t": [0]})
    assert offsets.due(HELD) == (Offset("t", 0, 2), Offset("t", 1, 5, 4))
    offsets.forget(ResourceSet({"t": [0]}))
    assert offsets.due(ResourceSet({"t": [0]})) == (Offset("t", 0, 10, 4),)


def test_due_when_stored_by_hand_are_those() -> None:
    offsets, _ = store(automatic=False)
    offsets.mark_committed([Offset("t", 0, 0), Offset("t", 1, 0)])
    assert offsets.due(HELD) == ()
    offsets.store([Offset("t", 1, 3), Offset("t", 0, 2), Offset("t", 7, 1), Offset("t", 1, 4)])
    assert offsets.due(HELD) == (Offset("t", 0, 2), Offset("t", 1, 4))
    offsets.fetching.end(ResourceSet({"t": [0]}))
    offsets.forget(ResourceSet({"t": [0]}))
    assert offsets.due(HELD) == (Offset("t", 1, 4),)


@pytest.mark.parametrize("automatic", [True, False])
def test_due_is_where_an_idle_partition_began_until_something_is_committed(
    *, automatic: bool
) -> None:
    """Otherwise its next owner resolves "latest" again, and skips records."""
    coordinator = FakeCoordinator(
        committed={("t", 1): CommittedOffset(5)}, logs={("t", 0): (0, 9), ("t", 1): (0, 9)}
    )
    fetching = Fetching(FakeLibrdkafka(), starts(coordinator, "latest"))
    offsets = OffsetStore(fetching, automatic)
    fetching.begin(to_partitions(HELD))
    fetching.pause([TopicPartition("t", 0)], HELD, "application")
    assert [one.offset for one in fetching.positions(to_partitions(HELD))] == [9, 5]
    assert offsets.due(HELD) == (Offset("t", 0, 9),)  # what is committed needs no commit
    assert offsets.due(ResourceSet({"t": [1]})) == ()
    offsets.mark_committed([Offset("t", 0, 3)])  # by the application, which wants that
    assert offsets.due(HELD) == ()
    offsets.forget(ResourceSet({"t": [0]}))
    fetching.end(ResourceSet({"t": [0]}))
    assert offsets.due(HELD) == ()


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("is_held", [True, False])
def test_due_is_where_a_partition_is_about_to_begin(*, automatic: bool, is_held: bool) -> None:
    """Its revocation comes before the next poll, or before its `on_assign` has ended."""
    coordinator = FakeCoordinator(
        committed={("t", 1): CommittedOffset(5)}, logs={("t", 0): (0, 9)}, is_silent=not is_held
    )
    fetching = Fetching(FakeLibrdkafka(), starts(coordinator, "latest"))
    offsets = OffsetStore(fetching, automatic)
    fetching.starts.hear(GrantResources(resources=HELD))
    if is_held:
        fetching.hold(to_partitions(HELD))
    else:
        fetching.begin(to_partitions(HELD))
        assert offsets.due(HELD) == ()
        coordinator.is_silent = False
        for request, hear in coordinator.waiting:
            hear(coordinator.answer(request))
    assert fetching.fetched == ResourceSet()
    assert offsets.due(HELD) == (Offset("t", 0, 9),)
    offsets.mark_committed(offsets.due(HELD))
    fetching.begin_known()
    assert offsets.due(HELD) == ()


@pytest.mark.parametrize(("automatic", "due"), [(True, (Offset("t", 0, 3),)), (False, ())])
def test_due_is_where_the_application_continues_unless_it_stores_offsets(
    *, automatic: bool, due: tuple[Offset, ...]
) -> None:
    fetching = Fetching(FakeLibrdkafka(), starts())
    offsets = OffsetStore(fetching, automatic)
    fetching.begin([TopicPartition("t", 0, 7)])
    offsets.mark_committed([Offset("t", 0, 7)])
    assert offsets.due(HELD) == ()
    fetching.seek(TopicPartition("t", 0, 3))
    assert offsets.due(HELD) == due


@pytest.mark.parametrize(("edge", "offset"), [(OFFSET_END, 9), (OFFSET_BEGINNING, 2)])
@pytest.mark.parametrize("begins", ["fetched", "waiting", "held", "given"])
def test_an_end_of_the_log_is_a_number_that_can_be_committed(
    begins: str, edge: int, offset: int
) -> None:
    coordinator = FakeCoordinator(committed={("t", 0): CommittedOffset(5)}, logs={("t", 0): (2, 9)})
    librdkafka = FakeLibrdkafka()
    fetching = Fetching(librdkafka, starts(coordinator))
    offsets, place = OffsetStore(fetching, automatic=True), TopicPartition("t", 0, edge)
    coordinator.is_silent = begins == "waiting"
    if begins == "given":
        fetching.begin([place])
    elif begins == "held":
        held = fetching.hold([TopicPartition("t", 0)])
        fetching.seek(place)
        fetching.release(held)
    else:
        fetching.begin([TopicPartition("t", 0)])
        coordinator.is_silent = False
        librdkafka.feed([record(0, 5)] if begins == "fetched" else [])
        fetching.fetch(1, 0)
        fetching.seek(place)
    assert [one.offset for one in fetching.positions([place])] == [offset]
    assert offsets.due(HELD) == (Offset("t", 0, offset),)
    assert (fetching.record_buffer.ready, fetching.waiting) == (deque(), frozenset())
    assert librdkafka.calls[-1] == ("assign", [(0, offset)])


def test_given_offsets_of_a_record_are_those_of_the_next_one() -> None:
    """The epoch is that of the record (KIP-320)."""
    assert given_offsets(record(3, 7), None, "commit") == (Offset("t", 3, 8, 4),)
    assert given_offsets(None, [], "commit") == ()
    assert given_offsets(None, None, "commit") is None


@pytest.mark.parametrize(
    ("message", "offsets", "kind", "said"),
    [
        (ERROR, [], ValueError, "message and offsets are mutually exclusive"),
        (1, None, TypeError, "expected confluent_kafka.cimpl.Message"),
        (None, 1, TypeError, "requires list of TopicPartition"),
        (None, [1], TypeError, "expected cimpl.TopicPartition"),
        (ERROR, None, KafkaException, "Cannot store offsets for message with error: 'the end'"),
    ],
)
def test_given_offsets_when_wrong_are_refused_as_there(
    message: Any,  # noqa: ANN401
    offsets: Any,  # noqa: ANN401
    kind: type[Exception],
    said: str,
) -> None:
    with pytest.raises(kind, match=said):
        given_offsets(message, offsets, "store")


@pytest.mark.parametrize(("instance_id", "end"), [(None, b"\1"), ("static-1", b"\0static-1\0")])
def test_group_metadata_is_what_librdkafka_writes(instance_id: str | None, end: bytes) -> None:
    """The bytes of librdkafka 2.16 for a consumer without membership."""
    config = MemberConfig(group_id="g", instance_id=instance_id)
    assert encode_group_metadata(config, Fence()) == b"CGMDv2:\xff\xff\xff\xffg\0\0" + end


def test_fence_names_the_last_generation_until_there_is_a_new_one() -> None:
    member = new_member(MemberConfig(group_id="g"))
    joined = attrs.evolve(member, member_id="m", generation=7, claim_generation=6)
    fence = Fence().after(member).after(joined)
    assert fence == Fence("m", 7)
    lost = attrs.evolve(member, member_id="", generation=-1, claim_generation=-1)
    assert fence.after(lost) is fence
    assert fence.after(attrs.evolve(joined, member_id="n")) == Fence("n", 7)


def test_all_but_leaves_a_wrong_item_for_librdkafka_to_refuse() -> None:
    """`resume` reads the argument of the application, also while a partition is being revoked."""
    zero, one, wrong = TopicPartition("t", 0), TopicPartition("t", 1, 7), dict[str, Any](a=1)
    given: Any = [zero, wrong, one]
    assert all_but(given, {("t", 0)}) == [wrong, one]
