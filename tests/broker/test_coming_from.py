"""What docs/coming-from.md says of FastStream and OpenTelemetry holds on a real broker."""

import re
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Message, Producer
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from coopgroup import CooperativeConsumer
from coopgroup.metrics import traced
from coopgroup.testing import KafkaCluster
from tests.architecture.tree import ROOT
from tests.support.page_reader import WAIT_S, Reader

PARTITIONS = 4
pytestmark = pytest.mark.verify


def test_faststream_service_shares_a_topic_between_two_processes(
    kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Each record is handled once, before, during and after the join of the second process."""
    kafka_cluster.create_topic("faststream", partitions=PARTITIONS)
    reader = Reader(ROOT / "docs" / "coming-from.md", tmp_path)
    program = tmp_path / "service.py"
    program.write_text(program.read_text().replace('"orders"', '"faststream"'))
    producer = Producer(kafka_cluster.client_config())
    sent: list[str] = []

    def handled() -> list[tuple[str, str]]:
        return [one for line in reader.lines for one in re.findall(r"^(s\d) bills (\S+)$", line)]

    def send_until_handled_by(names: set[str]) -> None:
        deadline = time.monotonic() + WAIT_S
        while {name for name, _ in handled()} != names:
            assert time.monotonic() < deadline, reader.lines[-5:]
            for partition in range(PARTITIONS):
                sent.append(f"order-{len(sent)}")
                producer.produce("faststream", sent[-1], partition=partition)
            producer.flush(60)
            time.sleep(0.1)

    with reader.cleanup:
        address = kafka_cluster.bootstrap_servers
        first = reader.start("service.py", address, "s1")
        send_until_handled_by({"s1"})
        second = reader.start("service.py", address, "s2")
        send_until_handled_by({"s1", "s2"})
        deadline = time.monotonic() + WAIT_S
        while len(handled()) < len(sent) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in (second, first):
            process.terminate()
            assert process.wait(WAIT_S) == 0
    assert sorted(order for _, order in handled()) == sorted(sent)


def test_instrumented_process_has_one_span_for_each_record_below_that_of_its_sender(
    kafka_cluster: KafkaCluster,
) -> None:
    """`instrument` sees the producer, and no fetch of ours; `traced` sees the records."""
    topic = "traced-handler"
    kafka_cluster.create_topic(topic, partitions=1)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    values: list[bytes | None] = []

    def handle(message: Message) -> None:
        values.append(message.value())

    traced_handle = traced(handle, tracer_provider=provider)
    config = {**kafka_cluster.client_config(), "group.id": topic, "auto.offset.reset": "earliest"}
    ConfluentKafkaInstrumentor().instrument(tracer_provider=provider)
    try:
        producer = confluent_kafka.Producer(kafka_cluster.client_config())
        for number in range(5):
            producer.produce(topic, str(number))
        assert producer.flush(60) == 0
        with CooperativeConsumer(config) as consumer:
            unlike: Any = consumer
            assert not isinstance(unlike, confluent_kafka.Consumer)
            consumer.subscribe([topic])
            for message in consumer:
                traced_handle(message)
                if len(values) == 5:
                    break
    finally:
        ConfluentKafkaInstrumentor().uninstrument()
    found = spans.get_finished_spans()
    sent = {span.context.span_id for span in found if span.name == f"{topic} send"}
    processed = [span for span in found if span.name == f"process {topic}"]
    assert values == [b"0", b"1", b"2", b"3", b"4"]
    assert len(found) == len(sent) + len(processed) == 10
    assert {span.parent.span_id for span in processed if span.parent is not None} == sent
