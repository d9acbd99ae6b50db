"""Answers to probes."""

import json
import math

import pytest
from attrs import evolve

from coopgroup.core.model import ResourceSet
from coopgroup.health import live, ready
from coopgroup.kafka.health.value import Health, HealthLimits

FINE = Health(group_id="g", generation=1, state="stable", is_joined=True, lease_s=math.inf)
STUCK = evolve(FINE, since_poll_s=400.0, owned=ResourceSet({"t": [0]}), lease_s=12.3456)
LIMITS = HealthLimits()


STARTING = evolve(FINE, is_joined=False, generation=-1, state="joining")
PATIENT = HealthLimits(poll_s=500.0)


@pytest.mark.parametrize(
    ("members", "limits", "is_live", "is_ready"),
    [
        pytest.param([FINE, FINE], LIMITS, 200, 200, id="no partitions and no problems"),
        pytest.param([FINE, STUCK], LIMITS, 503, 200, id="one stuck member is enough"),
        pytest.param([STUCK], PATIENT, 200, 200, id="limits of the caller"),
        pytest.param([FINE, STARTING], LIMITS, 200, 503, id="outside of its group"),
    ],
)
def test_status_is_that_of_the_worst_member(
    members: list[Health], limits: HealthLimits, is_live: int, is_ready: int
) -> None:
    assert (live(members, limits).status, ready(members).status) == (is_live, is_ready)


def test_content_tells_what_a_person_on_call_asks() -> None:
    answer = live([STUCK, FINE], LIMITS)
    assert answer.kind == "application/json"
    content = json.loads(answer.content)
    assert content["ok"] is False
    assert b"poll was not called for 400.0 s (limit 300.0 s)" in answer.content
    told = [(one["partitions"], one["lease_s"]) for one in content["members"]]
    assert told == [(1, 12.346), (0, None)]
