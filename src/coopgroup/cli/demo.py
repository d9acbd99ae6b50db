"""`coopgroup demo`: four groups experience the same events on a real broker.

Three groups are ours, one per policy. The fourth is confluent_kafka's default, an eager group. All
consume the same topic in processes of their own (`demo_member`), at a constant rate of records. At
the same times a member of each group joins, is closed and returns, is killed and returns. The
summary is computed from the records that the groups handed out (`demo_facts`).
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import numpy as np
from attrs import asdict, define, field
from confluent_kafka import Message, Producer
from rich.console import Console
from rich.table import Table

from coopgroup.cli.demo_facts import Facts, Ints, Rows, facts_of, record_keys
from coopgroup.cli.demo_member import ASSIGNED, LOST, PRODUCED, REVOKED, ROW
from coopgroup.errors import CoopgroupError
from coopgroup.simulator.transcript import ranges
from coopgroup.testing import KafkaCluster
from coopgroup.testing.maven import kafka_runtime_path

TOPIC: Final = "orders"
PARTITIONS: Final = 24
RECORD_EVERY_S: Final = 0.04  # in each partition
BACKLOG_OF_FIRST: Final = 6_000
# Long enough for members to return on slow machines. An expired delay would be a different story.
DELAY: Final = {"scheduled_rebalance_timeout_ms": 30_000}
KINDS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    "coopgroup-simple": ("SimplePolicy", {}),
    "coopgroup-deferred": ("DeferredPolicy", DELAY),
    # With a pause between two moves the group would seem settled.
    "coopgroup-incremental": (
        "IncrementalPolicy",
        {**DELAY, "max_moves_per_round": 4, "move_interval_ms": 0},
    ),
    "eager": ("", {}),
}
OURS: Final = "coopgroup-"
QUIET_NS: Final = 1_200_000_000
STORY_S_MAX: Final = 60.0
END_S_MAX: Final = 10.0
POLL_S: Final = 0.01
REFRESH_S: Final = 0.2
NEWS: Final = {ASSIGNED: "gets", REVOKED: "gives up", LOST: "loses"}
SUMMARY: Final = {
    "records consumed": ("consumed", "{:,}"),
    "records lost": ("lost", "{:,}"),
    "records handed out again": ("duplicated", "{:,}"),
    "partitions moved": ("moved", "{:,}"),
    "worst pause of what stayed": ("retained_pause_ms_max", "{:,.0f} ms"),
    "time without owner, in all": ("unavailable_partition_s", "{:,.1f} s"),
    "time with two owners": ("double_owner_ms", "{:,.0f} ms"),
}


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per kind of group.")
def command(*, as_json: bool) -> int:
    """Play joins, exits and a crash of a group on a real broker."""
    console = Console(stderr=as_json)
    with terminated_as_interrupt():
        found = demonstrate(console)
    if as_json:
        for kind, facts in found.items():
            click.echo(json.dumps({"kind": kind, **asdict(facts)}))
    else:
        table = _table("From the records that were handed out, by policy")
        for text, (name, form) in SUMMARY.items():
            table.add_row(text, *(form.format(getattr(facts, name)) for facts in found.values()))
        console.print(table)
    ours = [facts for kind, facts in found.items() if kind.startswith(OURS)]
    is_safe = all(facts.lost == 0 and facts.double_owner_ms == 0 for facts in ours)
    if not is_safe:
        click.echo("coopgroup: a record was lost or a partition had two owners", err=True)
    return 0 if is_safe else 1


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C, so that no process stays behind."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def demonstrate(console: Console) -> dict[str, Facts]:
    """Play the events and return the facts of each kind of group.

    Raises:
        CoopgroupError: the broker did not start, or a process failed.
    """
    if not kafka_runtime_path().exists():
        console.print("fetching Apache Kafka with Maven, once; takes a quarter of a minute")
    console.print("starting Apache Kafka")
    with KafkaCluster() as cluster, TemporaryDirectory(prefix="coopgroup-demo-") as folder:
        cluster.create_topic(TOPIC, PARTITIONS)
        story = _Story(console=console, client_config=cluster.client_config(), folder=Path(folder))
        try:
            return story.play()
        finally:
            story.close()


def _table(title: str) -> Table:
    """Return a table with a column for each kind of group."""
    table = Table("", title=title, title_justify="left")
    for kind in KINDS:
        table.add_column(kind.removeprefix(OURS), justify="right")
    return table


class _Records:
    """Writes a skewed backlog, then a record into each partition at a steady pace."""

    def __init__(self, client_config: Mapping[str, str]) -> None:
        self._producer = Producer({**client_config, "linger.ms": 1, "log_level": 0})
        self._acknowledged: list[tuple[int, int]] = []
        self._due_s = 0.0
        for partition in range(PARTITIONS):
            for _ in range(BACKLOG_OF_FIRST // (1 + partition)):
                self._write(partition)
        self._producer.flush(END_S_MAX)

    def write_due(self) -> None:
        """Write one record into each partition if it is time; a late one is not made up."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = max(self._due_s + RECORD_EVERY_S, now_s)
            for partition in range(PARTITIONS):
                self._write(partition)
        self._producer.poll(0)

    def finish(self) -> Ints:
        """Wait until every record is acknowledged; write no more, and return all `record_keys`."""
        self._due_s = math.inf
        self._producer.flush(END_S_MAX)
        rows = np.zeros(len(self._acknowledged), ROW)
        rows["partition"], rows["offset"] = np.array(self._acknowledged).T
        return record_keys(rows)

    def _write(self, partition: int) -> None:
        value = PRODUCED.pack(time.monotonic_ns())
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._acknowledge)

    def _acknowledge(self, error: object, message: Message) -> None:
        if error is None:
            self._acknowledged.append((message.partition() or 0, message.offset() or 0))


@define(kw_only=True)
class _Process:
    """One process of a member.

    Attributes:
        state: "ready", "consuming" or "ended".
        rows: everything that it has written, dtype `ROW`.
        told: number of its marks that are shown.
    """

    kind: str
    member: str
    popen: subprocess.Popen[str]
    log: Path
    state: str = "ready"
    rows: Rows = field(factory=lambda: np.zeros(0, ROW))
    told: int = 0

    @property
    def marks(self) -> Rows:
        """The rows that are not records."""
        return self.rows[self.rows["offset"] < 0]

    @property
    def owned(self) -> list[int]:
        """The partitions that it owns now."""
        last = {int(mark["partition"]): mark["offset"] for mark in self.marks}
        return sorted(one for one, mark in last.items() if mark == ASSIGNED)

    def refresh(self) -> None:
        """Read its log.

        Raises:
            CoopgroupError: it has ended by itself.
        """
        if self.log.exists():
            self.rows = np.fromfile(self.log, ROW)
        if self.state in ("ready", "consuming") and self.popen.poll() is not None:
            said = Path(f"{self.log}.stderr").read_text(errors="replace").splitlines()
            reason = said[-1] if said else f"status {self.popen.returncode}"
            raise CoopgroupError(f"{self.kind}: {self.member} has ended: {reason}")


@define(kw_only=True)
class _Story:
    """The events, which happen to all groups at the same times."""

    console: Console
    client_config: Mapping[str, str]
    folder: Path
    _processes: list[_Process] = field(init=False, factory=list)
    _records: _Records = field(init=False)
    _began_s: float = field(init=False, factory=time.monotonic)

    def play(self) -> dict[str, Facts]:
        """Play all events; return the facts of each group."""
        self._tell("--- a producer writes a skewed backlog, then keeps its pace")
        self._records = _Records(self.client_config)
        for member in ("m1", "m2", "m3", "m1", "m2"):  # the last two are those that return
            self._prepare(member)
        deadline_s = time.monotonic() + STORY_S_MAX
        moments = []
        steps = (self._begin, self._grow, self._bounce, self._kill)
        for left, step in zip(range(len(steps), 0, -1), steps, strict=True):
            step()
            self._until(self._is_settled, (deadline_s - time.monotonic()) / left)
            moments.append(time.monotonic_ns())
            self._show_owners()
        self._tell("--- the producer stops, the groups finish what is left")
        keys = self._records.finish()
        self._until(lambda: self._have_all(keys), END_S_MAX)
        self._end("m1", "m2", "m3", number=signal.SIGTERM)
        return {
            kind: facts_of([(one.member, one.rows) for one in processes], keys, moments)
            for kind, processes in self._by_kind()
        }

    def close(self) -> None:
        """Kill the processes that still run."""
        for process in self._processes:
            process.popen.kill()
            process.popen.communicate()

    # --- events -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._join("two members start", "m1", "m2")

    def _grow(self) -> None:
        self._join("a third member joins", "m3")

    def _bounce(self) -> None:
        self._tell("--- m1 is closed")
        self._end("m1", number=signal.SIGTERM)
        self._until(lambda: False, 2.0)
        self._join("m1 comes back as a new process", "m1")

    def _kill(self) -> None:
        self._tell("--- m2 is killed with SIGKILL")
        self._end("m2", number=signal.SIGKILL)
        self._until(lambda: False, 3.0)
        self._join("m2 comes back as a new process", "m2")

    def _prepare(self, member: str) -> None:
        for kind, (policy, arguments) in KINDS.items():
            log = self.folder / f"{len(self._processes)}-{kind}-{member}"
            config = {
                **self.client_config,
                "group.id": kind,
                "client.id": member,  # range sorts by member ids, which begin with it
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "log_level": 0,
            }
            with Path(f"{log}.stderr").open("wb") as complaints:
                popen = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "coopgroup.cli.demo_member", TOPIC, str(log)),
                        *(json.dumps(config), policy, json.dumps(arguments)),
                    ],
                    stdin=subprocess.PIPE,
                    stderr=complaints,
                    text=True,
                    start_new_session=True,  # Ctrl-C is for the demonstration alone
                )
            self._processes.append(_Process(kind=kind, member=member, popen=popen, log=log))

    def _join(self, text: str, *members: str) -> None:
        self._tell(f"--- {text}")
        for _, processes in self._by_kind():
            for member in members:
                ready = [one for one in processes if (one.state, one.member) == ("ready", member)]
                ready[0].state = "consuming"
                assert ready[0].popen.stdin is not None
                ready[0].popen.stdin.write("go\n")
                ready[0].popen.stdin.flush()

    def _end(self, *members: str, number: signal.Signals) -> None:
        ending = [
            one for one in self._processes if one.state == "consuming" and one.member in members
        ]
        for process in ending:
            process.state = "ended"
            process.popen.send_signal(number)
        self._until(lambda: all(one.popen.poll() is not None for one in ending), END_S_MAX)

    # --- time -------------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        deadline_s = time.monotonic() + limit_s
        refresh_s, is_over = 0.0, False
        while not is_over and time.monotonic() < deadline_s:
            self._records.write_due()
            if time.monotonic() >= refresh_s:
                is_over = condition()
                self._refresh()  # afterwards: ended processes have written everything
                refresh_s = time.monotonic() + REFRESH_S
            time.sleep(POLL_S)

    def _refresh(self) -> None:
        for one in self._processes:
            one.refresh()
            news = one.marks["offset"][one.told :].tolist()
            one.told += len(news)
            for mark, same in groupby(news):
                count = len(list(same))
                plural = "" if count == 1 else "s"
                self._tell(f"{one.kind}: {one.member} {NEWS[mark]} {count} partition{plural}")

    def _is_settled(self) -> bool:
        """Return whether every member gets records, from all partitions, and no partition moves."""
        since_ns = time.monotonic_ns() - QUIET_NS
        for _, processes in self._by_kind():
            living = [one for one in processes if one.state == "consuming"]
            recent = [one.rows[one.rows["at_ns"] > since_ns] for one in living]
            rows = np.concatenate(recent)
            partitions = np.unique(rows["partition"])
            if (
                len(partitions) < PARTITIONS
                or (rows["offset"] < 0).any()
                or not all(map(len, recent))
            ):
                return False
        return all(one.log.exists() for one in self._processes)  # no interpreter is starting

    def _have_all(self, keys: Ints) -> bool:
        return not any(
            len(np.setdiff1d(keys, record_keys(np.concatenate([one.rows for one in processes]))))
            for _, processes in self._by_kind()
        )

    def _by_kind(self) -> list[tuple[str, list[_Process]]]:
        return [(kind, [one for one in self._processes if one.kind == kind]) for kind in KINDS]

    # --- output -----------------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        line = f"{time.monotonic() - self._began_s:5.1f} s  {text}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _show_owners(self) -> None:
        table = _table("Who owns which partitions")
        for member in ("m1", "m2", "m3"):
            living = (
                one for one in self._processes if one.state == "consuming" and one.member == member
            )
            table.add_row(member, *(ranges(one.owned) for one in living))
        self.console.print(table)
