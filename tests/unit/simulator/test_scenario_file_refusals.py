"""Invalid scenario files: the error names file, line and key."""

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.simulator.scenario_file import parse_scenario
from tests.unit.simulator.small_file import SMALL


def refusal(text: str) -> str:
    """Return the message with which a text is refused."""
    with pytest.raises(ConfigurationError) as caught:
        parse_scenario(text, file="a.toml")
    return str(caught.value)


def event(*lines: str) -> str:
    """Return a small scenario with one event, whose first line is line 15."""
    return "\n".join([SMALL, "[[events]]", *lines, ""])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "duration_ms = 60000",
            "duration = 60000",
            (
                "a.toml:1: duration: got 60000, but there is no such key"
                " (did you mean duration_ms?); there are description, duration_ms, settle_ms,"
                " group, topics, connectors, resources, members, costs, network, events, policies"
            ),
        ),
        (
            "duration_ms = 60000",
            "",
            "a.toml:1: duration_ms: got nothing, expected a value, as this key is required",
        ),
        ("= 60000", '= "60 s"', "a.toml:1: duration_ms: got '60 s', expected an integer"),
        ("= 60000", "= true", "a.toml:1: duration_ms: got true, expected an integer"),
        ("= 60000", "= 0", "a.toml:1: duration_ms: got 0, expected an integer from 1 on"),
        (
            "= 60000",
            f"= {10**15}",
            f"a.toml:1: duration_ms: got {10**15}, expected an integer of at most {10**12}",
        ),
        (
            "partitions = 2",
            "partitions = 0",
            "a.toml:4: topics.orders.partitions: got 0, expected an integer from 1 to 1000000",
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = [1]",
            (
                "a.toml:5: topics.orders.rate_per_s: got [1.0],"
                " expected one number for each of 2 partitions"
            ),
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = [\n1,\n'2']",
            "a.toml:7: topics.orders.rate_per_s: got '2', expected a number",
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = 1e300",
            (
                "a.toml:5: topics.orders.rate_per_s: got 1e+300, expected a finite number from 0 "
                "to 1000000000"
            ),
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = -1",
            (
                "a.toml:5: topics.orders.rate_per_s: got -1, expected a finite number from 0 to "
                "1000000000"
            ),
        ),
        (
            "rate_per_s = 10",
            "rate_per_s = 'x'",
            (
                "a.toml:5: topics.orders.rate_per_s: got 'x',"
                " expected a number, or a list of one for each partition"
            ),
        ),
        (
            "rate_per_s = 10",
            "",
            (
                "a.toml:3: topics.orders.rate_per_s: got nothing,"
                " expected a value, as this key is required"
            ),
        ),
        ("[topics.orders]", "topics = 3\n[group]", "a.toml:3: topics: got 3, expected a table"),
        (
            'name = "solo"',
            'name = "worker-2"',
            "a.toml:12: members.name: got 'worker-2', expected names of processes that differ",
        ),
        (
            'name = "solo"',
            'name = "leader"',
            "a.toml:12: members.name: got 'leader', expected a name other than 'leader'",
        ),
        (
            "count = 3",
            "count = -1",
            "a.toml:9: members.count: got -1, expected an integer from 0 on",
        ),
        (
            "count = 3",
            "count = 10001",
            "a.toml:7: members: got 10002, expected at most 10000 processes in the whole scenario",
        ),
        (
            "count = 3",
            'topics = ["orders", "order"]',
            "a.toml:9: members.topics: got 'order', expected one of the topics orders",
        ),
        (
            "count = 3",
            "topics = []",
            "a.toml:9: members.topics: got [], expected at least one topic",
        ),
        (
            "count = 3",
            'identity = "dynamic"',
            "a.toml:9: members.identity: got 'dynamic', expected one of none, static, state-dir",
        ),
        (
            "count = 3",
            "capacity_per_s = nan",
            "a.toml:9: members.capacity_per_s: got nan, expected a number greater than 0, or inf",
        ),
        (
            "count = 3",
            "clock_skew_ppm = [1, 2, 3]",
            "a.toml:9: members.clock_skew_ppm: got [1, 2, 3], expected an integer or [min, max]",
        ),
        (
            "count = 3",
            "clock_skew_ppm = [2, 1]",
            (
                "a.toml:9: members.clock_skew_ppm: got [2, 1],"
                " expected the smaller number before the larger"
            ),
        ),
        (
            "count = 3",
            "clock_skew_ppm = -1000000",
            "a.toml:9: members.clock_skew_ppm: got -1000000, expected an integer from -999999 on",
        ),
        (
            "count = 3",
            "count = 3\nstart_every_ms = 30000",
            (
                "a.toml:7: members.start_ms: got 0, expected all starts before duration_ms (60000),"
                " the last is at 60000"
            ),
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_key(old: str, new: str, message: str) -> None:
    """One line with the wrong value and the valid ones."""
    assert old in SMALL
    assert refusal(SMALL.replace(old, new, 1)) == message


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            '[group]\npolicy = "delayed"',
            "a.toml:15: policy: got 'delayed', expected one of ",
        ),
        (
            '[group]\npolicy = { name = "simple", options = { delay = 1 } }',
            "a.toml:15: option of policy simple: got 'delay', expected no options at all",
        ),
        ("[group]\npolicy = 3", "a.toml:15: group.policy: got 3, expected a name, or a table of"),
        (
            "[group]\npolicy = {}",
            "a.toml:15: group.policy.name: got nothing, expected a value, as this key is required",
        ),
        (
            "[group.assignor]\nname = 'lag-aware'\n[group.assignor.options]\nscope = 'all'",
            "a.toml:14: scope: got 'all', expected 'topic'",
        ),
        (
            "[group]\nheartbeat_interval_ms = 50000",
            (
                "a.toml:15: group.heartbeat_interval_ms: got 50000,"
                " expected less than session_timeout_ms (45000)"
            ),
        ),
        (
            "[group]\nwindow_heartbeat_interval_ms = 0",
            "a.toml:15: group.window_heartbeat_interval_ms: got 0, expected an integer from 1 on",
        ),
        (
            "[policies.delayed]\nx = 1",
            "a.toml:14: policy: got 'delayed', expected one of ",
        ),
        (
            "[network]\ndelay_ms = -1",
            "a.toml:15: network.delay_ms: got -1, expected an integer from 0 on",
        ),
        (
            "[network]\nloss = 1",
            "a.toml:15: network.loss: got 1, expected a number from 0 up to but not including 1",
        ),
        (
            "[[costs]]\n[[costs]]\nstop_ms = 1",
            "a.toml:15: costs: got 1, expected resources, as only one cost lacks",
        ),
        (
            "[[costs]]\nresources = { orders = [1, 2] }",
            "a.toml:15: costs.resources: got {'orders': [2]}, expected partitions of topics",
        ),
        (
            "[[costs]]\nresources.orders = [1]\n[[costs]]\nresources.orders = [0, 1]",
            "a.toml:17: costs.resources: got {'orders': [1]}, expected every partition once",
        ),
        (
            "[[costs]]\nresources.orders = [3000000000]",
            "a.toml:15: costs.resources: got 3000000000, expected an index within int32",
        ),
        ("[[costs]]\nresources = 1", "a.toml:15: costs.resources: got 1, expected a table"),
        ("[[members]]\nname = 1", "a.toml:15: members.name: got 1, expected a string"),
        (
            "[topics.a]\npartitions = 999999\nrate_per_s = 0",
            (
                "a.toml:3: topics: got 1000001,"
                " expected at most 1000000 partitions in the whole scenario"
            ),
        ),
    ],
)
def test_tables_that_cannot_be_are_named(table: str, message: str) -> None:
    """The line is that of the key, in any table."""
    assert refusal(f"{SMALL}\n{table}\n").startswith(message)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["at_ms = 1"], "a.toml:14: events.kind: got nothing, expected one of add_partitions,"),
        (
            ["kind = 'explode'"],
            "a.toml:15: events.kind: got 'explode', expected one of add_partitions,",
        ),
        (
            ["kind = 'crash'", "at_ms = 1", "member = 'worker-1'", "for_ms = 3"],
            "a.toml:18: events.for_ms: got 3, but there is no such key; there are at_ms, member,",
        ),
        (
            ["kind = 'crash'", "at_ms = 1", "member = 'worker-4'"],
            (
                "a.toml:17: events.member: got 'worker-4',"
                " expected one of leader, solo, worker-1, worker-2, worker-3"
            ),
        ),
        (
            ["kind = 'crash'", "at_ms = 60000", "member = 'solo'"],
            "a.toml:16: events.at_ms: got 60000, expected a time before duration_ms (60000)",
        ),
        (
            ["kind = 'crash'", "at_ms = 50000", "member = 'solo'", "back_after_ms = 20000"],
            (
                "a.toml:16: events.at_ms: got 50000, expected an end by duration_ms (60000),"
                " this event ends at 70000"
            ),
        ),
        (
            ["kind = 'close'", "at_ms = -1", "member = 'solo'"],
            "a.toml:16: events.at_ms: got -1, expected an integer from 0 on",
        ),
        (
            ["kind = 'scale'", "at_ms = 1", "members = 'solo'", "to = 3"],
            "a.toml:17: events.members: got 'solo', expected one of worker",
        ),
        (
            ["kind = 'scale'", "at_ms = 1", "members = 'worker'", "to = 99999"],
            "a.toml:7: members: got 10002, expected at most 10000 processes in the whole scenario",
        ),
        (
            ["kind = 'cut'", "at_ms = 1", "members = []", "for_ms = 3"],
            "a.toml:17: events.members: got [], expected at least one name",
        ),
        (
            [
                "kind = 'rolling_restart'",
                "at_ms = 1",
                "members = 'leader'",
                "down_ms = 1",
                "every_ms = 1",
            ],
            "a.toml:17: events.members: got 'leader', expected one of solo, worker, worker-1,",
        ),
        (
            [
                "kind = 'flap'",
                "at_ms = 1",
                "member = 'solo'",
                "up_ms = 1",
                "down_ms = 1",
                "times = 0",
            ],
            "a.toml:20: events.times: got 0, expected an integer from 1 on",
        ),
        (
            ["kind = 'pause'", "at_ms = 1", "member = 'solo'", "for_ms = 0"],
            "a.toml:18: events.for_ms: got 0, expected an integer from 1 on",
        ),
        (
            ["kind = 'rate'", "at_ms = 1", "topic = 'order'", "rate_per_s = 1"],
            "a.toml:17: events.topic: got 'order', expected one of the topics orders",
        ),
        (
            [
                "kind = 'rate'",
                "at_ms = 1",
                "topic = 'orders'",
                "partitions = [2]",
                "rate_per_s = 1",
            ],
            "a.toml:18: events.partitions: got 2, expected partitions from 0 to 1",
        ),
        (
            ["kind = 'rate'", "at_ms = 1", "topic = 'orders'", "rate_per_s = inf"],
            "a.toml:18: events.rate_per_s: got inf, expected a finite number from 0 to 1000000000",
        ),
        (
            ["kind = 'capacity'", "at_ms = 1", "members = ['solo']", "capacity_per_s = 0"],
            "a.toml:18: events.capacity_per_s: got 0, expected a number greater than 0, or inf",
        ),
        (
            [
                "kind = 'create_topic'",
                "at_ms = 1",
                "topic = 'orders'",
                "partitions = 1",
                "rate_per_s = 1",
            ],
            "a.toml:17: events.topic: got 'orders', expected a name never used",
        ),
        (
            ["kind = 'add_partitions'", "at_ms = 1", "topic = 'x'", "count = 1", "rate_per_s = 1"],
            "a.toml:17: events.topic: got 'x', expected one of the topics orders",
        ),
        (
            ["kind = 'add_partitions'", "at_ms = 1", "topic = 'orders'", "rate_per_s = 1"],
            "a.toml:14: events.count: got nothing, expected a value, as this key is required",
        ),
        (
            [
                "kind = 'add_partitions'",
                "at_ms = 1",
                "topic = 'orders'",
                "count = 2",
                "rate_per_s = [1]",
            ],
            "a.toml:19: events.rate_per_s: got [1.0], expected one number for each of 2 new",
        ),
        (
            [
                *("kind = 'delete_topic'", "at_ms = 1", "topic = 'orders'", "[[events]]"),
                *("kind = 'delete_topic'", "at_ms = 0", "topic = 'orders'"),
            ],
            "a.toml:17: events.topic: got 'orders', expected one of the topics that there are",
        ),
        (
            ["kind = 'coordinator_lost'", "at_ms = 1", "for_ms = [1]"],
            "a.toml:17: events.for_ms: got [1]",
        ),
        (
            ["kind = 'crash'", "at_ms = 1", "member = 'solo'", "back_after_ms = 1.5"],
            "a.toml:18: events.back_after_ms: got 1.5, expected an integer",
        ),
    ],
)
def test_events_that_cannot_be_are_named(lines: list[str], message: str) -> None:
    """Unknown members, times after the end, keys of other kinds and so on."""
    assert refusal(event(*lines)).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \n", "a.toml:1: got 'a =', expected TOML (invalid value)"),
        ("a = 1\na = 2\n", "a.toml:2: got 'a = 2', expected TOML (cannot overwrite a value)"),
        ("a = 1\nb = '", 'a.toml:2: got "b = \'", expected TOML ('),
        ("a = [\n\n", "a.toml:2: got '', expected TOML ("),
        ("", "a.toml:1: duration_ms: got nothing, expected a value, as this key is required"),
    ],
)
def test_text_that_is_no_toml_is_refused_with_its_line(text: str, message: str) -> None:
    """The reason is Python's."""
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
        ("rate_per_s = 10", f"rate_per_s = {LONG}", "a.toml:5: topics.orders.rate_per_s"),
        ("rate_per_s = 10", f"rate_per_s = [1, {LONG}]", "a.toml:5: topics.orders.rate_per_s"),
        ("count = 3", f"count = 3\ncapacity_per_s = {LONG}", "a.toml:10: members.capacity_per_s"),
    ],
)
def test_number_that_no_float_holds_is_refused(old: str, new: str, place: str) -> None:
    """The value is shortened to one line."""
    message = refusal(SMALL.replace(old, new))
    assert message.startswith(f"{place}: got 999")
    assert message.endswith("999, expected a number that a float can hold")
    assert len(message) < 200


def test_integers_longer_than_python_reads_or_writes_are_refused() -> None:
    """Python does not read them in base 10, and does not write them in base 16."""
    text = SMALL.replace("= 60000", "= " + "9" * 5_000)
    assert refusal(text) == "scenario file: got 'a.toml', expected TOML with shorter integers"
    assert refusal(SMALL.replace("= 60000", "= 0x" + "f" * 5_000)) == (
        "a.toml:1: duration_ms: got an integer of thousands of digits, "
        f"expected an integer of at most {10**12}"
    )
