"""Make librdkafka look up the brokers of topics that it did not fetch so far."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from confluent_kafka import KafkaException

from coopgroup.kafka.clock import now_s

__all__ = ["learn_topics"]

# More topics than this are looked up in one request for all topics of the cluster.
_SINGLE_TOPICS_MAX: Final = 5
_LEARN_TIMEOUT_S: Final = 1.0


def learn_topics(client: Any, topics: set[str]) -> None:  # noqa: ANN401  (librdkafka's, or a test's)
    """Make librdkafka look up the partitions' brokers for topics that it did not fetch so far.

    Otherwise librdkafka would begin the look-up at its next tick, and the first records would
    arrive up to a second later. Assigned topics exist, so the request creates no topic. If no
    answer arrives, the look-up happens at the next tick as usual. The application waits
    meanwhile, so all look-ups together have one limit.
    """
    deadline_s = now_s() + _LEARN_TIMEOUT_S
    with contextlib.suppress(KafkaException):
        if len(topics) > _SINGLE_TOPICS_MAX:
            client.list_topics(timeout=_LEARN_TIMEOUT_S)
            return
        for topic in sorted(topics):
            left_s = deadline_s - now_s()
            if left_s <= 0:
                return
            client.list_topics(topic, timeout=left_s)
