"""Problems that users of other clients reported, played in groups that they share with ours.

Two more are tested elsewhere. `test_rolling_upgrade`: no way from eager to cooperative without a
stop (librdkafka issues 3589 and 4368). Unit tests of `leader/kafka_rounds` and of the codecs: user
data and versions that make leaders panic (sarama pull request 2608, franz-go issue 493).
"""

import time

import pytest

from tests.support.mixed_group import PARTITIONS, MixedGroup

pytestmark = pytest.mark.verify


def test_subscription_that_changes_reads_nothing_twice(mixed: MixedGroup) -> None:
    """Issues 4637 and 4686 of librdkafka: retained partitions restarted at committed offsets."""
    mixed.java_client("j", "cooperative-sticky")
    mixed.ours("a", "coopgroup,cooperative-sticky")
    mixed.settle("j", "a", protocol="cooperative-sticky")
    other = f"{mixed.topic}-other"
    mixed.cluster.create_topic(other, 1)
    began_s, repeated = time.monotonic(), mixed.ledger.repeated()
    mixed.subscribe("a", mixed.topic, other)
    mixed.until(lambda: mixed.topics_of("a") == {mixed.topic, other}, "a has both topics")
    mixed.settle("j", "a", protocol="cooperative-sticky")
    assert mixed.ledger.given_up_between("a", began_s, time.monotonic()) == []
    mixed.finish()
    assert mixed.ledger.repeated() == repeated


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_member_that_hands_over_shares_nothing_with_its_successor(
    mixed: MixedGroup, client: str
) -> None:
    """Leaders of librdkafka assign owned partitions whose owner no longer subscribes to them."""
    start = mixed.java_client if client == "java" else mixed.librdkafka
    start("f", "cooperative-sticky")
    mixed.settle("f", protocol="cooperative-sticky")
    consumer = mixed.ours("a", "coopgroup,cooperative-sticky")
    mixed.settle("f", "a", protocol="cooperative-sticky")
    mixed.call("a", consumer.hand_over)
    mixed.settle("f", protocol="cooperative-sticky")
    mixed.stop("a")
    mixed.finish()


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "range"])
def test_member_that_was_dropped_hears_of_losses_only(mixed: MixedGroup, protocol: str) -> None:
    """confluent-kafka-dotnet issue 2389: the revocation handler was called instead, or none.

    Also confluent-kafka-python issue 1551: the lost partitions must be the owned partitions.
    """
    mixed.java_client("j", protocol)
    mixed.ours("a", f"coopgroup,{protocol}", session_timeout_ms=2_000, max_poll_interval_ms=2_000)
    mixed.settle("j", "a", protocol=protocol)
    held = mixed.shares()["a"]
    began_s = time.monotonic()
    mixed.stall("a", 4.0)
    mixed.until(lambda: len(mixed.ledger.lost) == len(held), "it hears of its losses")
    assert sorted(mixed.ledger.lost) == [("a", partition) for partition in held]
    mixed.settle("j", "a", protocol=protocol)
    assert mixed.ledger.first_taken("j", began_s) < mixed.ledger.first_taken("a", began_s)


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "range"])
def test_static_member_that_restarts_moves_nothing(mixed: MixedGroup, protocol: str) -> None:
    """franz-go issue 931, PostHog issue 65809: the member was fenced, or never admitted again.

    The broker returns the assignment of the other client's leader to it, in that client's format.
    """
    mixed.java_client("j", protocol)
    mixed.settle("j", protocol=protocol)  # so j leads
    mixed.ours("a", f"coopgroup,{protocol}", group_instance_id="seat-1")
    mixed.settle("j", "a", protocol=protocol)
    before, began_s = mixed.shares(), time.monotonic()
    mixed.stop("a")
    mixed.ours("b", f"coopgroup,{protocol}", group_instance_id="seat-1")
    mixed.settle("j", "b", protocol=protocol)
    assert mixed.shares() == {"j": before["j"], "b": before["a"]}
    java = f"{mixed.group_id}/j"
    assert mixed.ledger.given_up_between(java, began_s, time.monotonic()) == []
    assert sum(map(len, mixed.shares().values())) == PARTITIONS
    mixed.finish()
