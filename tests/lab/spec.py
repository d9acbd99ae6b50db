"""The task that the controller sends to a worker or a producer process, as one line of JSON.

All values are frozen and have plain fields only, so that a specification does not change on its way
through standard input.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from attrs import asdict, field, frozen

from coopgroup.errors import ConfigurationError

KINDS: Final = (
    "coopgroup-simple",
    "coopgroup-deferred",
    "coopgroup-incremental",
    "coopgroup-consumer",
    "eager",
    "cooperative-sticky",
    "cooperative-sticky-static",
    "kip848",
    "java-kip848",
    "franz-go-kip848",
)
"""Kinds of consumer in a group: ours with each policy, and `coopgroup-consumer`, ours with
`group.protocol=consumer`. `kip848` is that protocol with confluent_kafka, `java-kip848` with
Kafka's own consumer, and `franz-go-kip848` with franz-go.

A suffix to one of ours says how a process that returns proves its identity: `-static`
(`group.instance.id`) or `-kept` (`coopgroup.state.dir`). With `-supervised` in its place, each
process has a `coopgroup.supervisor` as its parent. A last suffix `-bell` gives the members a bell
on the topic `BELL_TOPIC`, which must exist."""

BELL_TOPIC: Final = "trial-bell"

POLICY_ARGUMENTS: Final[Mapping[str, Mapping[str, object]]] = {
    "simple": {},
    "deferred": {"scheduled_rebalance_timeout_ms": 5_000},
    "incremental": {
        "scheduled_rebalance_timeout_ms": 5_000,
        "max_moves_per_round": 4,
        "move_interval_ms": 1_000,
    },
}
"""Default arguments of our policies in a trial, whose processes are down for two or three seconds.
The policies' own defaults are for a deployment, which takes a minute."""

_OURS: Final = "coopgroup-"
_BELL: Final = "-bell"
_SUPERVISED: Final = "-supervised"
_SUFFIXES: Final = ("-static", "-kept", _SUPERVISED)

_SpecT = TypeVar("_SpecT", "WorkerSpec", "ProducerSpec")


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


def _counts(counts: Iterable[int]) -> tuple[int, ...]:
    return tuple(counts)


@frozen(kw_only=True)
class WorkerSpec:
    """One consumer process.

    Attributes:
        name: name of the member, the same in all its incarnations; also its static id if the kind
            uses static ids.
        topics: subscribed topics; partition numbers run through all topics.
        partitions_per_topic: partition p of topic i is logged as i * this + p.
        log_path: path of its two logs without their suffixes.
        commit_interval_ms: time between synchronous commits of the application's positions; 0 for
            commits on revocation and close only.
        assignor: assignor of coopgroup's kinds, by the first word of its class: `sticky`,
            `lag_aware`, …
        policy_arguments: keyword arguments of the policy of coopgroup's kinds; they override
            `POLICY_ARGUMENTS`.
        extra_config: further consumer settings, with the highest priority.
    """

    kind: str
    name: str
    group_id: str
    topics: tuple[str, ...] = field(converter=_names)
    partitions_per_topic: int
    log_path: str
    client_config: Mapping[str, str]
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_000
    commit_interval_ms: int = 1_000
    assignor: str = "sticky"
    policy_arguments: Mapping[str, object] = field(factory=dict)
    extra_config: Mapping[str, object] = field(factory=dict)


@frozen(kw_only=True)
class ProducerSpec:
    """The producer process: a backlog, then a constant rate.

    Attributes:
        log_path: path of its log of acknowledged records without its suffix.
        rate_per_partition: records per second into each partition.
        backlog: number of records written first, by partition number over all topics; may be
            empty.
        keys: number of different keys of each partition. Record n of partition p has the key
            `p-k` with k = n modulo `keys`. 0 for records without a key.
    """

    topics: tuple[str, ...] = field(converter=_names)
    partitions_per_topic: int
    log_path: str
    client_config: Mapping[str, str]
    rate_per_partition: float = 100.0
    backlog: tuple[int, ...] = field(factory=tuple, converter=_counts)
    keys: int = 0


def check_kind(kind: str) -> str:
    """Return `kind` if a consumer of that kind can be created.

    Raises:
        ConfigurationError: unknown kind.
    """
    base = kind
    if kind.startswith(_OURS):
        named = without_bell(kind)
        ends = (end for end in _SUFFIXES if named.endswith(end))
        base = named.removesuffix(next(ends, ""))
    if base not in KINDS:
        names = ", ".join(KINDS)
        expected = f"one of {names}; to ours -static, -kept or -supervised, then -bell"
        raise ConfigurationError("kind", kind, expected)
    return kind


def without_bell(kind: str) -> str:
    """Return the kind without its suffix for a bell."""
    return kind.removesuffix(_BELL)


def is_supervised(kind: str) -> bool:
    """Return whether each process of a kind has a supervisor."""
    return without_bell(kind).endswith(_SUPERVISED)


def speaks_kip_848(kind: str) -> bool:
    """Return whether a consumer of a kind has `group.protocol=consumer`."""
    return kind.endswith("kip848") or kind.startswith(f"{_OURS}consumer")


def policy_name(kind: str) -> str:
    """Return the policy of a coopgroup kind: `deferred` of `coopgroup-deferred-kept`."""
    return kind.removeprefix(_OURS).partition("-")[0]


def dump_spec(spec: WorkerSpec | ProducerSpec) -> str:
    """Return `spec` as one line of JSON, without the newline."""
    return json.dumps(asdict(spec), sort_keys=True)


def load_spec(kind: type[_SpecT], line: str) -> _SpecT:
    """Return the specification that `dump_spec` wrote."""
    return kind(**json.loads(line))
