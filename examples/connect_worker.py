"""A worker like one of Kafka Connect: connectors and tasks, with definitions in a topic.

    python examples/connect_worker.py --name w1 --bootstrap localhost:9092 --topic connectors

Start as many as you like, each with a name of its own. The topic is compacted and has one
partition. Keys are names of connectors, values are definitions such as
{"plugin": "jdbc", "tasks": 4, "flush_ms": 20}. A worker writes its steps as JSON lines.
"""

import argparse
import json
import signal
import sys
import threading
import time

import coopgroup

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--bootstrap", default="localhost:9092")
parser.add_argument("--topic", default="connectors")
parser.add_argument("--name", required=True)
parser.add_argument("--plugins", default="file,jdbc")
given = parser.parse_args()
running: dict[coopgroup.Resource, tuple[threading.Event, threading.Thread]] = {}


def say(event: str, task: coopgroup.Resource, at_s: float, **more: object) -> None:
    """Write a line, in one piece: other threads write, too."""
    row = {"event": event, "task": task, "at_s": at_s, "worker": given.name, **more}
    print(json.dumps(row) + "\n", end="", flush=True)


def start(task: coopgroup.GroupResource) -> None:
    """Begin a connector or a task."""
    plugin = task.definition.get("plugin")
    if plugin is None:
        raise coopgroup.StartFailed("the definition names no plugin")  # it fails everywhere
    if plugin not in given.plugins.split(","):
        raise coopgroup.Decline(f"no plugin {plugin} here", for_s=86_400)  # another has it
    ends = threading.Event()
    running[task] = ends, threading.Thread(target=work, args=(task, ends), daemon=True)
    say("start", task, time.monotonic(), definition=task.definition)
    running[task][1].start()


def work(task: coopgroup.Resource, ends: threading.Event) -> None:
    """Work until the end is due."""
    while not ends.wait(0.02):
        at_s, token = time.monotonic(), group.token(task)
        if group.holds(task):  # ask before each step that must not happen twice
            say("work", task, at_s, token=token)


def stop(task: coopgroup.GroupResource) -> None:
    """End the work, and flush unless another worker may have begun already."""
    ends, thread = running.pop(task)
    ends.set()
    thread.join()
    time.sleep(0 if task.reason == "lost" else task.definition.get("flush_ms", 0) / 1000)
    say("stop", task, time.monotonic(), reason=task.reason)


group = coopgroup.CooperativeGroup(
    {
        "bootstrap.servers": given.bootstrap,
        "group.id": given.topic,
        "client.id": given.name,  # a worker that returns under its name gets its work back
        "session.timeout.ms": 6_000,
    },
    catalogue=coopgroup.CatalogueTopic(given.topic, tasks=lambda _, one: one["tasks"]),
    start=start,
    stop=stop,
    on_error=lambda failure: print(failure, file=sys.stderr),
    policy=coopgroup.IncrementalPolicy(scheduled_rebalance_timeout_ms=10_000),
)
closing = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: closing.set())
with group:
    while not closing.wait(1.0):  # without a time, a frozen process may not notice a signal
        pass
