"""The README's consumers, run as a reader runs them: as programs, twice, on a real broker."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, MemberDescription

from coopgroup.testing import KafkaCluster
from tests.architecture.readme import page_examples
from tests.architecture.tree import ROOT
from tests.support.growing_file import whole_lines
from tests.support.waiting import wait_for

PARTITIONS = 4
RECORDS = 40
STOP_TIMEOUT_S = 30
# A shell that runs the tests in the background may have set SIGINT to be ignored.
INTERRUPTIBLE = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"


def _produce(cluster: KafkaCluster, topic: str) -> list[str]:
    """Write RECORDS records evenly over all partitions.

    Returns:
        The lines that the example prints for them, sorted.
    """
    producer = Producer(cluster.client_config())
    for number in range(RECORDS):
        producer.produce(topic, value=f"order-{number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return sorted(f"{number % PARTITIONS} order-{number}" for number in range(RECORDS))


def _members(admin: AdminClient, group_id: str) -> list[MemberDescription]:
    return list(admin.describe_consumer_groups([group_id])[group_id].result(60).members)


@pytest.mark.parametrize("page", ["README.md", "docs/asyncio.md"])
def test_consumer_when_started_twice_shares_the_topic_and_ends_at_ctrl_c(
    page: str,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    """Two processes print each record once between them, and end without a traceback."""
    topic = f"readme-{Path(page).stem}"
    kafka_cluster.create_topic(topic, partitions=PARTITIONS)
    expected = _produce(kafka_cluster, topic)
    (example,) = page_examples(ROOT / page, "python broker")
    program = tmp_path / "example.py"
    program.write_text(
        INTERRUPTIBLE
        + example.replace("localhost:9092", kafka_cluster.bootstrap_servers)
        .replace('"orders"', f'"{topic}"')
        .replace('"billing"', f'"{topic}"')
    )

    outputs = [tmp_path / "1.txt", tmp_path / "2.txt"]
    processes = []

    def lines() -> list[str]:
        return [line.decode() for path in outputs for line in whole_lines(path)]

    with (tmp_path / "errors.txt").open("w+") as errors, ExitStack() as cleanup:
        for path in outputs:
            command = [sys.executable, "-u", str(program)]
            with path.open("w") as output:
                process = subprocess.Popen(command, stdout=output, stderr=errors)
            cleanup.callback(process.wait)
            cleanup.callback(process.kill)
            processes.append(process)
        wait_for(lambda: len(lines()) >= RECORDS, "a line for each record")
        # A process that is still about to import would be interrupted there.
        admin = AdminClient(dict(kafka_cluster.client_config()))
        wait_for(lambda: len(_members(admin, topic)) == 2, "two members")
        for process in processes:
            process.send_signal(signal.SIGINT)  # as Ctrl-C does
            process.wait(STOP_TIMEOUT_S)
    said = (tmp_path / "errors.txt").read_text()
    assert sorted(lines()) == expected, said
    assert "Traceback" not in said
    assert [process.returncode for process in processes] == [0, 0], said
