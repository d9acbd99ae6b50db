"""`coopgroup demo`: four groups experience the same events on a real broker.

Three groups are ours, one per policy. The fourth is confluent_kafka's default, an eager group. All
consume the same topic in processes of their own (`demo_member`), at a constant rate of records. A
member of each group joins, is closed and returns, is killed and returns. The groups join one after
the other. The summary is computed from the records that they handed out (`demo_facts`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import numpy as np
from attrs import asdict, define, field
from confluent_kafka import Producer
from rich.console import Console
from rich.table import Column, Table

from coopgroup.cli.demo_facts import Facts, Rows, distinct, facts_of
from coopgroup.cli.demo_member import ASSIGNED, LOST, PRODUCED, REVOKED, ROW
from coopgroup.errors import CoopgroupError
from coopgroup.report.wording import counted
from coopgroup.simulator.transcript import ranges
from coopgroup.temporary_folder import temporary_folder
from coopgroup.testing import KafkaCluster

TOPIC: Final = "orders"
PARTITIONS: Final = 24
RECORD_EVERY_S: Final = 0.04  # in each partition
BACKLOG_OF_FIRST: Final = 6_000
# Long enough for members to return on slow machines. An expired delay would be a different story.
DELAY: Final = {"scheduled_rebalance_timeout_ms": 30_000}
# With a pause between two moves the group would seem settled.
RATION: Final = {"max_moves_per_round": 4, "move_interval_ms": 0}
KINDS: Final[Mapping[str, dict[str, Any] | None]] = {
    "coopgroup-simple": {"name": "simple"},
    "coopgroup-deferred": {"name": "deferred", **DELAY},
    "coopgroup-incremental": {"name": "incremental", **DELAY, **RATION},
    "eager": None,
}
OURS: Final = "coopgroup-"
MEMBERS: Final = ("m1", "m2", "m3")
CONFIG: Final = {
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 1_000,
    "session.timeout.ms": 9_000,  # the default of 45 s would make a long story
    "heartbeat.interval.ms": 3_000,  # the default
    "log_level": 0,
}
PRODUCER: Final = {"enable.idempotence": True, "log_level": 0}
# Members of two groups that start at once would wait for each other's processor.
APART_S: Final = 0.8
QUIET_NS: Final = 1_200_000_000
WAIT_S_MAX: Final = 20.0
NEWS: Final = {ASSIGNED: "gets", REVOKED: "gives up", LOST: "loses"}
SUMMARY: Final = {
    "records consumed": "{0.consumed:,}",
    "records lost": "{0.lost:,}",
    "records handed out again": "{0.duplicated:,}",
    "partitions moved": "{0.moved:,}",
    "worst pause of what stayed": "{0.retained_pause_ms_max:,.0f} ms",
    "without owner: m3 joins": "{0.unavailable_by_step_s[0]:,.1f} s",
    "without owner: m1 restarts": "{0.unavailable_by_step_s[1]:,.1f} s",
    "without owner: m2 is killed": "{0.unavailable_by_step_s[2]:,.1f} s",
    "time with two owners": "{0.double_owner_ms:,.0f} ms",
}


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per kind of group.")
def command(*, as_json: bool) -> int:
    """Play joins, exits and a crash of a group on a real broker."""
    console = Console(stderr=as_json)
    found = demonstrate(console)
    if as_json:
        for kind, facts in found.items():
            click.echo(json.dumps({"kind": kind, **asdict(facts)}))
    else:
        rows = {
            words: [form.format(facts) for facts in found.values()]
            for words, form in SUMMARY.items()
        }
        console.print(_table("From the records that were handed out, by policy", rows))
    ours = [facts for kind, facts in found.items() if kind.startswith(OURS)]
    is_safe = all(facts.lost == 0 and facts.double_owner_ms == 0 for facts in ours)
    if not is_safe:
        click.echo("coopgroup: a record was lost or a partition had two owners", err=True)
    return 0 if is_safe else 1


def demonstrate(console: Console) -> dict[str, Facts]:
    """Play the events and return the facts of each kind of group.

    Raises:
        CoopgroupError: the broker did not start, or a process failed.
    """
    # SIGTERM ends the demonstration like Ctrl-C, so that no process stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console.print("starting Apache Kafka; the first time, Maven fetches it")
    with (
        TemporaryDirectory(prefix="coopgroup-demo-", dir=temporary_folder()) as folder,
        KafkaCluster() as cluster,
    ):
        cluster.create_topic(TOPIC, PARTITIONS)
        story = _Story(console=console, client_config=cluster.client_config(), folder=Path(folder))
        try:
            return story.play()
        finally:
            for process in chain(*story.groups.values()):
                process.popen.kill()
                process.popen.communicate()


def _table(title: str, rows: Mapping[str, list[str]]) -> Table:
    """Return a table with a column for each kind of group."""
    columns = (Column(kind.removeprefix(OURS), justify="right") for kind in KINDS)
    table = Table("", *columns, title=title, title_justify="left")
    for words, cells in rows.items():
        table.add_row(words, *cells)
    return table


@define(kw_only=True)
class _Process:
    """One process of a member.

    Attributes:
        state: "ready", "consuming" or "ended".
        rows: everything that it has written, dtype `ROW`.
    """

    kind: str
    member: str
    popen: subprocess.Popen[str]
    log: Path
    state: str = "ready"
    rows: Rows = field(factory=lambda: np.zeros(0, ROW))

    @property
    def owned(self) -> list[int]:
        """The partitions that it owns now."""
        marks = self.rows[self.rows["offset"] < 0]
        last = dict(zip(marks["partition"].tolist(), marks["offset"].tolist(), strict=True))
        return sorted(one for one, mark in last.items() if mark == ASSIGNED)

    def refresh(self) -> list[int]:
        """Read its log, and return the new marks.

        Raises:
            CoopgroupError: it has ended by itself.
        """
        known = self.rows.size
        if self.log.exists():
            self.rows = np.fromfile(self.log, ROW)
        if self.state != "ended" and self.popen.poll() is not None:
            complaints = Path(f"{self.log}.stderr").read_text(errors="replace").splitlines()
            reason = [f"status {self.popen.returncode}", *complaints][-1]
            raise CoopgroupError(f"{self.kind}: {self.member} has ended: {reason}")
        return [offset for offset in self.rows["offset"][known:].tolist() if offset < 0]


@define(kw_only=True)
class _Story:
    """The events, which happen to all groups at the same times.

    Attributes:
        groups: the processes of each group.
        moments: when the groups had settled after each join, in ns.
    """

    console: Console
    client_config: Mapping[str, str]
    folder: Path
    groups: dict[str, list[_Process]] = field(
        init=False, factory=lambda: {one: [] for one in KINDS}
    )
    moments: list[int] = field(init=False, factory=list)
    _producer: Producer = field(init=False)
    _written: int = field(init=False, default=0)
    # Records of each partition at a time.
    _pace: list[int] = field(init=False, factory=lambda: [1] * PARTITIONS)
    _began_s: float = field(init=False, factory=time.monotonic)

    def play(self) -> dict[str, Facts]:
        """Play all events; return the facts of each group."""
        self._tell("--- a producer writes a skewed backlog, then keeps its pace")
        self._producer = Producer({**self.client_config, **PRODUCER})
        self._write(BACKLOG_OF_FIRST // (1 + partition) for partition in range(PARTITIONS))
        for member in (*MEMBERS, "m1", "m2"):  # the last two are those that return
            for kind, processes in self.groups.items():
                processes.append(self._prepared(kind, member, len(processes)))
        self._join("two members start", "m1", "m2")
        self._join("a third member joins", "m3")
        self._tell("--- m1 is closed")
        self._end(signal.SIGTERM, "m1", away_s=2.0)
        self._join("m1 comes back as a new process", "m1")
        self._tell("--- m2 is killed with SIGKILL")
        self._end(signal.SIGKILL, "m2", away_s=3.0)
        self._join("m2 comes back as a new process", "m2")
        self._tell("--- the producer stops, the groups finish what is left")
        self._pace = []
        if left := self._producer.flush(WAIT_S_MAX):
            raise CoopgroupError(f"the broker did not acknowledge {counted(left, 'record')}")
        self._until(self._have_all, WAIT_S_MAX)
        self._end(signal.SIGTERM, *MEMBERS)
        return {
            kind: facts_of(
                [(one.member, one.rows) for one in processes], self._written, self.moments
            )
            for kind, processes in self.groups.items()
        }

    # --- events -----------------------------------------------------------------------------------

    def _prepared(self, kind: str, member: str, number: int) -> _Process:
        log = self.folder / f"{kind}-{number}"
        # range sorts by member ids, which begin with the client id
        config = {**self.client_config, **CONFIG, "group.id": kind, "client.id": member}
        arguments = TOPIC, str(log), json.dumps(config), json.dumps(KINDS[kind])
        with Path(f"{log}.stderr").open("wb") as complaints:
            popen = subprocess.Popen(
                [sys.executable, "-m", "coopgroup.cli.demo_member", *arguments],
                stdin=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demonstration alone
            )
        return _Process(kind=kind, member=member, popen=popen, log=log)

    def _join(self, words: str, *members: str) -> None:
        self._tell(f"--- {words}")
        for processes in self.groups.values():
            for member in members:
                one = next(one for one in processes if (one.member, one.state) == (member, "ready"))
                one.state = "consuming"
                print("go", file=one.popen.stdin, flush=True)
            self._until(lambda: False, APART_S)
        self._until(self._is_settled, WAIT_S_MAX)
        self.moments.append(time.monotonic_ns())
        owned = {member: [ranges(one.owned) for one in self._living(member)] for member in MEMBERS}
        self.console.print(_table("Who owns which partitions", owned))

    def _end(self, number: signal.Signals, *members: str, away_s: float = 0.0) -> None:
        ending = self._living(*members)
        for one in ending:
            one.state = "ended"
            one.popen.send_signal(number)
        self._until(lambda: all(one.popen.poll() is not None for one in ending), WAIT_S_MAX)
        self._until(lambda: False, away_s)

    def _living(self, *members: str) -> list[_Process]:
        """Return the processes that consume of some members, by group."""
        every = chain(*self.groups.values())
        return [one for one in every if one.state == "consuming" and one.member in members]

    # --- time -------------------------------------------------------------------------------------

    def _write(self, counts: Iterable[int]) -> None:
        """Write some records into each partition."""
        for partition, count in enumerate(counts):
            for _ in range(count):
                value = PRODUCED.pack(time.monotonic_ns())
                self._producer.produce(TOPIC, value, partition=partition)
            self._written += count

    def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Let time pass, in which each partition gets its records."""
        deadline_s = time.monotonic() + limit_s
        is_over = False
        while not is_over and time.monotonic() < deadline_s:
            self._write(self._pace)
            self._producer.poll(0)
            time.sleep(RECORD_EVERY_S)
            is_over = condition()
            # After the condition: a process that has ended has written everything.
            for one in chain(*self.groups.values()):
                for mark, same in groupby(one.refresh()):
                    partitions = counted(len(list(same)), "partition")
                    self._tell(f"{one.kind}: {one.member} {NEWS[mark]} {partitions}")

    def _is_settled(self) -> bool:
        """Return whether every member gets records, from all partitions, and no partition moves."""
        since_ns = time.monotonic_ns() - QUIET_NS
        for processes in self.groups.values():
            living = [one.rows for one in processes if one.state == "consuming"]
            recent = [rows[rows["at_ns"] > since_ns] for rows in living]
            rows = np.concatenate(recent)
            is_moving = (rows["offset"] < 0).any()
            if is_moving or not all(map(len, recent)) or len({*rows["partition"]}) < PARTITIONS:
                return False
        return all(one.log.exists() for one in chain(*self.groups.values()))  # none is starting

    def _have_all(self) -> bool:
        handed = (np.concatenate([one.rows for one in group]) for group in self.groups.values())
        return all(distinct(rows) == self._written for rows in handed)

    def _tell(self, text: str) -> None:
        line = f"{time.monotonic() - self._began_s:5.1f} s  {text}"
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
