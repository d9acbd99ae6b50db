"""Play a trial: a producer, groups of worker processes, and the measured windows.

    with Trial(cluster.client_config(), topics=["orders"], partitions_per_topic=24) as trial:
        trial.start_producer(rate_per_partition=100)
        group = trial.group("coopgroup-simple")
        group.start("m1", "m2")
        group.wait_settled()
        with trial.window() as join:
            group.start("m3")
            group.wait_settled()
        trial.finish()
        facts = measure(group.log(), join.window)

Every process of a trial ends with it: by `Trial.__exit__`, or because its standard input ends if
this process dies.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from attrs import define, field

from tests.lab.analysis import Window
from tests.lab.group import Group
from tests.lab.processes import TrialError, end_input, failure, python_program, start_program
from tests.lab.recording import RowReader, Rows
from tests.lab.spec import ProducerSpec, check_kind

RAM_DISK: Final = Path("/dev/shm")  # noqa: S108 - the RAM disk of Linux, not a place for names
DRAIN_S_MAX: Final = 30.0
POLL_S: Final = 0.05


@define
class OpenWindow:
    """A window in progress; `window` is available after the `with` block."""

    begin_ns: int
    end_ns: int | None = None

    @property
    def window(self) -> Window:
        """The window, after its end."""
        if self.end_ns is None:
            raise TrialError("the window is still open")
        return Window(begin_ns=self.begin_ns, end_ns=self.end_ns)


@define(kw_only=True)
class Trial:
    """Topics, a producer, and groups that consume."""

    client_config: Mapping[str, str]
    topics: Sequence[str]
    partitions_per_topic: int
    seed: int = 0
    folder: Path = field(init=False)
    _groups: list[Group] = field(init=False, factory=list)
    _producer: subprocess.Popen[str] | None = field(init=False, default=None)
    _chance: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        parent = RAM_DISK if RAM_DISK.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="coopgroup-trial-", dir=parent))
        self._chance = random.Random(self.seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def partition_count(self) -> int:
        """Partitions of all topics."""
        return len(self.topics) * self.partitions_per_topic

    # --- producer -------------------------------------------------------------------------------

    def start_producer(
        self, *, rate_per_partition: float = 100.0, backlog: Sequence[int] = (), keys: int = 0
    ) -> None:
        """Write the backlog, wait until it is acknowledged, then produce at a constant rate.

        Args:
            rate_per_partition: records per second.
            backlog: number of records written first, by partition number over all topics.
            keys: number of different keys of each partition; 0 for records without a key.

        Raises:
            TrialError: the producer ended or could not write its backlog.
        """
        spec = ProducerSpec(
            topics=tuple(self.topics),
            partitions_per_topic=self.partitions_per_topic,
            log_path=str(self.folder / "producer"),
            client_config=dict(self.client_config),
            rate_per_partition=rate_per_partition,
            backlog=tuple(backlog),
            keys=keys,
        )
        self._producer = start_program(python_program("tests.lab.producer"), spec)
        if self._producer.stdout is None or self._producer.stdout.readline().strip() != "ready":
            raise failure("the producer failed to write its backlog", self.folder / "producer")
        if self._producer.stdin is not None:
            self._producer.stdin.write("go\n")
            self._producer.stdin.flush()

    def stop_producer(self) -> None:
        """Stop producing and wait until every record is acknowledged.

        Raises:
            TrialError: the broker refused records, or the producer did not end.
        """
        if self._producer is None or self._producer.stdin is None:
            return
        producer, self._producer = self._producer, None
        end_input(producer)
        try:
            status = producer.wait(DRAIN_S_MAX)
        except subprocess.TimeoutExpired:
            producer.kill()
            status = producer.wait()
        if producer.stdout is not None:
            producer.stdout.close()
        if status != 0:
            raise failure(f"the producer ended with status {status}", self.folder / "producer")

    @property
    def producer_path(self) -> Path:
        """Log of the acknowledged records."""
        return self.folder / "producer.records"

    def acknowledged(self) -> Rows:
        """Return all records acknowledged so far, dtype `ACKNOWLEDGED`."""
        return RowReader(self.producer_path).read_new()

    # --- groups ---------------------------------------------------------------------------------

    def group(self, kind: str, *, group_id: str | None = None, **settings: Any) -> Group:  # noqa: ANN401 - fields of WorkerSpec, checked by it
        """Return a new group of consumers of one kind, without members.

        Raises:
            ConfigurationError: unknown kind.
        """
        group = Group(
            kind=check_kind(kind),
            group_id=group_id or f"{kind}-{len(self._groups)}",
            settings={
                "topics": tuple(self.topics),
                "partitions_per_topic": self.partitions_per_topic,
                "client_config": dict(self.client_config),
                **settings,
            },
            partition_count=self.partition_count,
            folder=self.folder,
            acknowledged=self.acknowledged,
            chance=self._chance,
        )
        self._groups.append(group)
        return group

    @contextmanager
    def window(self) -> Iterator[OpenWindow]:
        """Measure the events inside the `with` block."""
        opened = OpenWindow(time.monotonic_ns())
        yield opened
        opened.end_ns = time.monotonic_ns()

    def finish(self, *, drain_s: float = DRAIN_S_MAX) -> None:
        """Stop the producer, let every group consume the rest, then close its members.

        A group that does not consume the rest in `drain_s` seconds has lost records, and the facts
        show it.
        """
        self.stop_producer()
        acknowledged = self.acknowledged()
        deadline = time.monotonic() + drain_s
        for group in self._groups:
            while not group.has_consumed(acknowledged) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        for group in self._groups:
            group.stop(*group.living)

    def close(self) -> None:
        """Kill all remaining processes and remove the logs."""
        for group in self._groups:
            group.kill_all()
        if self._producer is not None:
            self._producer.kill()
            self._producer.wait()
            end_input(self._producer)
            if self._producer.stdout is not None:
                self._producer.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
