"""The configuration of a group of named resources, and the page that lists its keys."""

import re
from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.groups.settings import GroupSettings

LEAST = {"bootstrap.servers": "localhost:9092", "group.id": "workers"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"no.such.key": 5}, "but there is no such key: a group has the keys of a consumer, and"),
        ({"auto.offset.reest": "latest"}, "(did you mean auto.offset.reset?)"),
        ({"auto.offset.reset": "x"}, "auto.offset.reset: got 'x', expected earliest, latest or"),
        ({"auto.commit.interval.ms": -1}, "auto.commit.interval.ms: got -1, expected a whole"),
        ({"on_commit": 5}, "on_commit: got 5, expected a callable"),
        ({"group.protocol": "consumer"}, "classic: a group of named resources needs a leader"),
        ({"rebalance_cb": print}, "pass on_assign, on_revoke and on_lost to subscribe()"),
        ({"log_cb": print}, "log_cb: got '(not shown)', but there is no such key"),
        ({"coopgroup.stop.timeuot.ms": 5}, "(did you mean coopgroup.stop.timeout.ms?)"),
        ({"bootstrap_servers": "x"}, "there is no such key: it is called bootstrap.servers"),
        ({"coopgroup.stop.timeout.ms": 1_000}, "at least session.timeout.ms (45000)"),
        ({"coopgroup.stop.timeout.ms": 10**9}, "coopgroup.stop.timeout.ms: got 1000000000"),
        ({"session.timeout.ms": 1_000}, "session.timeout.ms: got 1000, expected more than"),
        ({"group.id": ""}, "group.id: got '', expected the name of the group"),
    ],
)
def test_settings_when_wrong_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        GroupSettings.read({**LEAST, **given})


RECORD_KEYS = {
    "auto.offset.reset": "earliest",
    "coopgroup.protocols": "coopgroup,cooperative-sticky",
    "enable.auto.commit": True,
    "error_cb": print,
    "fetch.min.bytes": 1_000_000,
    "group.protocol.type": "consumer",
    "isolation.level": "read_uncommitted",
    "max.poll.interval.ms": 1_000,
    "on_commit": print,
    "partition.assignment.strategy": "range",
    "stats_cb": print,
    "statistics.interval.ms": 1_000,
    "value.deserializer": print,
}


def test_keys_about_records_have_no_effect() -> None:
    """One dictionary serves a consumer and a group."""
    assert GroupSettings.read({**LEAST, **RECORD_KEYS}) == GroupSettings.read(LEAST)


def test_keys_about_logs_reach_the_reader_of_a_topic() -> None:
    given = {"log_level": 3, "debug": "fetch"}
    read = GroupSettings.read({**LEAST, **given}).shared.librdkafka
    assert given.items() <= read.items()
