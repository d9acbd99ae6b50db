"""A member of an earlier state of coopgroup, as a process of its own.

Arguments: the folder with the earlier package, a name, a topic, and KEY=VALUE of the configuration.
It prints what it does in the words of `java_members/Members.java`, and leaves the group at the end
of its standard input. It imports nothing of the present package.
"""

import sys
import threading
import time
from typing import Any


def main() -> None:
    source, name, topic, *settings = sys.argv[1:]
    sys.path.insert(0, source)

    from coopgroup import CooperativeConsumer, DeferredPolicy  # noqa: PLC0415 - of `source`

    def tell(what: str, more: str) -> None:
        print(name, what, time.monotonic_ns(), more, flush=True)  # noqa: T201 -- read by the test

    def report(what: str) -> Any:  # noqa: ANN401
        def callback(_: object, partitions: list[Any]) -> None:
            if partitions:
                tell(what, ",".join(str(one.partition) for one in partitions))

        return callback

    leaves = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        leaves.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    consumer = CooperativeConsumer(
        dict(setting.split("=", 1) for setting in settings),
        policy=DeferredPolicy(scheduled_rebalance_timeout_ms=1_000),
    )
    consumer.subscribe(
        [topic], on_assign=report("taken"), on_revoke=report("given"), on_lost=report("lost")
    )
    while not leaves.is_set():
        for message in consumer.consume(200, 0.02):
            if message.error() is None:
                tell("handed", f"{message.partition()}:{message.offset()}-{message.offset()}")
    consumer.close()
    print(name, "stopped", flush=True)  # noqa: T201 -- read by the test


if __name__ == "__main__":
    main()
