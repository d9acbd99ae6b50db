"""What librdkafka is asked ahead of the first assignment."""

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from coopgroup.kafka.fetching import Fetching


class _Consumer:
    """librdkafka's consumer, as far as topics are concerned.

    Attributes:
        asked: topics that were looked up, None for all.
        is_connected: whether look-ups are answered.
    """

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.is_connected = True

    def list_topics(self, topic: str | None = None, *, timeout: float) -> None:
        """Answer, or raise as without a connection."""
        if not self.is_connected:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001
        assert timeout == 0.05
        self.asked.append(topic)

    def incremental_assign(self, _partitions: list[TopicPartition]) -> None:
        """Fetch."""


def test_each_topic_is_looked_up_once_when_nothing_is_fetched_yet() -> None:
    """One at a time, so that each wait is short; then there is nothing to do."""
    consumer = _Consumer()
    fetching = Fetching(consumer)
    learnt = [fetching.learn_topics(("a", "b"), 0.05) for _ in range(3)]
    assert (learnt, consumer.asked) == ([True, True, False], ["a", "b"])


def test_many_topics_are_looked_up_at_once() -> None:
    """A request for each of a thousand topics would take longer than one for all."""
    consumer = _Consumer()
    fetching = Fetching(consumer)
    topics = tuple(str(number) for number in range(1_000))
    learnt = [fetching.learn_topics(topics, 0.05) for _ in range(2)]
    assert (learnt, consumer.asked) == ([True, False], [None])


def test_it_is_tried_again_when_there_was_no_connection() -> None:
    """The caller does something else meanwhile."""
    consumer = _Consumer()
    fetching = Fetching(consumer)
    consumer.is_connected = False
    assert not fetching.learn_topics(("a",), 0.05)
    consumer.is_connected = True
    assert fetching.learn_topics(("a",), 0.05)
    assert consumer.asked == ["a"]


def test_nothing_is_looked_up_when_partitions_are_fetched() -> None:
    """What is retained must not wait for a look-up."""
    consumer = _Consumer()
    fetching = Fetching(consumer)
    fetching.begin([TopicPartition("a", 0)])
    assert not fetching.learn_topics(("a", "b"), 0.05)
    assert consumer.asked == []
