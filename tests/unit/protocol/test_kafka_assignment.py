"""The assignment of Kafka's own clients."""

import pytest

from coopgroup.errors import EncodeError
from coopgroup.model import ResourceSet
from coopgroup.protocol import KafkaAssignment, encode_kafka_assignment
from tests.unit.protocol.contract import CodecContract


class TestKafkaAssignment(CodecContract):
    kind = "kafka_assignment"


@pytest.mark.parametrize("version", [-1, 4])
def test_encode_when_version_is_unknown_is_refused(version: int) -> None:
    with pytest.raises(EncodeError, match=f"^version: got {version}, expected 0 to 3$"):
        encode_kafka_assignment(KafkaAssignment(assigned=ResourceSet({"a": [0]})), version)
