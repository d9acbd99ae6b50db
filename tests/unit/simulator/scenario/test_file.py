"""Scenario files: their keys and meanings."""

import math
from pathlib import Path

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario import (
    AddPartitions,
    Bell,
    Capacity,
    Choice,
    Close,
    CoordinatorLost,
    CoordinatorMoved,
    Cost,
    Crash,
    CreateTopic,
    Cut,
    DeleteTopic,
    Flap,
    Group,
    How,
    Identity,
    MemberSet,
    Network,
    Pause,
    Rate,
    RollingRestart,
    Scale,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.file import parse_scenario, read_scenario
from tests.support.cases import cases

SMALL = """\
duration_ms = 60000

[topics.orders]
partitions = 2
rate_per_s = 10

[[members]]
name = "worker"
count = 3

[[members]]
name = "solo"
"""
"""The tests of refusals count its lines from the first one."""

FULL = """\
description = "Everything at once."
duration_ms = 600000
settle_ms = 30000
events = [
    { at_ms = 9000, kind = "rolling_restart", members = "worker", down_ms = 3000, \
every_ms = 5000, batch = 2, how = "crash" },
    { at_ms = 1000, kind = "crash", member = "worker-1", back_after_ms = 5000 },
    { at_ms = 2000, kind = "close", member = "leader" },
    { at_ms = 3000, kind = "pause", member = "solo", for_ms = 20000 },
    { at_ms = 4000, kind = "scale", members = "worker", to = 8, every_ms = 100, how = "close" },
    { at_ms = 5000, kind = "flap", member = "worker-7", up_ms = 1000, down_ms = 2000, times = 3 },
    { at_ms = 6000, kind = "cut", members = ["leader", "worker"], for_ms = 700 },
    { at_ms = 7000, kind = "coordinator_lost", for_ms = 900 },
    { at_ms = 7500, kind = "coordinator_moved" },
    { at_ms = 8000, kind = "add_partitions", topic = "orders", count = 2, rate_per_s = 7 },
    { at_ms = 8500, kind = "create_topic", topic = "later", partitions = 2, rate_per_s = [1, 2] },
    { at_ms = 8600, kind = "delete_topic", topic = "events" },
    { at_ms = 8700, kind = "rate", topic = "orders", partitions = [4], rate_per_s = 99.5 },
    { at_ms = 8800, kind = "capacity", members = ["solo"], capacity_per_s = 5 },
]

[group]
policy = { name = "simple", options = {} }
assignor = "lag-aware"
session_timeout_ms = 10000
rebalance_timeout_ms = 60000
heartbeat_interval_ms = 1000
window_heartbeat_interval_ms = 500
commit_interval_ms = 0

[policies.simple]

[topics.orders]
partitions = 3
rate_per_s = [10, 20.5, 0]

[topics.events]
partitions = 2
rate_per_s = 5

[[members]]
name = "worker"
count = 4
topics = ["orders", "later"]
identity = "state-dir"
capacity_per_s = 500
start_ms = 100
start_every_ms = 50
clock_skew_ppm = [-200, 200]

[[members]]
name = "solo"
identity = "static"
capacity_per_s = inf

[[costs]]
stop_ms = [1, 5]

[[costs]]
resources = { orders = [0, 2] }
stop_ms = 2000
commit_ms = 100
restore_ms = [5000, 6000]

[bell]
delay_ms = 3
loss = 0.1
false_every_ms = 500

[network]
delay_ms = [1, 20]
loss = 0.01
"""


def test_everything_that_a_file_can_say_is_read() -> None:
    assert parse_scenario(FULL, file="some/full.toml") == Scenario(
        name="full",
        description="Everything at once.",
        duration_ms=600_000,
        settle_ms=30_000,
        group=Group(
            policy=Choice(name="simple"),
            assignor=Choice(name="lag-aware"),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            heartbeat_interval_ms=1_000,
            window_heartbeat_interval_ms=500,
            commit_interval_ms=0,
        ),
        policies=(Choice(name="simple"),),
        topics=(
            Topic(name="orders", partitions=3, rate_per_s=(10, 20.5, 0)),
            Topic(name="events", partitions=2, rate_per_s=(5, 5)),
        ),
        members=(
            MemberSet(
                name="worker",
                count=4,
                topics=("orders", "later"),
                identity=Identity.STATE_DIR,
                capacity_per_s=500,
                start_ms=100,
                start_every_ms=50,
                clock_skew_ppm=Span(-200, 200),
            ),
            MemberSet(
                name="solo",
                topics=("orders", "events"),
                identity=Identity.STATIC,
                capacity_per_s=math.inf,
            ),
        ),
        costs=(
            Cost(stop_ms=Span(1, 5)),
            Cost(
                resources=ResourceSet({"orders": [0, 2]}),
                stop_ms=Span(2000, 2000),
                commit_ms=Span(100, 100),
                restore_ms=Span(5000, 6000),
            ),
        ),
        network=Network(delay_ms=Span(1, 20), loss=0.01),
        bell=Bell(delay_ms=Span(3, 3), loss=0.1, false_every_ms=500),
        events=(
            Crash(at_ms=1000, member="worker-1", back_after_ms=5000),
            Close(at_ms=2000, member="leader"),
            Pause(at_ms=3000, member="solo", for_ms=20_000),
            Scale(at_ms=4000, members="worker", to=8, every_ms=100),
            Flap(at_ms=5000, member="worker-7", up_ms=1000, down_ms=2000, times=3),
            Cut(at_ms=6000, members=("leader", "worker"), for_ms=700),
            CoordinatorLost(at_ms=7000, for_ms=900),
            CoordinatorMoved(at_ms=7500),
            AddPartitions(at_ms=8000, topic="orders", rate_per_s=(7, 7)),
            CreateTopic(at_ms=8500, topic=Topic(name="later", partitions=2, rate_per_s=(1, 2))),
            DeleteTopic(at_ms=8600, topic="events"),
            Rate(at_ms=8700, topic="orders", partitions=(4,), rate_per_s=99.5),
            Capacity(at_ms=8800, members=("solo",), capacity_per_s=5),
            RollingRestart(
                at_ms=9000,
                members=("worker",),
                down_ms=3000,
                every_ms=5000,
                batch=2,
                how=How.CRASH,
            ),
        ),
    )


def test_what_a_file_leaves_out_takes_its_default() -> None:
    scenario = parse_scenario(SMALL, file="small.toml")
    assert (scenario.group, scenario.network, scenario.costs) == (Group(), Network(), ())
    assert scenario.bell is None
    assert [one.topics for one in scenario.members] == [("orders",), ("orders",)]
    assert [one.processes for one in scenario.members] == [
        ("worker-1", "worker-2", "worker-3"),
        ("solo",),
    ]
    assert scenario.end_ms == 120_000


def test_a_policy_named_without_options_has_those_of_its_table() -> None:
    table = "[policies.deferred]\nscheduled_rebalance_timeout_ms = 7\n"
    named = f'{SMALL}\n[group]\npolicy = "deferred"\n{table}'
    assert parse_scenario(named, file="a.toml").group.policy == Choice(
        name="deferred", options={"scheduled_rebalance_timeout_ms": 7}
    )
    own = 'policy = { name = "deferred", options = { initial_delay_ms = 3 } }'
    brought = f"{SMALL}\n[group]\n{own}\n{table}"
    assert parse_scenario(brought, file="a.toml").group.policy == Choice(
        name="deferred", options={"initial_delay_ms": 3}
    )


def test_files_are_read_and_name_their_scenario(tmp_path: Path) -> None:
    path = tmp_path / "rolling_bounce.toml"
    path.write_text(SMALL)
    assert read_scenario(path).name == "rolling_bounce"
    path.write_text("x = 1")
    with pytest.raises(ConfigurationError, match=r"rolling_bounce\.toml: x: got 1"):
        read_scenario(str(path))
    path.write_text("duration_ms = 1\ntopics.t = { partitions = 1, rate_per_s = 1 }")
    missing = r"members: got nothing, expected \[\[members\]\], a table for each set of processes"
    with pytest.raises(ConfigurationError, match=missing):
        read_scenario(str(path))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigurationError, match=r"a file to read \(no such file or directory\)"):
        read_scenario(missing)
    with pytest.raises(ConfigurationError, match=r"a file to read \(is a directory\)"):
        read_scenario(tmp_path)
    missing.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="expected a text file in UTF-8"):
        read_scenario(missing)


# --- invalid scenario files: the error names file, key path and value -----------------------------


def refusal(text: str) -> str:
    """Return the message with which a text is refused."""
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text, file="a.toml")
    return str(caught.value)


def event(lines: str) -> str:
    return f"{SMALL}\n[[events]]\n{lines}\n"


WRONG_VALUES = """\
duration_ms = 60000 -> duration = 60000
    duration: got 60000, but there is no such key (did you mean duration_ms?); there are
    description, duration_ms, settle_ms, group, topics, connectors, resources, members, costs,
    network, bell, events, policies
duration_ms = 60000 ->
    duration_ms: got nothing, expected a value, as this key is required
= 60000 -> = "60 s"
    duration_ms: got '60 s', expected an integer
= 60000 -> = 0
    duration_ms: got 0, expected an integer from 1 to 1000000000000
partitions = 2 -> partitions = 0
    topics.orders.partitions: got 0, expected an integer from 1 to 1000000
rate_per_s = 10 -> rate_per_s = [1]
    topics.orders.rate_per_s: got [1.0], expected as many numbers as partitions (2)
rate_per_s = 10 -> rate_per_s = [; 1,; '2']
    topics.orders.rate_per_s[1]: got '2', expected a number
rate_per_s = 10 -> rate_per_s = 1e300
    topics.orders.rate_per_s: got 1e+300, expected a finite number from 0 to 1000000000
rate_per_s = 10 -> rate_per_s = 'x'
    topics.orders.rate_per_s: got 'x', expected a number, or a list of one for each
rate_per_s = 10 ->
    topics.orders.rate_per_s: got nothing, expected a value, as this key is required
[topics.orders] -> topics = 3; [policies.simple]
    topics: got 3, expected a table
name = "solo" -> name = "worker-2"
    members[1].name: got 'worker-2', expected names of processes that differ
name = "solo" -> name = "leader"
    members[1].name: got 'leader', expected a name other than 'leader'
count = 3 -> count = -1
    members[0].count: got -1, expected an integer from 0 to 1000000000000
count = 3 -> count = 10001
    members: got 10002, expected at most 10000 processes in the whole scenario
count = 3 -> topics = ["orders", "order"]
    members[0].topics[1]: got 'order', expected one of the topics orders
count = 3 -> topics = []
    members[0].topics: got [], expected at least one topic
count = 3 -> identity = "dynamic"
    members[0].identity: got 'dynamic', expected one of none, static, state-dir
count = 3 -> capacity_per_s = nan
    members[0].capacity_per_s: got nan, expected a number greater than 0, or inf
count = 3 -> clock_skew_ppm = [1, 2, 3]
    members[0].clock_skew_ppm: got [1, 2, 3], expected an integer or [min, max]
count = 3 -> clock_skew_ppm = -1000000
    members[0].clock_skew_ppm: got -1000000, expected an integer from -999999 to 1000000000000
count = 3 -> client = "java"
    members[0].client: got 'java', expected one of coopgroup, kip-848
count = 3 -> client = "kip-848"; identity = "static"
    members[0].identity: got 'static', expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; keeps_state = true
    members[0].keeps_state: got true, expected no value with client = "kip-848"
count = 3 -> traits = [4]
    members[0].traits: got [4], expected a table
count = 3 -> traits = {at = 2026-11-27}
    members[0].traits: got {'at': datetime.date(2026, 11, 27)}, expected a JSON object of at most
    1000 bytes and 8 levels, with finite numbers
count = 3 -> client = "kip-848"; traits = {places = 4}
    members[0].traits: got {'places': 4}, expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; clock_skew_ppm = 5
    members[0].clock_skew_ppm: got [5, 5], expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; [[events]]; kind="pause"; at_ms=5; member="worker"; for_ms=1
    events[0].member: got 'worker', expected members of coopgroup; client = "kip-848" has no lease,
    and hands nothing over
count = 3 -> client = "kip-848"; [[events]]; kind="hand_over"; at_ms=5; member="worker"
    events[0].member: got 'worker', expected members of coopgroup; client = "kip-848" has no lease,
    and hands nothing over
count = 3 -> client = "kip-848"; [[events]]; kind="cut"; at_ms=5; members="worker"; for_ms=1
    events[0].members: got ['worker'], expected members of coopgroup; client = "kip-848" has no
    lease, and hands nothing over
count = 3 -> client = "kip-848"; protocol = "consumer"
    members[0].protocol: got 'consumer', expected no value with client = "kip-848"
count = 3 -> protocol = "streams"
    members[0].protocol: got 'streams', expected one of classic, consumer
count = 3 -> protocol = "consumer"; [[events]]; kind="hand_over"; at_ms=5; member="worker"
    events[0].member: got 'worker', expected members of protocol = "classic"; a broker hands nothing
    over
count = 3 -> count = 3; start_every_ms = 30000
    members[0].start_ms: got 0, expected all starts before duration_ms (60000), the last is at
    60000
"""


def test_what_is_wrong_is_named_with_file_path_and_value(subtests: pytest.Subtests) -> None:
    for edit, message in cases(WRONG_VALUES):
        with subtests.test(edit=edit):
            old, _, new = edit.partition(" ->")
            assert old in SMALL
            assert refusal(SMALL.replace(old, new.strip(), 1)) == f"a.toml: {message}"


@pytest.mark.parametrize(
    ("event_of_it", "place"),
    [
        ('kind="hand_over"; member="solo"', "member: got 'solo'"),
        ('kind="scale"; members="solo"; to=0; how="hand-over"', "members: got 'solo'"),
        (
            'kind="rolling_restart"; members="solo"; down_ms=1; every_ms=1; how="hand-over"',
            "members: got ['solo']",
        ),
        (
            'kind="flap"; member="solo"; up_ms=1; down_ms=1; times=1; how="hand-over"',
            "member: got 'solo'",
        ),
    ],
)
def test_members_of_a_broker_hand_nothing_over(event_of_it: str, place: str) -> None:
    lines = event_of_it.replace("; ", "\n")
    text = f'{SMALL}protocol = "consumer"\n[[events]]\nat_ms = 5\n{lines}\n'
    expected = 'expected members of protocol = "classic"; a broker hands nothing over'
    assert refusal(text) == f"a.toml: events[0].{place}, {expected}"


WRONG_TABLES = """\
[group]; policy = "delayed"
    group.policy: got 'delayed', expected one of
[group]; policy = { name = "simple", options = { delay = 1 } }
    group.policy: option of policy simple: got 'delay', expected one of warmup
[group]; policy = 3
    group.policy: got 3, expected a name, or a table of
[group]; policy = {}
    group.policy.name: got nothing, expected a value, as this key is required
[group.assignor]; name = 'lag-aware'; [group.assignor.options]; scope = 'all'
    group.assignor: scope: got 'all', expected 'topic'
[group]; heartbeat_interval_ms = 50000
    group.heartbeat_interval_ms: got 50000, expected less than session_timeout_ms (45000)
[group]; window_heartbeat_interval_ms = 0
    group.window_heartbeat_interval_ms: got 0, expected an integer from 1 to 10
[policies.delayed]; x = 1
    policies.delayed: got 'delayed', expected one of
[bell]; false_every_ms = -1
    bell.false_every_ms: got -1, expected an integer from 0 to 1000000000000
[bell]; loss = 1
    bell.loss: got 1.0, expected a number from 0 up to but not including 1
[[costs]]; [[costs]]; stop_ms = 1
    costs[1].resources: got nothing, expected a value, as only one cost may be without
[costs]; stop_ms = 1
    costs: got {'stop_ms': 1}, expected [[costs]] with double brackets, a list of tables
[[costs]]; restore_ms = 5; return_ms = [2, 6]
    costs[0].return_ms: got [2, 6], expected at most 5, the highest restore_ms
[[costs]]; resources = { orders = [1, 2] }
    costs[0].resources: got {'orders': [2]}, expected partitions of topics
[[costs]]; resources.orders = [1]; [[costs]]; resources.orders = [0, 1]
    costs[1].resources: got {'orders': [1]}, expected every partition once
[[costs]]; resources.orders = [3000000000]
    costs[0].resources.orders[0]: got 3000000000, expected an integer from -21
[[costs]]; resources = 1
    costs[0].resources: got 1, expected a table
[topics.a]; partitions = 999999; rate_per_s = 0
    topics: got 1000001, expected at most 1000000 partitions in the whole scenario
"""


def test_invalid_tables_are_named(subtests: pytest.Subtests) -> None:
    for table, message in cases(WRONG_TABLES):
        with subtests.test(table=table):
            assert refusal(f"{SMALL}\n{table}\n").startswith(f"a.toml: {message}")


WRONG_EVENTS = """\
at_ms = 1
    events[0].kind: got nothing, expected one of add_partitions,
kind = 'explode'
    events[0].kind: got 'explode', expected one of add_partitions,
kind = 'crash'; at_ms = 1; member = 'worker-1'; for_ms = 3
    events[0].for_ms: got 3, but there is no such key; there are at_ms, member,
kind = 'crash'; at_ms = 1; member = 'worker-4'
    events[0].member: got 'worker-4', expected one of leader, solo, worker-1, worker-2, worker-3
kind = 'crash'; at_ms = 60000; member = 'solo'
    events[0].at_ms: got 60000, expected a time before duration_ms (60000)
kind = 'crash'; at_ms = 50000; member = 'solo'; back_after_ms = 20000
    events[0].at_ms: got 50000, expected an end by duration_ms (60000), this event ends at 70000
kind = 'scale'; at_ms = 1; members = 'solo'; to = 3
    events[0].members: got 'solo', expected one of worker
kind = 'scale'; at_ms = 1; members = 'worker'; to = 99999
    events[0].to: got 99999, expected an integer from 0 to 10000
kind = 'cut'; at_ms = 1; members = []; for_ms = 3
    events[0].members: got [], expected at least one name
kind = 'rolling_restart'; at_ms = 1; members = 'leader'; down_ms = 1; every_ms = 1
    events[0].members: got 'leader', expected one of solo, worker, worker-1,
kind = 'rate'; at_ms = 1; topic = 'order'; rate_per_s = 1
    events[0].topic: got 'order', expected one of the topics orders
kind = 'rate'; at_ms = 1; topic = 'orders'; partitions = [2]; rate_per_s = 1
    events[0].partitions[0]: got 2, expected partitions from 0 to 1
kind = 'create_topic'; at_ms = 1; topic = 'orders'; partitions = 1; rate_per_s = 1
    events[0].topic: got 'orders', expected a name never used
kind = 'add_partitions'; at_ms = 1; topic = 'orders'; count = 2; rate_per_s = [1]
    events[0].rate_per_s: got [1.0], expected as many numbers as count (2)
kind = 'delete_topic'; at_ms = 1; topic = 'orders';
[[events]]; kind = 'delete_topic'; at_ms = 0; topic = 'orders'
    events[0].topic: got 'orders', expected one of the topics that there are
"""


def test_invalid_events_are_named(subtests: pytest.Subtests) -> None:
    for lines, message in cases(WRONG_EVENTS):
        with subtests.test(lines=lines):
            assert refusal(event(lines)).startswith(f"a.toml: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \n", "scenario file: got 'a.toml', expected TOML (Invalid value (at line 1,"),
        (
            "a = 1\na = 2\n",
            "scenario file: got 'a.toml', expected TOML (Cannot overwrite a value (at line 2,",
        ),
        ("a = 1\nb = '", "scenario file: got 'a.toml', expected TOML ("),
        ("a = [\n\n", "scenario file: got 'a.toml', expected TOML ("),
        ("", "a.toml: duration_ms: got nothing, expected a value, as this key is required"),
    ],
)
def test_text_that_is_no_toml_is_refused_with_its_line(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("{a=", "}")])
def test_text_that_is_nested_too_deep_is_refused(begin: str, end: str) -> None:
    """It is refused before the parser exceeds the recursion limit."""
    text = f"a = {begin * 100_000}{end * 100_000}"
    with pytest.raises(ConfigurationError, match=r"got 'a.toml', expected TOML that is nested"):
        parse_scenario(text, file="a.toml")


LONG = "9" * 400


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("rate_per_s = 10", f"rate_per_s = {LONG}", "a.toml: topics.orders.rate_per_s"),
        ("rate_per_s = 10", f"rate_per_s = [1, {LONG}]", "a.toml: topics.orders.rate_per_s[1]"),
        ("count = 3", f"count = 3\ncapacity_per_s = {LONG}", "a.toml: members[0].capacity_per_s"),
    ],
)
def test_number_that_no_float_holds_is_refused(old: str, new: str, place: str) -> None:
    message = refusal(SMALL.replace(old, new))
    assert message.startswith(f"{place}: got 999")
    assert message.endswith("999, expected a number that a float can hold")
    assert len(message) < 200


def test_integers_longer_than_python_reads_or_writes_are_refused() -> None:
    text = SMALL.replace("= 60000", "= " + "9" * 5_000)
    assert refusal(text) == "scenario file: got 'a.toml', expected TOML with shorter integers"
    assert refusal(SMALL.replace("= 60000", "= 0x" + "f" * 5_000)) == (
        "a.toml: duration_ms: got an integer of thousands of digits, "
        f"expected an integer from 1 to {10**12}"
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (SMALL.replace('name = "worker"', "name = HUGE"), "members[0].name"),
        (SMALL.replace("rate_per_s = 10", "rate_per_s = [HUGE]"), "topics.orders.rate_per_s[0]"),
        (SMALL.replace("count = 3", "clock_skew_ppm = [HUGE]"), "members[0].clock_skew_ppm"),
        (SMALL.replace("count = 3", "count = 3\nsize = HUGE"), "members[0].size"),
        (event("kind = HUGE"), "events[0].kind"),
        (f"{SMALL}\n[[costs]]\nresources.orders = [HUGE]", "costs[0].resources.orders[0]"),
        (f"{SMALL}\n[group]\npolicy = HUGE", "group.policy"),
    ],
)
def test_integer_too_long_to_print_is_refused_anywhere_by_its_path(text: str, path: str) -> None:
    message = refusal(text.replace("HUGE", "0x" + "f" * 5_000))
    assert message.startswith(f"a.toml: {path}: got ")
    assert len(message) < 400
