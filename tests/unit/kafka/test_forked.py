"""A forked child cannot use the members of its parent, and learns why at once."""

import pytest

from tests.support.programs import output_of

CHECK = """
import asyncio, os, signal, sys, threading
from coopgroup import CooperativeConsumer, CooperativeGroup
from coopgroup.aio import AsyncCooperativeConsumer
from coopgroup.groups import Catalogue, Leadership
from coopgroup.aio import TopicPartition
KEYS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
def refused(call):
    try:
        call()
    except RuntimeError as error:
        return "belongs to the process that made it" in str(error)
    return False
def in_child(member, *calls):
    child = os.fork()
    if not child:
        signal.alarm(30)
        said = [name for name, call in calls if not refused(call)]
        member.close()
        if said:
            print("not refused:", *said, flush=True)
        sys.exit(0)  # collects what it has of the parent
    print(os.waitpid(child, 0)[1])
"""
CONSUMER = """
consumer = CooperativeConsumer(KEYS)
consumer.subscribe(["orders"])
consumer.poll(0.1)
in_child(
    consumer,
    ("poll", lambda: consumer.poll(0.1)),
    ("consume", lambda: consumer.consume(5, 0.1)),
    ("next", lambda: next(iter(consumer))),
    ("commit", lambda: consumer.commit(asynchronous=False)),
    ("subscribe", lambda: consumer.subscribe(["payments"])),
    ("unsubscribe", consumer.unsubscribe),
    ("assignment", consumer.assignment),
    ("memberid", consumer.memberid),
    ("list_topics", lambda: consumer.list_topics(timeout=1)),
    ("health", consumer.health),
)
assert consumer.poll(0.1) is None  # the parent goes on
"""
GROUP = """
del KEYS["log_level"]
group = CooperativeGroup(KEYS, catalogue=[("task", 1)], start=print, stop=print)
group.join()
in_child(
    group,
    ("join", group.join),
    ("hand_over", lambda: group.hand_over(1.0)),
    ("holds", lambda: group.holds(("task", 0))),
    ("held", group.held),
    ("health", group.health),
    ("leads", lambda: group.leads),
)
"""
LEADERSHIP = """
del KEYS["log_level"]
leadership = Leadership(KEYS)
leadership.join()
in_child(
    leadership,
    ("wait", lambda: leadership.wait(1.0)),
    ("leads", lambda: leadership.leads),
    ("token", lambda: leadership.token),
)
"""
ASYNC = """
class Closing:
    def close(self):
        asyncio.run(consumer.close())
async def begin():
    global consumer
    consumer = AsyncCooperativeConsumer(KEYS, "orders")
    await consumer.start()
loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
in_child(
    Closing(),
    ("getone", lambda: asyncio.run(consumer.getone())),
    ("getmany", lambda: asyncio.run(consumer.getmany())),
    ("commit", lambda: asyncio.run(consumer.commit())),
    ("assignment", consumer.assignment),
    ("health", consumer.health),
)
"""
END = """
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.parametrize(
    "program",
    [CONSUMER, GROUP, LEADERSHIP, ASYNC],
    ids=["consumer", "group", "leadership", "async"],
)
def test_call_in_a_forked_child_says_why_and_close_does_nothing(program: str) -> None:
    """The first call, and `close`, waited for threads that only the parent has."""
    assert output_of(f"{CHECK}{program}{END}") == "0\n"
