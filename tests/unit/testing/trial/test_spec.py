"""The specifications that the controller sends to its processes."""

from __future__ import annotations

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing.trial.spec import (
    KINDS,
    ProducerSpec,
    WorkerSpec,
    check_kind,
    dump_spec,
    load_spec,
    policy_name,
)

WORKER = WorkerSpec(
    kind="eager",
    name="m1",
    group_id="billing",
    topics=("a", "b"),
    partitions_per_topic=4,
    log_path="logs/m1",
    client_config={"bootstrap.servers": "127.0.0.1:9"},
    policy_arguments={"scheduled_rebalance_timeout_ms": 5},
    assign_failures=2,
    heavy_partitions=(1, 5),
)
PRODUCER = ProducerSpec(
    topics=("a",),
    partitions_per_topic=2,
    log_path="logs/producer",
    client_config={"bootstrap.servers": "127.0.0.1:9"},
    rate_per_partition=12.5,
    backlog=(3, 1),
    keys=5,
)


def test_worker_spec_when_sent_arrives_unchanged() -> None:
    assert load_spec(WorkerSpec, dump_spec(WORKER)) == WORKER


def test_producer_spec_when_sent_arrives_unchanged() -> None:
    assert load_spec(ProducerSpec, dump_spec(PRODUCER)) == PRODUCER


def test_spec_when_sent_is_one_line() -> None:
    assert "\n" not in dump_spec(WORKER)


@pytest.mark.parametrize(
    "kind", [*KINDS, "coopgroup-deferred-static", "coopgroup-simple-kept-bell"]
)
def test_check_kind_when_known_returns_it(kind: str) -> None:
    assert check_kind(kind) == kind


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "lazy",
        "eager-static",
        "eager-kept",
        "coopgroup-eager",
        "coopgroup-simple-static-kept",
        "coopgroup-simple-bell-kept",
        "eager-bell",
        "kip848-static",
    ],
)
def test_check_kind_when_unknown_names_the_kinds(kind: str) -> None:
    with pytest.raises(ConfigurationError, match="expected one of coopgroup-simple, "):
        check_kind(kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("coopgroup-simple", "simple"),
        ("coopgroup-deferred-static", "deferred"),
        ("coopgroup-incremental-kept", "incremental"),
    ],
)
def test_policy_name_when_of_one_of_ours_leaves_out_the_identity(kind: str, expected: str) -> None:
    assert policy_name(kind) == expected
