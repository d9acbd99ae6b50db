"""Invalid scenario files: the error names file, key path and value."""

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario.file import parse_scenario
from tests.support.cases import cases
from tests.unit.simulator.small_file import SMALL


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
= 60000 -> = true
    duration_ms: got true, expected an integer
= 60000 -> = 0
    duration_ms: got 0, expected an integer from 1 to 1000000000000
= 60000 -> = 1000000000000000
    duration_ms: got 1000000000000000, expected an integer from 1 to 1000000000000
partitions = 2 -> partitions = 0
    topics.orders.partitions: got 0, expected an integer from 1 to 1000000
rate_per_s = 10 -> rate_per_s = [1]
    topics.orders.rate_per_s: got [1.0], expected as many numbers as partitions (2)
rate_per_s = 10 -> rate_per_s = [; 1,; '2']
    topics.orders.rate_per_s[1]: got '2', expected a number
rate_per_s = 10 -> rate_per_s = 1e300
    topics.orders.rate_per_s: got 1e+300, expected a finite number from 0 to 1000000000
rate_per_s = 10 -> rate_per_s = -1
    topics.orders.rate_per_s: got -1.0, expected a finite number from 0 to 1000000000
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
count = 3 -> clock_skew_ppm = [2, 1]
    members[0].clock_skew_ppm: got [2, 1], expected the smaller number before the larger
count = 3 -> clock_skew_ppm = -1000000
    members[0].clock_skew_ppm: got -1000000, expected an integer from -999999 to 1000000000000
count = 3 -> client = "java"
    members[0].client: got 'java', expected one of coopgroup, kip-848
count = 3 -> client = "kip-848"; identity = "static"
    members[0].identity: got 'static', expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; keeps_state = true
    members[0].keeps_state: got true, expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; clock_skew_ppm = 5
    members[0].clock_skew_ppm: got [5, 5], expected no value with client = "kip-848"
count = 3 -> client = "kip-848"; [[events]]; kind="pause"; at_ms=5; member="worker"; for_ms=1
    events[0].member: got 'worker', expected members of coopgroup; client = "kip-848" has no lease
count = 3 -> client = "kip-848"; [[events]]; kind="cut"; at_ms=5; members="worker"; for_ms=1
    events[0].members: got ['worker'], expected members of coopgroup; client = "kip-848" has no
    lease
count = 3 -> count = 3; start_every_ms = 30000
    members[0].start_ms: got 0, expected all starts before duration_ms (60000), the last is at
    60000
"""


@pytest.mark.parametrize(("edit", "message"), cases(WRONG_VALUES))
def test_what_is_wrong_is_named_with_file_path_and_value(edit: str, message: str) -> None:
    old, _, new = edit.partition(" ->")
    assert old in SMALL
    assert refusal(SMALL.replace(old, new.strip(), 1)) == f"a.toml: {message}"


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
[network]; delay_ms = -1
    network.delay_ms: got -1, expected an integer from 0 to 1000000000000
[bell]; false_every_ms = -1
    bell.false_every_ms: got -1, expected an integer from 0 to 1000000000000
[bell]; loss = 1
    bell.loss: got 1.0, expected a number from 0 up to but not including 1
[network]; loss = 1
    network.loss: got 1.0, expected a number from 0 up to but not including 1
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
[[members]]; name = 1
    members[2].name: got 1, expected a string
[topics.a]; partitions = 999999; rate_per_s = 0
    topics: got 1000001, expected at most 1000000 partitions in the whole scenario
"""


@pytest.mark.parametrize(("table", "message"), cases(WRONG_TABLES))
def test_invalid_tables_are_named(table: str, message: str) -> None:
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
kind = 'close'; at_ms = -1; member = 'solo'
    events[0].at_ms: got -1, expected an integer from 0 to 1000000000000
kind = 'scale'; at_ms = 1; members = 'solo'; to = 3
    events[0].members: got 'solo', expected one of worker
kind = 'scale'; at_ms = 1; members = 'worker'; to = 99999
    events[0].to: got 99999, expected an integer from 0 to 10000
kind = 'cut'; at_ms = 1; members = []; for_ms = 3
    events[0].members: got [], expected at least one name
kind = 'rolling_restart'; at_ms = 1; members = 'leader'; down_ms = 1; every_ms = 1
    events[0].members: got 'leader', expected one of solo, worker, worker-1,
kind = 'flap'; at_ms = 1; member = 'solo'; up_ms = 1; down_ms = 1; times = 0
    events[0].times: got 0, expected an integer from 1 to 1000000000000
kind = 'pause'; at_ms = 1; member = 'solo'; for_ms = 0
    events[0].for_ms: got 0, expected an integer from 1 to 1000000000000
kind = 'rate'; at_ms = 1; topic = 'order'; rate_per_s = 1
    events[0].topic: got 'order', expected one of the topics orders
kind = 'rate'; at_ms = 1; topic = 'orders'; partitions = [2]; rate_per_s = 1
    events[0].partitions[0]: got 2, expected partitions from 0 to 1
kind = 'rate'; at_ms = 1; topic = 'orders'; rate_per_s = inf
    events[0].rate_per_s: got inf, expected a finite number from 0 to 1000000000
kind = 'capacity'; at_ms = 1; members = ['solo']; capacity_per_s = 0
    events[0].capacity_per_s: got 0.0, expected a number greater than 0, or inf
kind = 'create_topic'; at_ms = 1; topic = 'orders'; partitions = 1; rate_per_s = 1
    events[0].topic: got 'orders', expected a name never used
kind = 'add_partitions'; at_ms = 1; topic = 'x'; count = 1; rate_per_s = 1
    events[0].topic: got 'x', expected one of the topics orders
kind = 'add_partitions'; at_ms = 1; topic = 'orders'; rate_per_s = 1
    events[0].count: got nothing, expected a value, as this key is required
kind = 'add_partitions'; at_ms = 1; topic = 'orders'; count = 2; rate_per_s = [1]
    events[0].rate_per_s: got [1.0], expected as many numbers as count (2)
kind = 'delete_topic'; at_ms = 1; topic = 'orders';
[[events]]; kind = 'delete_topic'; at_ms = 0; topic = 'orders'
    events[0].topic: got 'orders', expected one of the topics that there are
kind = 'coordinator_lost'; at_ms = 1; for_ms = [1]
    events[0].for_ms: got [1]
kind = 'crash'; at_ms = 1; member = 'solo'; back_after_ms = 1.5
    events[0].back_after_ms: got 1.5, expected an integer
"""


@pytest.mark.parametrize(("lines", "message"), cases(WRONG_EVENTS))
def test_invalid_events_are_named(lines: str, message: str) -> None:
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
