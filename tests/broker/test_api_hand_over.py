"""`hand_over`: a member that leaves permanently passes its partitions on while it still works."""

from pathlib import Path

from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

PARTITIONS = 4
RECORDS = 10


def test_hand_over_passes_everything_on_and_takes_part_again_when_subscribed_again(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """The leaving member works until the other one owns its partitions; no record is repeated."""
    topic = unique("handed-over")
    kafka_cluster.create_topic(topic, PARTITIONS)
    with Crew(kafka_cluster, tmp_path) as crew:
        for name in ("leaver", "stayer"):
            crew.add(name).subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "two each")
        leaver = crew.members["leaver"]
        member_id = leaver.memberid()
        leaver.hand_over()
        assert len(leaver.assignment()) == PARTITIONS // 2  # the call alone stops no partition
        produce(kafka_cluster, topic, [RECORDS] * PARTITIONS)
        crew.until(lambda: crew.counts() == [0, PARTITIONS], "all is handed over")
        produce(kafka_cluster, topic, [RECORDS] * PARTITIONS)
        leaver.subscribe([topic])
        crew.until(lambda: crew.share((topic, PARTITIONS)), "two each again")
        assert leaver.memberid() == member_id
        crew.until(lambda: sum(map(len, crew.messages.values())) >= 80, "all records")
        crew.during(0.5)
        got = [(one.partition(), one.offset()) for some in crew.messages.values() for one in some]
        assert len(got) == len(set(got)) == 2 * RECORDS * PARTITIONS
