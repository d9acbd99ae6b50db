"""A forked child cannot use the members of its parent, and learns why at once."""

from pathlib import Path

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
LOCKED = """
import gc
class Closing:
    def close(self):
        global consumer
        del consumer
        gc.collect()
async def begin():
    global consumer
    consumer = AsyncCooperativeConsumer(KEYS, "orders")
    await consumer.start()
asyncio.new_event_loop().run_until_complete(begin())
polling, is_held = consumer._polling, threading.Event()
def hold():
    with polling.parts.driver.inbox._lock:
        is_held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
is_held.wait()
in_child(Closing())
"""
MADE_GROUP = """
del KEYS["log_level"]
group = CooperativeGroup(KEYS, catalogue=[("task", 1)], start=print, stop=print)
"""
MADE_LEADERSHIP = """
del KEYS["log_level"]
group = Leadership(KEYS)
"""
JOINED_IN_CHILD = """
class Joining:
    def close(self):
        group.join()
        in_child(group, ("join", group.join), ("health", group.health))
        group.health()
        group.close()
in_child(Joining())
"""
REFUSED_IN_CHILD = """
in_child(group, ("join", group.join), ("health", group.health))
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


def test_forked_child_ends_although_a_thread_held_the_lock_of_a_consumer() -> None:
    """The child collected the consumer, and ended its polling thread at exit."""
    assert output_of(f"{CHECK}{LOCKED}{END}") == "0\n"


@pytest.mark.parametrize("made", [MADE_GROUP, MADE_LEADERSHIP], ids=["group", "leadership"])
def test_group_is_joined_in_the_child_that_was_forked_before(made: str) -> None:
    """As prefork servers do, which make it in the parent."""
    assert output_of(f"{CHECK}{made}{JOINED_IN_CHILD}{END}") == "0\n0\n"


@pytest.mark.parametrize("made", [MADE_GROUP, MADE_LEADERSHIP], ids=["group", "leadership"])
@pytest.mark.parametrize(
    "key", ["coopgroup.state.dir", "coopgroup.telemetry.file", "coopgroup.telemetry.topic"]
)
def test_group_that_has_opened_something_belongs_to_the_parent(
    tmp_path: Path, made: str, key: str
) -> None:
    keys = f"KEYS[{key!r}] = {str(tmp_path / 'opened')!r}\n"
    if key.endswith("topic"):
        keys = f"KEYS[{key!r}] = 'opened'\n"
    assert output_of(f"{CHECK}{keys}{made}{REFUSED_IN_CHILD}{END}") == "0\n"


def test_fork_waits_while_a_member_imports_modules() -> None:
    """The child would wait for ever for the lock of a module that the fork interrupted."""
    program = (
        "import os, threading\n"
        "from coopgroup.kafka.forked import forks_wait\n"
        "held, go = threading.Event(), threading.Event()\n"
        "def load():\n"
        "    with forks_wait:\n"
        "        held.set()\n"
        "        go.wait()\n"
        "        print('loaded', flush=True)\n"
        "os.register_at_fork(before=go.set)\n"  # the last one registered runs first
        "thread = threading.Thread(target=load)\n"
        "thread.start()\n"
        "held.wait()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    with forks_wait:\n"
        "        print('child', flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "with forks_wait:\n"
        "    print('parent', flush=True)\n"
    )
    assert output_of(program).split() == ["loaded", "child", "parent"]
