"""Answers to probes."""

import json
import math
from typing import Any

from attrs import evolve

from coopgroup.health.answers import Answer, live, ready
from coopgroup.kafka.health.value import Health, HealthLimits
from coopgroup.model import ResourceSet

FINE = Health(group_id="g", generation=1, state="stable", is_joined=True, lease_s=math.inf)
STUCK = evolve(FINE, since_poll_s=400.0, owned=ResourceSet({"t": [0]}), lease_s=12.3456)
LIMITS = HealthLimits()


def _content(answer: Answer) -> dict[str, Any]:
    assert answer.kind == "application/json"
    content = json.loads(answer.content)
    assert isinstance(content, dict)
    return content


def test_one_stuck_member_is_enough() -> None:
    answer = live([FINE, STUCK], LIMITS)
    assert answer.status == 503
    assert b"poll was not called for 400.0 s (limit 300.0 s)" in answer.content


def test_member_outside_of_its_group_is_alive_and_not_ready() -> None:
    starting = evolve(FINE, is_joined=False, generation=-1, state="joining")
    assert (ready([FINE, starting]).status, live([starting], LIMITS).status) == (503, 200)


def test_content_tells_what_a_person_on_call_asks() -> None:
    (member,) = _content(live([STUCK], LIMITS))["members"]
    assert member["partitions"] == 1
    assert member["lease_s"] == 12.346
    (idle,) = _content(live([FINE], LIMITS))["members"]
    assert idle["lease_s"] is None
