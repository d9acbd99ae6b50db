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
        ({"auto.offset.reset": "earliest"}, "got 'earliest', but there is no such key"),
        ({"max.poll.interval.ms": 5}, "max.poll.interval.ms: got 5, but there is no such key"),
        ({"coopgroup.stop.timeuot.ms": 5}, "(did you mean coopgroup.stop.timeout.ms?)"),
        ({"bootstrap_servers": "x"}, "there is no such key: it is called bootstrap.servers"),
        ({"coopgroup.catalogue.refresh.ms": 0}, "coopgroup.catalogue.refresh.ms: got 0"),
        ({"coopgroup.stop.timeout.ms": 1_000}, "at least session.timeout.ms (45000)"),
        ({"coopgroup.stop.timeout.ms": 10**9}, "coopgroup.stop.timeout.ms: got 1000000000"),
        ({"session.timeout.ms": 1_000}, "session.timeout.ms: got 1000, expected more than"),
        ({"group.id": ""}, "group.id: got '', expected the name of the group"),
    ],
)
def test_settings_when_wrong_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        GroupSettings.read({**LEAST, **given})
