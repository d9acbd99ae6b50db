"""A worker for Kubernetes: it bills orders side by side, those of a customer one after the other.

    python examples/side_by_side.py --bootstrap localhost:9092 --topic orders --group billing

Start as many as you like. SIGTERM, as Kubernetes sends it, or Ctrl-C ends a process: it passes its
partitions on, ends the orders in progress, commits them, and leaves. A slow order never costs the
membership. An order that fails three times is skipped, and the log names it.
"""

from __future__ import annotations

import argparse
import time

from confluent_kafka import Message

from coopgroup import CooperativeConsumer
from coopgroup.processing import Retry, Skip, run


def bill(order: Message) -> None:
    """Write the bill of an order; another service takes its time for this."""
    time.sleep(0.02)
    line = f"billed {(order.value() or b'').decode()}\n"
    print(line, end="", flush=True)  # in one piece: other threads print too


def main() -> None:
    """Read the arguments and work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="localhost:9092")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--group", default="billing")
    arguments = parser.parse_args()
    config = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
    }
    on_error = Retry(attempts=3, otherwise=Skip())
    consumer = CooperativeConsumer(config)
    run(consumer, [arguments.topic], bill, order="key", workers=16, on_error=on_error)


if __name__ == "__main__":
    main()
