"""Conversions of confluent-kafka's partitions."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup.kafka.records.partitions import all_but


def test_all_but_leaves_a_wrong_item_for_librdkafka_to_refuse() -> None:
    """`resume` reads the argument of the application, also while a partition is being revoked."""
    zero, one, wrong = TopicPartition("t", 0), TopicPartition("t", 1, 7), dict[str, Any](a=1)
    given: Any = [zero, wrong, one]
    assert all_but(given, {("t", 0)}) == [wrong, one]


@pytest.mark.parametrize("given", [1, None, "t", (TopicPartition("t", 0),)])
def test_all_but_takes_a_list_only(given: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="requires list of TopicPartition"):
        all_but(given, {("t", 0)})
