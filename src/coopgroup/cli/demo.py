"""`coopgroup demo`: four groups experience the same events on a real broker.

Three groups are ours, one per policy. The fourth is confluent_kafka's default, an eager group. All
consume the same topic in processes of their own, at a constant rate of records. At the same times a
member of each group joins, is closed and returns, is killed and returns. The summary is computed
from the records that the groups handed out.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Final, NoReturn

import click
from attrs import define, evolve
from rich.console import Console

from coopgroup.cli.demo_display import Display, summary_table
from coopgroup.testing.trial import Facts, Group, Trial, TrialLog, Window, measure
from coopgroup.testing.trial.brokers import open_stage
from coopgroup.testing.trial.scenarios import measure_steps
from coopgroup.testing.trial.spec import policy_name

__all__ = ["command", "json_line"]

PARTITIONS: Final = 24
RATE_PER_PARTITION: Final = 25.0
BACKLOG_OF_FIRST: Final = 6_000
KINDS: Final = ("coopgroup-simple", "coopgroup-deferred", "coopgroup-incremental", "eager")
# Long enough for members to return on slow machines. An expired delay would be a different story.
LOSS_DELAY_MS: Final = 30_000
QUIET_S: Final = 1.2
BOUNCE_DOWN_S: Final = 2.0
KILL_DOWN_S: Final = 3.0
STORY_S_MAX: Final = 60.0
STEPS: Final = 4
CLOSE_S_MAX: Final = 10.0
DRAIN_S_MAX: Final = 5.0
POLL_S: Final = 0.05
JSON_KEYS: Final = (
    "consumed",
    "lost",
    "duplicated",
    "moved",
    "retained_pause_ms_max",
    "double_owner_ms",
)


@click.command("demo")
@click.option(
    "--broker",
    default="auto",
    show_default=True,
    metavar="auto|kafka|mock|HOST:PORT",
    help="Broker: a Kafka started for the demo, librdkafka's mock, or an address.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per kind of group.")
def command(*, broker: str, as_json: bool) -> int:
    """Play joins, exits and a crash of a group on a real broker."""
    console = Console(stderr=as_json)
    with terminated_as_interrupt():
        facts_by_kind = demonstrate(broker, console)
    if as_json:
        for kind, facts in facts_by_kind.items():
            click.echo(json_line(kind, facts))
    else:
        console.print(summary_table(facts_by_kind))
    ours = [facts for kind, facts in facts_by_kind.items() if is_ours(kind)]
    is_safe = all(facts.lost == 0 and facts.double_owner_transitions == 0 for facts in ours)
    if not is_safe:
        click.echo("coopgroup: a record was lost or a partition had two owners", err=True)
    return 0 if is_safe else 1


def policy_arguments(kind: str) -> dict[str, object]:
    """Return the policy arguments of a kind that differ from those of every trial."""
    if not is_ours(kind) or policy_name(kind) == "simple":
        return {}
    arguments: dict[str, object] = {"scheduled_rebalance_timeout_ms": LOSS_DELAY_MS}
    if policy_name(kind) == "incremental":
        arguments["move_interval_ms"] = 0  # with a pause the group would seem settled
    return arguments


def is_ours(kind: str) -> bool:
    """Return whether groups of this kind use coopgroup."""
    return kind.startswith("coopgroup-")


def json_line(kind: str, facts: Facts) -> str:
    """Return the summary of one kind of group for `--json`."""
    return json.dumps({"kind": kind, **{key: getattr(facts, key) for key in JSON_KEYS}})


def demonstrate(broker: str, console: Console) -> dict[str, Facts]:
    """Play the events and return the facts of each kind of group.

    Raises:
        CoopgroupError: the broker did not start, or a process failed.
    """

    def tell(line: str) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True)

    with (
        open_stage(broker, PARTITIONS, tell) as stage,
        Trial(
            client_config=stage.client_config,
            topics=stage.topics,
            partitions_per_topic=stage.partitions_per_topic,
        ) as trial,
        Display(console=console, trial=trial) as display,
    ):
        display.phase("a producer writes a skewed backlog, then keeps its pace")
        trial.start_producer(rate_per_partition=RATE_PER_PARTITION, backlog=skewed_backlog())
        groups = [
            trial.group(
                kind,
                policy_arguments=policy_arguments(kind),
                extra_config=stage.cooperative_config if is_ours(kind) else {},
            )
            for kind in KINDS
        ]
        display.groups += groups
        steps = Story(trial=trial, groups=groups, display=display).play()
        display.phase("the producer stops, the groups finish what is left")
        trial.finish(drain_s=DRAIN_S_MAX)
        display.refresh(at_once=True)
        return {group.kind: facts_of(group.log(), steps) for group in groups}


def facts_of(log: TrialLog, steps: Sequence[Window]) -> Facts:
    """Compute moves and pauses since the first join, and the records of the whole run."""
    whole = measure(log, Window(begin_ns=0, end_ns=time.monotonic_ns()))
    return evolve(
        measure_steps(log, steps),
        consumed=whole.consumed,
        lost=whole.lost,
        duplicated=whole.duplicated,
        double_owner_ms=whole.double_owner_ms,
        double_owner_transitions=whole.double_owner_transitions,
    )


def skewed_backlog() -> tuple[int, ...]:
    """Return the initial records of each partition: a few partitions have most of them."""
    return tuple(round(BACKLOG_OF_FIRST / (1 + partition)) for partition in range(PARTITIONS))


@define(kw_only=True)
class Story:
    """The events, which happen to all groups at the same times."""

    trial: Trial
    groups: Sequence[Group]
    display: Display

    def play(self) -> list[Window]:
        """Play all events; return consecutive windows of the events of the settled groups."""
        deadline = time.monotonic() + STORY_S_MAX
        self._begin()
        self._wait_settled(deadline, steps_left=STEPS)
        moments = [time.monotonic_ns()]
        for done, step in enumerate((self._join, self._bounce, self._kill), start=1):
            step()
            self._wait_settled(deadline, steps_left=STEPS - done)
            moments.append(time.monotonic_ns())
        return [Window(begin_ns=begin, end_ns=end) for begin, end in pairwise(moments)]

    def _begin(self) -> None:
        self.display.phase("two members start")
        self._each(lambda group: group.start("m1", "m2"))
        self._each(lambda group: group.prepare("m1", "m2", "m3"))

    def _join(self) -> None:
        self.display.phase("a third member joins")
        self._each(lambda group: group.start("m3"))

    def _bounce(self) -> None:
        self.display.phase("m1 is closed")
        self._each(lambda group: group.ask_to_stop("m1"))
        self._until(lambda: not any(group.member("m1").is_alive for group in self.groups))
        self._each(lambda group: group.wait_stopped("m1"))
        self._sleep(BOUNCE_DOWN_S)
        self.display.phase("m1 comes back as a new process")
        self._each(lambda group: group.start("m1"))

    def _kill(self) -> None:
        self.display.phase("m2 is killed with SIGKILL")
        self._each(lambda group: group.kill("m2"))
        self._sleep(KILL_DOWN_S)
        self.display.phase("m2 comes back as a new process")
        self._each(lambda group: group.start("m2"))

    def _each(self, act: Callable[[Group], None]) -> None:
        for group in self.groups:
            act(group)

    def _wait_settled(self, deadline: float, *, steps_left: int) -> None:
        self._until(
            lambda: all(group.is_settled(quiet_s=QUIET_S) for group in self.groups),
            seconds=(deadline - time.monotonic()) / steps_left,
        )

    def _sleep(self, seconds: float) -> None:
        self._until(lambda: False, seconds=seconds)

    def _until(self, is_over: Callable[[], bool], seconds: float = CLOSE_S_MAX) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_over():
            self.display.refresh()
            time.sleep(POLL_S)


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that no process stays behind."""

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
