"""The headline: what a rebalance costs each kind of consumer group, on one real broker.

Four members as processes, 24 partitions, a paced producer; the scenarios of
`coopgroup.testing.trial.scenarios`; the kinds take turns within each repetition, so that a slow
minute of the machine hits all of them; each figure is the median of the repetitions. The words of
the tables are defined in docs/measuring.md.

    python -m tests.benchmarks.headline --kinds coopgroup-simple,eager --scenarios join --repeat 1
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import asdict

from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial import KINDS, Trial
from coopgroup.testing.trial.scenarios import SCENARIOS, Outcome, play_scenarios
from tests.benchmarks.results import merge_results

__all__ = ["DEFAULT_KINDS", "run", "tables", "write_tables"]

README: Final = Path(__file__).resolve().parents[2] / "README.md"
PARTITIONS: Final = 24
RATE_PER_PARTITION: Final = 100.0
SESSION_TIMEOUT_MS: Final = 6_000
HEARTBEAT_INTERVAL_MS: Final = 1_000
DEFAULT_KINDS: Final = (
    "coopgroup-simple",
    "eager",
    "cooperative-sticky",
    "cooperative-sticky-static",
    "kip848",
)
# KIP-848 groups take their time-outs from the broker; the same figures for every kind.
BROKER_PROPERTIES: Final = {
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_INTERVAL_MS),
}
BEGIN: Final = "<!-- headline:begin -->"
END: Final = "<!-- headline:end -->"

Medians: TypeAlias = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Median of each fact by kind and scenario."""


def run(
    *,
    kinds: Sequence[str] = DEFAULT_KINDS,
    scenarios: Sequence[str] = tuple(SCENARIOS),
    repeat: int = 3,
) -> dict[str, Any]:
    """Play and measure everything.

    Args:
        kinds: kinds of consumer, in the order of the tables.
        scenarios: keys of `SCENARIOS`.
        repeat: repetitions, each of all kinds.

    Returns:
        `settings`; `medians` of each fact by kind and scenario; `runs`, the single outcomes.
    """
    runs: dict[str, dict[str, list[Outcome]]] = {
        kind: {scenario: [] for scenario in scenarios} for kind in kinds
    }
    with KafkaCluster(properties=BROKER_PROPERTIES) as cluster:
        for repetition in range(repeat):
            # Each repetition begins with another kind: no kind always follows the same one.
            shift = repetition % len(kinds)
            for kind in (*kinds[shift:], *kinds[:shift]):
                print(f"headline: {kind}, {repetition + 1} of {repeat}", flush=True)
                outcomes = _play(cluster, kind, scenarios, repetition)
                for scenario, outcome in outcomes.items():
                    print(f"  {scenario}: {outcome}", flush=True)
                    runs[kind][scenario].append(outcome)
    return {
        "settings": {
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
            "partitions": PARTITIONS,
            "rate_per_partition": RATE_PER_PARTITION,
            "repeat": repeat,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
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


def tables(medians: Medians) -> str:
    """The medians as Markdown tables: a row for each scenario, a column for each kind."""
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
            "Moves / failed commits / duplicates / double-owner time in ms:",
            "",
            *_table(medians, _counts_cell),
        ]
    )


def write_tables(medians: Medians, page: Path = README) -> None:
    """Replace what stands between the markers of a page by the tables.

    Raises:
        ValueError: the page does not have both markers, in order.
    """
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page.name} has no markers {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{tables(medians)}\n\n{END}{after}")


def main() -> None:
    """Run what the command line asks for, print the tables, keep the result."""
    parser = argparse.ArgumentParser(description="The headline benchmark.")
    parser.add_argument("--kinds", default=",".join(DEFAULT_KINDS), help="comma-separated")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="comma-separated")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions; default 3")
    parser.add_argument("--write", action="store_true", help="write the tables into README.md")
    arguments = parser.parse_args()
    kinds = _chosen(parser, arguments.kinds, KINDS)
    scenarios = _chosen(parser, arguments.scenarios, tuple(SCENARIOS))
    headline = run(kinds=kinds, scenarios=scenarios, repeat=arguments.repeat)
    print(f"\n{tables(headline['medians'])}")
    merge_results({"headline": headline})
    if arguments.write:
        write_tables(headline["medians"])


def _chosen(
    parser: argparse.ArgumentParser, option: str, allowed: Sequence[str]
) -> tuple[str, ...]:
    chosen = tuple(option.split(","))
    unknown = sorted(set(chosen) - set(allowed))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(allowed)}")
    return chosen


def _play(
    cluster: KafkaCluster, kind: str, scenarios: Sequence[str], repetition: int
) -> dict[str, Outcome]:
    """One group of `kind` through all scenarios, on a topic of its own."""
    topic = f"headline-{kind}-{repetition}"
    cluster.create_topic(topic, PARTITIONS)
    with Trial(
        client_config=cluster.client_config(),
        topics=[topic],
        partitions_per_topic=PARTITIONS,
        seed=repetition,  # the same chance for every kind
    ) as trial:
        trial.start_producer(rate_per_partition=RATE_PER_PARTITION)
        outcomes = play_scenarios(trial, kind, scenarios)
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
    for scenario in medians[kinds[0]]:
        cells = [cell(medians[kind][scenario]) for kind in kinds]
        lines.append(f"| {SCENARIOS[scenario].title} | " + " | ".join(cells) + " |")
    return lines


def _counts_cell(facts: Mapping[str, float]) -> str:
    names = ("moved", "failed_commits", "duplicated", "double_owner_ms")
    return " / ".join(f"{facts[name]:.0f}" for name in names)


if __name__ == "__main__":
    main()
