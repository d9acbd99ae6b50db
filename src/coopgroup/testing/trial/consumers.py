"""Consumers of every kind behind the one interface that the worker uses.

All of them have the methods of `confluent_kafka.Consumer`, so only construction differs. Every kind
gets the same settings where it has them; nothing is tuned for or against one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, cast

from confluent_kafka import Consumer, Message, TopicPartition

from coopgroup.testing.trial.spec import (
    POLICY_ARGUMENTS,
    WorkerSpec,
    check_kind,
    policy_name,
)

__all__ = ["PollingConsumer", "build_consumer", "consumer_config"]

_STRATEGIES: Final = {
    "eager": "range",
    "cooperative-sticky": "cooperative-sticky",
    "cooperative-sticky-static": "cooperative-sticky",
}


class PollingConsumer(Protocol):
    """What the worker needs of a consumer."""

    def subscribe(
        self,
        topics: list[str],
        *,
        on_assign: Callable[..., None],
        on_revoke: Callable[..., None],
        on_lost: Callable[..., None],
    ) -> None:
        """Join the group; the callbacks get the consumer and a list of partitions."""
        ...

    def poll(self, timeout: float) -> Message | None:
        """The next record, or None after `timeout` seconds."""
        ...

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> object:
        """Commit `offsets`."""
        ...

    def assignment(self) -> list[TopicPartition]:
        """What it has."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


def consumer_config(spec: WorkerSpec) -> dict[str, object]:
    """The configuration that a consumer of `spec` is made with."""
    config: dict[str, object] = {
        **spec.client_config,
        "group.id": spec.group_id,
        # Member ids begin with it: range assigns by their order, which must not be left to chance.
        "client.id": spec.name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if spec.kind == "kip848":
        config["group.protocol"] = "consumer"  # its time-outs are settings of the broker
    else:
        config["session.timeout.ms"] = spec.session_timeout_ms
        config["heartbeat.interval.ms"] = spec.heartbeat_interval_ms
    if spec.kind in _STRATEGIES:
        config["partition.assignment.strategy"] = _STRATEGIES[spec.kind]
    if spec.kind.endswith("-static"):
        config["group.instance.id"] = spec.name
    if spec.kind.endswith("-kept"):
        # The processes of a trial share a host, so they share the directory, too; it is made in
        # the folder of their logs, which goes with the trial.
        config["coopgroup.state.dir"] = str(Path(spec.log_path).parent / "state")
    return config | dict(spec.extra_config)


def build_consumer(spec: WorkerSpec) -> PollingConsumer:
    """Make the consumer that `spec` asks for; it is not subscribed yet.

    Raises:
        ConfigurationError: the kind or one of its settings is unknown.
    """
    kind = check_kind(spec.kind)
    config = consumer_config(spec)
    if not kind.startswith("coopgroup-"):
        return cast("PollingConsumer", Consumer(config))  # its stub splits `commit` into overloads
    ours: Any = importlib.import_module("coopgroup")
    name = policy_name(kind)
    arguments = {**POLICY_ARGUMENTS[name], **spec.policy_arguments}
    policy = getattr(ours, f"{_class_word(name)}Policy")(**arguments)
    assignor = getattr(ours, f"{_class_word(spec.assignor)}Assignor")()
    cooperative: PollingConsumer = ours.CooperativeConsumer(
        config, policy=policy, assignor=assignor
    )
    return cooperative


def _class_word(name: str) -> str:
    """`lag_aware` as it begins a class' name: `LagAware`."""
    return "".join(word.capitalize() for word in name.split("_"))
