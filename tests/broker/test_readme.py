"""The README's consumers, run as a reader runs them: as programs, twice, on a real broker."""

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
from tests.architecture.readme import page_examples
from tests.architecture.tree import ROOT

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

    lines: list[str] = []
    enough = threading.Event()
    processes = []
    with (tmp_path / "errors.txt").open("w+") as errors, ExitStack() as cleanup:
        for _ in range(2):
            process = cleanup.enter_context(_start(program, errors))
            processes.append(process)
            reader = threading.Thread(target=_collect, args=(process, lines, enough))
            reader.start()
            cleanup.callback(reader.join)
            cleanup.callback(_stop, process)
        enough.wait(START_TIMEOUT_S)
    said = (tmp_path / "errors.txt").read_text()
    assert sorted(lines) == expected, said
    assert "Traceback" not in said
    assert [process.returncode for process in processes] == [0, 0], said
