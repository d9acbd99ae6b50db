"""The headline: the cost of a rebalance for each kind of consumer group, on one real broker.

Four members as processes share 24 partitions with a paced producer, in the scenarios of
`tests.lab.scenarios`. The kinds take turns within each repetition, so a slow minute
of the machine hits all kinds. Each figure is the median of the repetitions. docs/measuring.md
defines the terms of the tables.

    python -m tests.benchmarks.headline --kinds coopgroup-simple,eager --scenarios join --repeat 1

With `--default-timeouts` all kinds have Kafka's default time-outs instead of short ones.
`make measure` writes these tables, and says on which revision and how idle a machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import asdict, frozen

from coopgroup.errors import ConfigurationError
from coopgroup.testing import KafkaCluster
from docs.sections import DOCS, write_section
from tests.benchmarks.results import ROOT, merge_results
from tests.lab.controller import Trial
from tests.lab.programs import missing_tool
from tests.lab.scenarios import SCENARIOS, Outcome, play_scenarios
from tests.lab.spec import BELL_TOPIC, check_kind

PAGE: Final = DOCS / "measuring.md"
README: Final = ROOT / "README.md"
PARTITIONS: Final = 24
RATE_PER_PARTITION: Final = 100.0
SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_INTERVAL_MS: Final = 1_000
DEFAULT_KINDS: Final = (
    "coopgroup-simple",
    "coopgroup-deferred",
    "coopgroup-deferred-kept",
    "coopgroup-incremental",
    "eager",
    "cooperative-sticky",
    "cooperative-sticky-static",
    "kip848",
)
# Killed and back after 2 s shows the same as killed and back after 3 s, also for kinds with an
# identity. Killed for good shows the session time-out of each kind without a supervisor.
DEFAULT_SCENARIOS: Final = tuple(name for name in SCENARIOS if name not in {"kill", "killed"})
HEADINGS: Final[Mapping[str, str]] = {
    "coopgroup-simple-bell": "coopgroup, classic",
    "coopgroup-consumer-bell": "coopgroup, KIP-848",
    "kip848": "librdkafka, KIP-848",
    "java-kip848": "Java, KIP-848",
    "franz-go-kip848": "franz-go, KIP-848",
    "cooperative-sticky": "cooperative-sticky",
    "eager": "eager",
}
"""The columns of the table with default time-outs."""
SHOWN_SCENARIOS: Final = ("join", "close", "bounce", "rolling", "scale")
"""Its rows."""
BELL_PARTITIONS: Final = 8
BUSY_MAX: Final = 0.1
"""Part of the processors that something else uses on an idle machine."""
_LOOK_S: Final = 3.0


@frozen(kw_only=True)
class Timeouts:
    """Time-outs of all kinds.

    Attributes:
        broker: properties of the broker: KIP-848 groups take their time-outs from there.
    """

    session_ms: int
    heartbeat_ms: int
    broker: Mapping[str, str]


SHORT: Final = Timeouts(
    session_ms=SESSION_TIMEOUT_MS,
    heartbeat_ms=HEARTBEAT_INTERVAL_MS,
    broker={
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
    },
)
KAFKAS: Final = Timeouts(session_ms=45_000, heartbeat_ms=3_000, broker={})
"""Kafka's default time-outs; those of KIP-848 are 45 s and 5 s."""
NOT_PLAYED: Final = "\N{EN DASH}"

Medians: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Median of each fact by kind and scenario."""


def run(
    *,
    kinds: Sequence[str] = DEFAULT_KINDS,
    scenarios: Sequence[str] = DEFAULT_SCENARIOS,
    repeat: int = 3,
    timeouts: Timeouts = SHORT,
) -> dict[str, Any]:
    """Play and measure each scenario of each kind several times.

    Returns:
        `settings`; `medians` of each fact by kind and scenario; `runs`, the single outcomes.
    """
    before = machine()
    runs: dict[str, dict[str, list[Outcome]]] = {
        kind: {scenario: [] for scenario in scenarios} for kind in kinds
    }
    with KafkaCluster(properties=timeouts.broker) as cluster:
        cluster.create_topic(BELL_TOPIC, BELL_PARTITIONS)
        for repetition in range(repeat):
            # Each repetition begins with another kind, so no kind always follows the same kind.
            shift = repetition % len(kinds)
            for kind in (*kinds[shift:], *kinds[:shift]):
                print(f"headline: {kind}, {repetition + 1} of {repeat}", flush=True)
                outcomes = _play(cluster, kind, scenarios, repetition, timeouts)
                for scenario, outcome in outcomes.items():
                    print(f"  {scenario}: {outcome}", flush=True)
                    runs[kind][scenario].append(outcome)
    return {
        "settings": {
            "heartbeat_interval_ms": timeouts.heartbeat_ms,
            "machine": before,
            "partitions": PARTITIONS,
            "rate_per_partition": RATE_PER_PARTITION,
            "repeat": repeat,
            "session_timeout_ms": timeouts.session_ms,
        },
        "medians": {
            kind: {scenario: _medians(outcomes) for scenario, outcomes in by_scenario.items()}
            for kind, by_scenario in runs.items()
        },
        "runs": {
            kind: {
                scenario: [asdict(outcome) for outcome in outcomes]
                for scenario, outcomes in by_scenario.items()
            }
            for kind, by_scenario in runs.items()
        },
    }


def machine() -> str:
    """Return the revision, and how idle the machine is, as a sentence."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    revision = found or "unknown"  # outside of a clone
    busy = _busy_part()
    state = "idle" if busy <= BUSY_MAX else "busy"
    day = time.strftime("%Y-%m-%d", time.gmtime())
    cores = len(os.sched_getaffinity(0))
    return f"{day}, revision {revision}, {cores} {state} cores ({busy:.0%} in use before)."


def _busy_part() -> float:
    """Return which part of the processors is in use, in a time in which nothing is measured.

    A load average would count the set-up.
    """
    before = _ticks()
    time.sleep(_LOOK_S)
    idle, every = (now - then for now, then in zip(_ticks(), before, strict=True))
    return 1 - idle / every


def _ticks() -> tuple[int, int]:
    """Return the idle ticks of all processors, and all ticks (Linux)."""
    _, *ticks = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(ticks[3]) + int(ticks[4]), sum(map(int, ticks[:8]))


def tables(medians: Medians) -> str:
    """Return the medians as Markdown tables: a row for each scenario, a column for each kind."""
    return "\n".join(
        [
            "Longest pause of a partition that stays where it is, in ms:",
            "",
            *_table(medians, lambda facts: f"{facts['retained_pause_ms_max']:,.0f}"),
            "",
            "Unavailable partition-seconds:",
            "",
            *_table(medians, lambda facts: f"{facts['unavailable_partition_s']:.1f}"),
            "",
            "Moves / failed commits, then duplicates / double-owner time in ms unless both are 0:",
            "",
            *_table(medians, _counts_cell),
        ]
    )


def one_table(medians: Medians) -> str:
    """Return a table in whose cells are a longest pause and partition-seconds."""
    head, *rows = _table(
        medians,
        lambda facts: (
            f"{facts['retained_pause_ms_max']:,.0f} ms / {facts['unavailable_partition_s']:.1f}"
        ),
    )
    for kind, heading in HEADINGS.items():
        head = head.replace(f" {kind} ", f" {heading} ")
    return "\n".join((head.replace("| scenario |", "| |"), *rows))


def main() -> None:
    """Run the command line, print the tables, keep the result."""
    parser = argparse.ArgumentParser(description="The headline benchmark.")
    parser.add_argument("--kinds", help="comma-separated")
    parser.add_argument("--scenarios", help="comma-separated")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; default 3")
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    parser.add_argument("--default-timeouts", action="store_true", help="Kafka's default time-outs")
    given = parser.parse_args()
    is_default = given.default_timeouts
    usual = (tuple(HEADINGS), SHOWN_SCENARIOS) if is_default else (DEFAULT_KINDS, DEFAULT_SCENARIOS)
    kinds = tuple(given.kinds.split(",")) if given.kinds else playable_kinds(usual[0])
    scenarios = tuple(given.scenarios.split(",")) if given.scenarios else usual[1]
    _check(parser, kinds, scenarios)
    timeouts = KAFKAS if is_default else SHORT
    headline = run(kinds=kinds, scenarios=scenarios, repeat=given.repeat, timeouts=timeouts)
    drawn = (one_table if is_default else tables)(headline["medians"])
    runs = "One run" if given.repeat == 1 else f"Medians of {given.repeat} runs"
    drawn = f"{drawn}\n\n{runs}; {headline['settings']['machine']}"
    print(f"\n{drawn}")
    name = "default-timeouts" if is_default else "headline"
    merge_results({name: headline})
    if given.write:
        for page in (PAGE, README) if is_default else (PAGE,):
            write_section(page, name, drawn)


def playable_kinds(kinds: Iterable[str]) -> tuple[str, ...]:
    """Return the kinds whose tools are there; print a line about each other kind."""
    missing = {kind: missing_tool(kind) for kind in kinds}
    for kind, tool in missing.items():
        if tool is not None:
            print(f"headline: {kind} is left out, because {tool} is not on the PATH", flush=True)
    return tuple(kind for kind, tool in missing.items() if tool is None)


def _check(parser: argparse.ArgumentParser, kinds: Sequence[str], scenarios: Sequence[str]) -> None:
    """End with a line if a kind or a scenario does not exist."""
    unknown = sorted(set(scenarios) - set(SCENARIOS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    for kind in kinds:
        try:
            check_kind(kind)
        except ConfigurationError as error:
            parser.error(str(error))


def _play(
    cluster: KafkaCluster,
    kind: str,
    scenarios: Sequence[str],
    repetition: int,
    timeouts: Timeouts,
) -> dict[str, Outcome]:
    """Play one group of `kind` through all scenarios, on its own topic."""
    topic = f"headline-{kind}-{repetition}"
    cluster.create_topic(topic, PARTITIONS)
    with Trial(
        client_config=cluster.client_config(),
        topics=[topic],
        partitions_per_topic=PARTITIONS,
        seed=repetition,  # the same random numbers for every kind
    ) as trial:
        trial.start_producer(rate_per_partition=RATE_PER_PARTITION)
        outcomes = play_scenarios(
            trial,
            kind,
            scenarios,
            session_timeout_ms=timeouts.session_ms,
            heartbeat_interval_ms=timeouts.heartbeat_ms,
        )
    cluster.delete_topic(topic)
    return outcomes


def _medians(outcomes: Sequence[Outcome]) -> dict[str, float]:
    facts = [asdict(outcome.facts) for outcome in outcomes]
    medians = {name: float(statistics.median(fact[name] for fact in facts)) for name in facts[0]}
    return medians | {"settled_runs": float(sum(outcome.is_settled for outcome in outcomes))}


def _table(medians: Medians, cell: Callable[[Mapping[str, float]], str]) -> list[str]:
    kinds = list(medians)
    lines = [
        "| scenario | " + " | ".join(kinds) + " |",
        "|---|" + "---:|" * len(kinds),
    ]
    played = {scenario for kind in kinds for scenario in medians[kind]}
    for scenario in (name for name in SCENARIOS if name in played):
        cells = [
            cell(medians[kind][scenario]) if scenario in medians[kind] else NOT_PLAYED
            for kind in kinds
        ]
        lines.append(f"| {SCENARIOS[scenario].title} | " + " | ".join(cells) + " |")
    return lines


def _counts_cell(facts: Mapping[str, float]) -> str:
    names = ("moved", "failed_commits", "duplicated", "double_owner_ms")
    counts = [f"{facts[name]:.0f}" for name in names]
    return " / ".join(counts if counts[2:] != ["0", "0"] else counts[:2])


if __name__ == "__main__":
    main()
