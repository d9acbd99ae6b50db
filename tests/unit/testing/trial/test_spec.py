"""The specifications that the controller sends to its processes."""

from __future__ import annotations

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.testing.trial.spec import (
    WorkerSpec,
    check_kind,
    dump_spec,
    load_spec,
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


def test_worker_spec_when_sent_arrives_unchanged() -> None:
    assert load_spec(WorkerSpec, dump_spec(WORKER)) == WORKER


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
