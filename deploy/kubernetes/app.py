"""An application for the manifests of this folder: it prints records, and has probes and metrics.

Environment variables: BOOTSTRAP_SERVERS, GROUP_ID, TOPIC, POD_NAME; PORT instead of 8080;
HOST=0.0.0.0 on nodes whose kernel has no IPv6; STATIC=1 in a StatefulSet; STATE_DIR for a folder
that survives a restart of the container.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from confluent_kafka import Message

from coopgroup import CooperativeConsumer, DeferredPolicy
from coopgroup.health import serve
from coopgroup.metrics import PrometheusMetrics
from coopgroup.processing import process, run

PORT = int(os.environ.get("PORT", "8080"))
HOST = os.environ.get("HOST", "::")  # all addresses of the pod, of IPv4 and IPv6
STOP_TIMEOUT_MS = 25_000  # below terminationGracePeriodSeconds of the manifests


def bill(message: Message) -> None:
    """Handle one record."""
    print(message.topic(), message.partition(), message.offset(), flush=True)


def settings(metrics: PrometheusMetrics) -> dict[str, Any]:
    """Return the configuration of the consumer."""
    found: dict[str, Any] = {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "group.id": os.environ["GROUP_ID"],
        "client.id": os.environ["POD_NAME"],
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": 120_000,
        "coopgroup.telemetry.listener": metrics,
    }
    if os.environ.get("STATIC"):
        return found | {"group.instance.id": os.environ["POD_NAME"]}
    if os.environ.get("STATE_DIR"):
        return found | {"coopgroup.state.dir": os.environ["STATE_DIR"]}
    return found


def main() -> None:
    """Consume until SIGTERM."""
    metrics = PrometheusMetrics(drain_horizon_s=300)
    policy = DeferredPolicy(scheduled_rebalance_timeout_ms=60_000)
    consumer = CooperativeConsumer(settings(metrics), policy=policy)
    topics = [os.environ["TOPIC"]]
    with serve(PORT, consumer, host=HOST, metrics=metrics):
        if not os.environ.get("STATIC"):
            run(consumer, topics, bill, stop_timeout_ms=STOP_TIMEOUT_MS)
            return
        # A static member returns: it keeps its partitions instead of handing them over.
        stop = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        with consumer:
            consumer.subscribe(topics)
            process(consumer, bill, stop=stop, stop_timeout_ms=STOP_TIMEOUT_MS)


if __name__ == "__main__":
    main()
