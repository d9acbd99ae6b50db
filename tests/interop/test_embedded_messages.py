"""Our bytes beside those of kafka-python and kio, over all canonical vectors of Kafka."""

import io
import struct
from importlib import import_module
from typing import Any

from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from tests.unit.core.protocol.reference import Row, Vector, load_vectors

SHARED = [
    vector
    for vector in load_vectors()
    if vector.kind in {"subscription", "kafka_assignment"} and vector.canonical
]

OURS = [
    vector
    for vector in load_vectors()
    if (vector.kind, vector.canonical) == ("assignment", True)
    and not (vector.value or {})["revoked"]
]
"""Lists of revocations are no user data, so foreign readers may stumble at them."""


def kafka_python_bytes(vector: Vector) -> bytes:
    """Return kafka-python's encoding of a vector's value."""
    row = vector.value or {}
    user_data = _bytes(row["user_data_hex"])
    if vector.kind == "kafka_assignment":
        assigned = [
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indices)
            for name, indices in row["assigned"].items()
        ]
        return bytes(
            ConsumerProtocolAssignment(
                assigned_partitions=assigned,
                user_data=user_data,
            ).encode(version=vector.version)
        )
    owned = [
        ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=indices)
        for name, indices in row["owned"].items()
    ]
    return bytes(
        ConsumerProtocolSubscription(
            topics=row["topics"],
            user_data=user_data,
            owned_partitions=owned,
            generation_id=_generation(row),
            rack_id=row["rack"],
        ).encode(version=vector.version)
    )


def kio_message(vector: Vector) -> Any:  # noqa: ANN401 - a class per kind and version
    """Return a vector's value as kio's message of its version."""
    row = vector.value or {}
    fields: dict[str, Any] = {"user_data": _bytes(row["user_data_hex"])}
    if vector.kind == "kafka_assignment":
        module = import_module(f"kio.schema.consumer_protocol_assignment.v{vector.version}.data")
        fields["assigned_partitions"] = _kio_partitions(module, row["assigned"])
        return module.ConsumerProtocolAssignment(**fields)
    module = import_module(f"kio.schema.consumer_protocol_subscription.v{vector.version}.data")
    fields["topics"] = tuple(row["topics"])
    if vector.version >= 1:
        fields["owned_partitions"] = _kio_partitions(module, row["owned"])
    if vector.version >= 2:
        fields["generation_id"] = i32(_generation(row))
    if vector.version >= 3:
        fields["rack_id"] = row["rack"]
    return module.ConsumerProtocolSubscription(**fields)


def test_kafka_python_when_given_the_value_writes_our_bytes() -> None:
    for vector in SHARED:
        assert kafka_python_bytes(vector).hex() == vector.content.hex(), vector


def test_kio_when_given_the_value_writes_our_bytes() -> None:
    """The encoder of kio agrees with the vector except for the version, which it omits."""
    for vector in SHARED:
        message = kio_message(vector)
        written = io.BytesIO()
        entity_writer(type(message))(written, message)
        content = struct.pack(">h", vector.version) + written.getvalue()
        assert content.hex() == vector.content.hex(), vector


def test_kio_when_given_our_bytes_reads_the_value() -> None:
    for vector in SHARED:
        message = kio_message(vector)
        read, used = entity_reader(type(message))(vector.content, 2)
        assert (read, used) == (message, len(vector.content) - 2), vector


def test_kafkas_readers_when_given_our_assignment_find_what_is_assigned() -> None:
    """They must skip the rest: kafka-python and kio take our `revoked` for the user data."""
    module = import_module("kio.schema.consumer_protocol_assignment.v1.data")
    for vector in OURS:
        row = vector.value or {}
        seen, _ = entity_reader(module.ConsumerProtocolAssignment)(vector.content, 2)
        assert seen.assigned_partitions == _kio_partitions(module, row["assigned"]), vector
        theirs = ConsumerProtocolAssignment.decode(vector.content)
        found = {part.topic: part.partitions for part in theirs.assigned_partitions}
        assert found == row["assigned"], vector


def _kio_partitions(module: Any, resources: dict[str, list[int]]) -> tuple[Any, ...]:  # noqa: ANN401 - any version's module
    return tuple(
        module.TopicPartition(topic=TopicName(name), partitions=tuple(i32(i) for i in indices))
        for name, indices in resources.items()
    )


def _generation(row: Row) -> int:
    return -1 if row["generation"] is None else int(row["generation"])


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
