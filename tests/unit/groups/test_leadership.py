"""A leadership without a broker: the test makes the grants of its group."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

import pytest

from coopgroup import DeferredPolicy, Leadership, RangeAssignor, SimplePolicy, WeightedAssignor
from coopgroup.core.member.effects import GrantResources
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session import Session
from coopgroup.errors import ConfigurationError, Decline, StartFailed
from coopgroup.groups.callbacks import WorkFailure
from tests.support.by_hand import Hand
from tests.support.inner import inner

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def test_static_id_is_refused() -> None:
    """Two processes with one static id would lead with the same token (KIP-345)."""
    expected, static = "same token", dict[str, Any]({"group.instance.id": "w1"})
    with pytest.raises(ConfigurationError, match=expected):
        Leadership({**SETTINGS, **static})
    with pytest.raises(ConfigurationError, match=expected):
        Leadership(SETTINGS, **static)


def test_policy_and_assignor_may_be_names() -> None:
    key: dict[str, Any] = {"coopgroup.assignor": "weighted"}
    for leadership, expected in (
        (
            Leadership(SETTINGS, policy="deferred", assignor="range"),
            (DeferredPolicy, RangeAssignor),
        ),
        (Leadership(SETTINGS, **key), (SimplePolicy, WeightedAssignor)),
    ):
        with closing(leadership):
            decider = inner(leadership, "_group", "_driver").leader.decider()
            assert (type(decider.policy), type(decider.assignor)) == expected


def test_credentials_reach_the_connections_of_the_group() -> None:
    login = {
        **SETTINGS,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "old",
    }
    with closing(Leadership(login)) as leadership:
        leadership.set_sasl_credentials("me", "new")
        driver = inner(leadership, "_group", "_driver")
        assert driver.settings.connection.credentials.newest == ("me", "new")
    with closing(Leadership(SETTINGS)) as leadership:
        leadership.set_sasl_credentials("me", "new")  # no effect


def test_election_after_its_lease_is_reported(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat may renew the lease, and then this process leads."""
    elected = list[int]()
    leadership = Leadership(SETTINGS, on_elected=elected.append)
    driver, work = inner(leadership, "_group", "_driver"), inner(leadership, "_group", "_work")
    member = replaced(driver.member, claim_generation=3)
    monkeypatch.setattr(driver, "_session", Session(member=member))
    driver.lease_until_s = 0.0
    work.put(GrantResources(resources=ResourceSet.from_pairs([("leader", 0)])))
    hand.run()
    assert elected == [3]
    assert leadership.wait(0.0) is None
    driver.lease_until_s = math.inf
    assert (leadership.leads, leadership.wait(), leadership.token) == (True, 3, 3)
    assert not leadership.wait_lost(2.0)
    driver.lease_until_s = hand.now_s + 4.0
    assert leadership.wait_lost(10.0)
    assert hand.now_s == pytest.approx(driver.lease_until_s, abs=0.1)
    leadership.close()


def test_leader_that_cannot_lead_gives_its_place_to_another(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would keep the leadership for ever, and nobody could restart it."""

    def fail(_: int) -> None:
        raise StartFailed("no such table")

    failures = list[WorkFailure]()
    leadership = Leadership(SETTINGS, on_elected=fail, on_error=failures.append)
    driver, work = inner(leadership, "_group", "_driver"), inner(leadership, "_group", "_work")
    member = replaced(driver.member, claim_generation=3)
    monkeypatch.setattr(driver, "_session", Session(member=member))
    driver.lease_until_s = math.inf
    work.put(GrantResources(resources=ResourceSet.from_pairs([("leader", 0)])))
    hand.run()
    assert [repr(one.error) for one in failures] == [repr(Decline("no such table"))]
    assert work.failed() == {}
    leadership.close()
