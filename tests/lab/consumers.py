"""Consumers of every kind behind the interface that the worker uses.

All of them have the methods of `confluent_kafka.Consumer`, so only construction differs. Every kind
gets the same settings as far as it supports them. No setting favours one kind.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer

from tests.lab.spec import (
    BELL_TOPIC,
    POLICY_ARGUMENTS,
    WorkerSpec,
    check_kind,
    policy_name,
    speaks_kip_848,
    without_bell,
)

_STRATEGIES: Final = {
    "eager": "range",
    "cooperative-sticky": "cooperative-sticky",
    "cooperative-sticky-static": "cooperative-sticky",
}


AnyConsumer: TypeAlias = Any
"""confluent_kafka's consumer, or ours, which has the same methods."""


def consumer_config(spec: WorkerSpec) -> dict[str, object]:
    """Return the configuration of the consumer of `spec`."""
    config: dict[str, object] = {
        **spec.client_config,
        "group.id": spec.group_id,
        # Member ids begin with the client id. The range assignor sorts by member id, so this makes
        # its result repeatable.
        "client.id": spec.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if speaks_kip_848(spec.kind):
        config["group.protocol"] = "consumer"  # the broker sets the timeouts of these groups
    else:
        config["session.timeout.ms"] = spec.session_timeout_ms
        config["heartbeat.interval.ms"] = spec.heartbeat_interval_ms
    if spec.kind in _STRATEGIES:
        config["partition.assignment.strategy"] = _STRATEGIES[spec.kind]
    identified = without_bell(spec.kind)
    if _is_ours(spec.kind):  # a cluster has the topic of the default, too
        config["coopgroup.bell.topic"] = "" if identified == spec.kind else BELL_TOPIC
    if identified.endswith("-static"):
        config["group.instance.id"] = spec.name
    if identified.endswith("-kept"):
        # The processes of a trial share a host, so they share the directory, too. It is in the
        # folder of their logs, which is removed after the trial.
        config["coopgroup.state.dir"] = str(Path(spec.log_path).parent / "state")
    return config | dict(spec.extra_config)


def build_consumer(spec: WorkerSpec) -> AnyConsumer:
    """Create the consumer of `spec`, without a subscription.

    Raises:
        ConfigurationError: the kind or one of its settings is unknown.
    """
    config = consumer_config(spec)
    if not _is_ours(check_kind(spec.kind)):
        return Consumer(config)
    if speaks_kip_848(spec.kind):
        return importlib.import_module("coopgroup").CooperativeConsumer(config)
    consumer_class, policy_class, assignor_class = _classes(spec)
    arguments = {**POLICY_ARGUMENTS[policy_name(spec.kind)], **spec.policy_arguments}
    return consumer_class(config, policy=policy_class(**arguments), assignor=assignor_class())


def load_code(spec: WorkerSpec) -> None:
    """Load the code for the consumer of `spec` before it is needed, because this takes a while.

    Importing `coopgroup` is not enough: it loads names on first use.

    Raises:
        ConfigurationError: the kind is unknown.
    """
    if _is_ours(check_kind(spec.kind)):
        if speaks_kip_848(spec.kind):
            importlib.import_module("coopgroup.kafka.consumer")
        else:
            _classes(spec)
        for module in ("rpc.channel", "rpc.requests"):  # with kafka-python
            importlib.import_module(f"coopgroup.kafka.{module}")
        if without_bell(spec.kind) != spec.kind:
            importlib.import_module("coopgroup.kafka.membership.bell")


def _is_ours(kind: str) -> bool:
    return kind.startswith("coopgroup-")


def _classes(spec: WorkerSpec) -> tuple[Any, Any, Any]:
    ours = importlib.import_module("coopgroup")
    return (
        ours.CooperativeConsumer,
        getattr(ours, f"{_class_word(policy_name(spec.kind))}Policy"),
        getattr(ours, f"{_class_word(spec.assignor)}Assignor"),
    )


def _class_word(name: str) -> str:
    """Return a name in the form of a class name: `LagAware` for `lag_aware`."""
    return "".join(word.capitalize() for word in name.split("_"))
