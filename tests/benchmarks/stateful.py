"""State: what scaling, restarts and SIGKILL cost applications that restore a store.

`examples/stateful_counts` and the same application on Kafka Streams, on one broker: 24 partitions
with 20,000 keys each, and 10 records per second into each partition. A restored record takes
0.25 ms in both kinds, so a partition takes 5 s, and each member restores with one thread. Our
members are processes; those of Kafka Streams are objects of one JVM, which saves processor time.
docs/measuring.md defines the terms.

    python -m tests.benchmarks.stateful --kinds coopgroup,streams-best --scenarios scale
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import asdict, frozen
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from coopgroup.testing import KafkaCluster
from docs.sections import DOCS, write_section
from tests.benchmarks.results import RESULTS, merge_results
from tests.benchmarks.stateful_members import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Launcher,
    Members,
    OurProcesses,
    StreamsHosts,
)
from tests.lab.analysis import TrialLog, Window
from tests.lab.controller import Trial
from tests.lab.scenarios import measure_steps

PARTITIONS: Final = 24
KEYS: Final = 20_000
RECORD_US: Final = 250
RATE_PER_PARTITION: Final = 10.0
FOUR: Final = ("m1", "m2", "m3", "m4")
MORE: Final = ("m5", "m6", "m7", "m8")
VICTIM: Final = "m2"
DOWN_S: Final = 2.0
PREPARE_S: Final = 5.0
QUIET_S: Final = 20.0
REST_S: Final = 6.0
SETTLE_S_MAX: Final = 100.0
SEED_S_MAX: Final = 240.0
POLL_S: Final = 0.1
UNAVAILABLE_MS: Final = 500.0
"""Restores take seconds. A threshold below the noise of a busy machine would only measure that."""
NAMES: Final = (
    *("moved", "duplicated", "lost", "retained", "retained_pause_ms_max", "pause_ms_max"),
    "double_owner_ms",
)
# Kafka's defaults of 10 s and 60 s would make a killed transaction last longer for every kind.
BROKER_PROPERTIES: Final = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "3000",
    # Groups of KIP-1071 get their time-outs from the broker, whose lowest values are longer.
    "group.streams.min.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.streams.min.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    "group.streams.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
BEST: Final = {
    "max.warmup.replicas": PARTITIONS,
    "probing.rebalance.interval.ms": 60_000,
    "acceptable.recovery.lag": 100,
}
CLASSIC: Final = {
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
}
BROKER_DECIDES: Final = {"group.protocol": "streams"}
STREAMS: Final[dict[str, dict[str, Any]]] = {
    "streams-default": CLASSIC,
    "streams-best": {**CLASSIC, **BEST},
    "streams-best-standby": {**CLASSIC, **BEST, "num.standby.replicas": 1},
    "streams-kip1071": BROKER_DECIDES,
    "streams-kip1071-standby": BROKER_DECIDES,
}
OURS: Final = {"coopgroup": 0, "coopgroup-standby": 1}

NOT_PLAYED: Final = "\N{EN DASH}"
TITLES: Final = {
    "quiet": "nothing happens (noise)",
    "up": "4 to 8 members",
    "down": "8 to 4 members",
    "rolling": "rolling bounce of all four",
    "kill": "SIGKILL of one of four",
}
CELLS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "Unavailable partition-seconds (waits of more than 0.5 s)": lambda facts: (
        f"{facts['unavailable_partition_s']:.1f}"
    ),
    "Longest pause of any partition, in ms": lambda facts: f"{facts['pause_ms_max']:,.0f}",
    "Seconds until balanced": lambda facts: (
        f"{facts['balanced_s']:.0f}" if facts["is_balanced"] else f"not in {SETTLE_S_MAX:.0f}"
    ),
    "Moves": lambda facts: str(facts["moved"]),
}


@frozen(kw_only=True)
class Step:
    """A part of a scenario: until the group is balanced and at rest, or too late."""

    window: Window
    is_balanced: bool


def _quiet(_: Members) -> Iterator[None]:
    time.sleep(QUIET_S)
    yield


def _scale_up(members: Members) -> Iterator[None]:
    members.start(*MORE)
    yield


def _scale_down(members: Members) -> Iterator[None]:
    members.end(*MORE, for_good=True)
    yield


def _rolling(members: Members) -> Iterator[None]:
    for name in FOUR:
        members.end(name, for_good=False)
        time.sleep(DOWN_S)
        members.start(name)
        yield


def _kill(members: Members) -> Iterator[None]:
    members.kill(VICTIM)
    yield


SCENARIOS: Final[dict[str, Callable[[Members], Iterator[None]]]] = {
    "quiet": _quiet,
    "up": _scale_up,
    "down": _scale_down,
    "rolling": _rolling,
    "kill": _kill,
}

PREPARED: Final = {"up": MORE, "rolling": FOUR}


def run(
    *,
    kinds: Sequence[str] = (*OURS, *STREAMS),
    scenarios: Sequence[str] = tuple(SCENARIOS),
) -> dict[str, Any]:
    """Return, by kind, the facts of each scenario, and the number of wrong counts in the end."""
    found = {}
    with KafkaCluster(properties=BROKER_PROPERTIES) as cluster:
        for kind in kinds:
            # Without standbys a partition waits for the dead member, or its restore: no news.
            played = [name for name in scenarios if name != "kill" or kind.endswith("standby")]
            found[kind] = _play(cluster, kind, played)
    return found


def _play(cluster: KafkaCluster, kind: str, scenarios: Sequence[str]) -> dict[str, Any]:
    topic = f"input-{kind}"
    cluster.create_topic(topic, PARTITIONS)
    config = cluster.client_config()
    if kind == "streams-kip1071-standby":
        _set_standby(config, kind)
    with Trial(client_config=config, topics=[topic], partitions_per_topic=PARTITIONS) as trial:
        launcher = _launcher(kind, config["bootstrap.servers"], topic, trial.folder)
        members = Members(launcher=launcher, folder=trial.folder, partitions=PARTITIONS)
        try:
            began = time.monotonic()
            trial.start_producer(
                rate_per_partition=RATE_PER_PARTITION, backlog=[KEYS] * PARTITIONS, keys=KEYS
            )
            members.prepare(*FOUR)
            members.start(*FOUR)
            if not _settle(members, SEED_S_MAX):
                raise RuntimeError(f"{kind}: four members did not balance their shares")
            print(f"{kind}: seeded after {time.monotonic() - began:.0f} s", flush=True)
            steps = {name: _steps(members, name) for name in scenarios}
            trial.stop_producer()
            acknowledged = trial.acknowledged()
            deadline = time.monotonic() + SETTLE_S_MAX
            while not members.has_processed(acknowledged) and time.monotonic() < deadline:
                time.sleep(POLL_S)
            members.end(*sorted(members.living), for_good=False)
            log = members.log(acknowledged)
        finally:
            launcher.close()
    facts = {name: _facts(log, steps[name]) for name in scenarios}
    counts = [int((acknowledged["partition"] == number).sum()) for number in range(PARTITIONS)]
    wrong = _wrong_counts(config, launcher.changelog, counts)
    for name in scenarios:
        print(f"  {name}: {facts[name]}", flush=True)
    print(f"  wrong counts: {wrong}", flush=True)
    return {"facts": facts, "wrong_counts": wrong}


def _set_standby(config: dict[str, str], group_id: str) -> None:
    """Give a group of KIP-1071 one standby for each partition: a setting of the broker's."""
    entry = ConfigEntry(
        "streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET
    )
    group = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = AdminClient({**config})
    for altered in admin.incremental_alter_configs([group]).values():
        altered.result()


def _launcher(kind: str, bootstrap: str, topic: str, folder: Path) -> Launcher:
    common: dict[str, Any] = {
        "bootstrap": bootstrap,
        "topic": topic,
        "group_id": kind,
        "folder": folder,
    }
    if kind in OURS:
        return OurProcesses(**common, rate=1e6 / RECORD_US, standbys=OURS[kind])
    return StreamsHosts(**common, record_us=RECORD_US, settings=STREAMS[kind], apart=[VICTIM])


def _steps(members: Members, scenario: str) -> list[Step]:
    members.prepare(*PREPARED.get(scenario, ()))
    time.sleep(PREPARE_S)
    steps = []
    begin_ns = time.monotonic_ns()
    for _ in SCENARIOS[scenario](members):
        is_balanced = _settle(members, SETTLE_S_MAX)
        end_ns = time.monotonic_ns()
        window = Window(begin_ns=begin_ns, end_ns=end_ns)
        steps.append(Step(window=window, is_balanced=is_balanced))
        begin_ns = end_ns
    print(f"  {scenario}: played", flush=True)
    return steps


def _settle(members: Members, limit_s: float) -> bool:
    """Wait until the shares are equal and nothing has moved for a while."""
    deadline = time.monotonic() + limit_s
    before: tuple[str, ...] | None = None
    since = time.monotonic()
    while time.monotonic() < deadline:
        owners = members.owners(time.monotonic_ns())
        if owners != before or not members.is_balanced(owners):
            before, since = owners, time.monotonic()
        elif time.monotonic() - since >= REST_S:
            return True
        time.sleep(POLL_S)
    return False


def _facts(log: TrialLog, steps: Sequence[Step]) -> dict[str, Any]:
    facts = asdict(measure_steps(log, [step.window for step in steps]))
    return {
        **{name: facts[name] for name in NAMES},
        "unavailable_partition_s": round(sum(_unavailable_s(log, one.window) for one in steps), 1),
        "is_balanced": all(step.is_balanced for step in steps),
        "balanced_s": round(sum(_balanced_s(log, step.window) for step in steps), 1),
        "window_s": round(sum(step.window.length_s for step in steps), 1),
    }


def _unavailable_s(log: TrialLog, window: Window) -> float:
    """Return the sum of all waits longer than `UNAVAILABLE_MS`; here a wait ends in its window."""
    rows = log.rows
    inside = (rows["at_ns"] >= window.begin_ns) & (rows["at_ns"] < window.end_ns)
    since = np.maximum(rows["waiting_since_ns"], window.begin_ns)
    waits_s = (rows["at_ns"] - since)[inside] / 1e9
    return float(waits_s[waits_s > UNAVAILABLE_MS / 1000].sum())


def _balanced_s(log: TrialLog, window: Window) -> float:
    """Return the time from the begin of a window to the first record of its last new owner."""
    firsts = [
        spell.first_ns for spell in log.spells if window.begin_ns <= spell.first_ns < window.end_ns
    ]
    return (max(firsts, default=window.begin_ns) - window.begin_ns) / 1e9


def _wrong_counts(config: dict[str, str], changelog: str, counts: Sequence[int]) -> int:
    """Return how many keys have another count in the changelog than records were produced."""
    reader = Consumer(
        {
            **config,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([TopicPartition(changelog, number, 0) for number in range(PARTITIONS)])
    found: dict[str, int] = {}
    ended = 0
    while ended < PARTITIONS:
        for message in reader.consume(10_000, 1.0):
            error = message.error()
            if error is not None:
                ended += error.code() == KafkaError._PARTITION_EOF
                continue
            key, value = message.key() or b"", message.value() or b""
            is_text = value.isdigit()  # Kafka Streams writes eight bytes, the first ones zeros
            found[key.decode()] = int(value) if is_text else int.from_bytes(value, "big")
    reader.close()
    expected = {
        f"{number}-{key}": count // KEYS + (key < count % KEYS)
        for number, count in enumerate(counts)
        for key in range(min(KEYS, count))
    }
    return sum(found.get(key) != count for key, count in expected.items()) + len(
        found.keys() - expected.keys()
    )


def tables(found: Mapping[str, Any]) -> str:
    """Return the results as Markdown: one table for each measure, a column for each kind."""
    kinds = [kind for kind in (*OURS, *STREAMS) if kind in found]
    lines = []
    for title, cell in CELLS.items():
        lines += [f"{title}:", "", _row(["scenario", *kinds]), "|---|" + "---:|" * len(kinds)]
        for name, scenario in TITLES.items():
            played = [found[kind]["facts"].get(name) for kind in kinds]
            cells = [NOT_PLAYED if facts is None else cell(facts) for facts in played]
            lines += [_row([scenario, *cells])] if any(played) else []
        lines.append("")
    wrong = [str(found[kind]["wrong_counts"]) for kind in kinds]
    return "\n".join([*lines, f"Wrong counts in the end, in the same order: {', '.join(wrong)}."])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the command line and keep the result; earlier results of other kinds stay."""
    parser = argparse.ArgumentParser(description="The benchmark of applications with state.")
    parser.add_argument("--kinds", default=",".join((*OURS, *STREAMS)), help="comma-separated")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated")
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/measuring.md"
    )
    given = parser.parse_args()
    before = json.loads(RESULTS.read_text()).get("stateful", {}) if RESULTS.exists() else {}
    kinds, scenarios = given.kinds.split(","), given.scenarios.split(",")
    found = {**before, **run(kinds=[kind for kind in kinds if kind], scenarios=scenarios)}
    print(f"\n{tables(found)}")
    merge_results({"stateful": found})
    if given.write:
        write_section(DOCS / "measuring.md", "stateful", tables(found))


if __name__ == "__main__":
    main()
