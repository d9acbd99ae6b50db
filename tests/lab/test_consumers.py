"""The configuration of each kind of consumer."""

from __future__ import annotations

import pytest
from attrs import evolve

import coopgroup
from coopgroup.errors import ConfigurationError
from tests.lab.consumers import build_consumer, consumer_config
from tests.lab.spec import (
    WorkerSpec,
    check_kind,
)

SPEC = WorkerSpec(
    kind="eager",
    name="m1",
    group_id="billing",
    topics=("orders",),
    partitions_per_topic=4,
    log_path="logs/m1",
    client_config={"bootstrap.servers": "127.0.0.1:9"},
)
COMMON = {
    "bootstrap.servers": "127.0.0.1:9",
    "group.id": "billing",
    "client.id": "m1",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
TIMEOUTS: dict[str, object] = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}


STATIC = {"group.instance.id": "m1"}
KEPT = {"coopgroup.state.dir": "logs/state"}
SILENT = {"coopgroup.bell.topic": ""}
BELL = {"coopgroup.bell.topic": "trial-bell"}
EAGER = {"partition.assignment.strategy": "range"}
STICKY = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("coopgroup-simple", TIMEOUTS | SILENT),
        ("coopgroup-simple-static", TIMEOUTS | SILENT | STATIC),
        ("coopgroup-deferred-kept", TIMEOUTS | SILENT | KEPT),
        ("coopgroup-simple-bell", TIMEOUTS | BELL),
        ("coopgroup-simple-supervised-bell", TIMEOUTS | BELL),
        ("coopgroup-deferred-kept-bell", TIMEOUTS | KEPT | BELL),
        ("eager", TIMEOUTS | EAGER),
        ("cooperative-sticky", TIMEOUTS | STICKY),
        ("cooperative-sticky-static", TIMEOUTS | STICKY | STATIC),
        ("kip848", {"group.protocol": "consumer"}),
    ],
)
def test_consumer_config_when_of_a_kind_differs_only_there(
    kind: str, expected: dict[str, object]
) -> None:
    assert consumer_config(evolve(SPEC, kind=kind)) == {**COMMON, **expected}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (
            "coopgroup-deferred",
            {},
            coopgroup.DeferredPolicy(scheduled_rebalance_timeout_ms=5_000),
        ),
        (
            "coopgroup-incremental-static",
            {"move_interval_ms": 300},
            coopgroup.IncrementalPolicy(
                scheduled_rebalance_timeout_ms=5_000, max_moves_per_round=4, move_interval_ms=300
            ),
        ),
    ],
)
def test_build_consumer_when_of_a_policy_gives_it_the_arguments_of_a_trial(
    monkeypatch: pytest.MonkeyPatch, kind: str, given: dict[str, object], expected: object
) -> None:
    """Default delays fit the seconds of a trial; arguments of the trial win."""
    policies = []
    monkeypatch.setattr(
        coopgroup, "CooperativeConsumer", lambda _config, *, policy, **_: policies.append(policy)
    )
    build_consumer(evolve(SPEC, kind=kind, policy_arguments=given))
    assert policies == [expected]


# --- the specifications that the controller sends to its processes --------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        *("", "lazy", "eager-static", "eager-kept", "eager-bell", "kip848-static"),
        *("coopgroup-eager", "coopgroup-simple-static-kept", "coopgroup-simple-bell-kept"),
    ],
)
def test_check_kind_when_unknown_names_the_kinds(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one of coopgroup-simple, "):
        check_kind(kind)
