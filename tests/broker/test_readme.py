"""The README's consumer, run as a reader runs it: as a program, twice, on a real broker."""

import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest
from confluent_kafka import Producer

from coopgroup.testing import KafkaCluster
from tests.architecture.readme import readme_examples

PARTITIONS = 4
RECORDS = 40
START_TIMEOUT_S = 60
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
    assert producer.flush(30) == 0
    return sorted(f"{number % PARTITIONS} order-{number}" for number in range(RECORDS))


def _start(program: Path, errors: TextIO) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )


def _stop(process: subprocess.Popen[str]) -> None:
    """Interrupt `process` as Ctrl-C does; if it does not end in time, kill it and report it."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def _collect(process: subprocess.Popen[str], lines: list[str], enough: threading.Event) -> None:
    """Append the output of `process` to `lines`; set `enough` at the last record or the end."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if len(lines) >= RECORDS:
            enough.set()
    enough.set()


@pytest.mark.parametrize(
    "number", range(len(readme_examples("python broker"))), ids=lambda number: f"example{number}"
)
def test_consumer_when_started_twice_shares_the_topic(
    number: int,
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    """Two processes print each record once between them, and stop when interrupted."""
    topic = f"readme-{number}"
    kafka_cluster.create_topic(topic, partitions=PARTITIONS)
    expected = _produce(kafka_cluster, topic)
    program = tmp_path / "example.py"
    program.write_text(
        INTERRUPTIBLE
        + readme_examples("python broker")[number]
        .replace("localhost:9092", kafka_cluster.bootstrap_servers)
        .replace('"orders"', f'"{topic}"')
        .replace('"billing"', f'"{topic}"')
    )

    lines: list[str] = []
    enough = threading.Event()
    with (tmp_path / "errors.txt").open("w+") as errors, ExitStack() as cleanup:
        for _ in range(2):
            process = cleanup.enter_context(_start(program, errors))
            reader = threading.Thread(target=_collect, args=(process, lines, enough))
            reader.start()
            cleanup.callback(reader.join)
            cleanup.callback(_stop, process)
        enough.wait(START_TIMEOUT_S)
    assert sorted(lines) == expected, (tmp_path / "errors.txt").read_text()
