"""`coopgroup consume` as a process on a real broker: Ctrl-C gives everything back."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from coopgroup.testing import KafkaCluster
from tests.support.growing_file import whole_lines
from tests.support.live_group import produce, unique
from tests.support.waiting import wait_for

RECORDS = (3, 4)


def test_consume_command_when_interrupted_commits_and_leaves(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Each record is one line of JSON, partition changes go to standard error, status is 130."""
    topic, group = unique("command"), unique("command")
    kafka_cluster.create_topic(topic, len(RECORDS))
    produce(kafka_cluster, topic, RECORDS)
    arguments = [topic, "--group", group, "--from-beginning", "--json"]
    arguments += ["--bootstrap-server", kafka_cluster.bootstrap_servers]
    output, errors = tmp_path / "output", tmp_path / "errors"
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "coopgroup", "consume", *arguments], stdout=out, stderr=err
        )
        try:
            wait_for(lambda: len(whole_lines(output)) == sum(RECORDS), "all records")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            process.wait(60)
    records = [json.loads(line) for line in whole_lines(output)]
    assert sorted((one["partition"], one["offset"], one["value"]) for one in records) == [
        (number, offset, str(offset))
        for number, count in enumerate(RECORDS)
        for offset in range(count)
    ]
    told = [line.split(" (member ")[0] for line in errors.read_text().splitlines()]
    assert told == [f"assigned: {topic}[0,1]", f"revoked: {topic}[0,1]"]
    reader = Consumer(kafka_cluster.client_config() | {"group.id": group})
    asked = [TopicPartition(topic, number) for number in range(len(RECORDS))]
    assert tuple(one.offset for one in reader.committed(asked, 10)) == RECORDS
    reader.close()
