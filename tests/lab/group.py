"""A group of worker processes: its members, how they start and end, and when the group is at rest.

Statements of a consumer about itself are not used. The records that members hand out decide whether
the group has settled.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import define, field

from tests.lab.analysis import IncarnationLog, TrialLog, merge
from tests.lab.processes import (
    Incarnation,
    TrialError,
    end_input,
    failure,
    start_program,
    wait_for_end,
)
from tests.lab.programs import worker_program
from tests.lab.recording import EventReader, RowReader, Rows
from tests.lab.spec import WorkerSpec, is_supervised
from tests.lab.watch import GroupWatch

READY_S_MAX: Final = 30.0
CLOSE_S_MAX: Final = 15.0
POLL_S: Final = 0.05
KILLED_BELOW_SUPERVISOR: Final = 128 + signal.SIGKILL
FREEZE_S: Final = (1.0, 1.75)
SETTLE_S_MAX: Final = 30.0


@define(kw_only=True)
class Group:
    """Members of one group, by name; created by `Trial.group`.

    A member keeps its name when its process is replaced; `incarnations` contains all processes.

    Attributes:
        acknowledged: returns the records acknowledged so far, dtype `ACKNOWLEDGED`.
    """

    kind: str
    group_id: str
    settings: Mapping[str, Any]
    partition_count: int
    folder: Path
    acknowledged: Callable[[], Rows]
    chance: random.Random
    incarnations: list[Incarnation] = field(init=False, factory=list)
    _prepared: dict[str, Incarnation] = field(init=False, factory=dict)
    _members: dict[str, Incarnation] = field(init=False, factory=dict)
    watch: GroupWatch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.watch = GroupWatch(partition_count=self.partition_count)

    @property
    def living(self) -> tuple[str, ...]:
        """Names of the members with a running process, sorted."""
        return tuple(sorted(name for name, member in self._members.items() if member.is_alive))

    def member(self, name: str) -> Incarnation:
        """Return the current process of a member.

        Raises:
            TrialError: no member of that name was started.
        """
        try:
            return self._members[name]
        except KeyError:
            raise TrialError(f"{self.group_id} has no member {name}") from None

    # --- start and end --------------------------------------------------------------------------

    def prepare(self, *names: str) -> None:
        """Start the processes of members, but do not let them join.

        A new interpreter uses most of a core for a moment and would disturb a measurement. Prepare
        members before a window, and start them inside.
        """
        for name in names:
            log_path = self.folder / f"{self.group_id}-{len(self.incarnations)}-{name}"
            spec = WorkerSpec(
                kind=self.kind,
                name=name,
                group_id=self.group_id,
                log_path=str(log_path),
                **self.settings,
            )
            supervised = is_supervised(self.kind)
            process = start_program(worker_program(self.kind), spec)
            incarnation = Incarnation(name, log_path, process, supervised)
            self.incarnations.append(incarnation)
            self._prepared[name] = incarnation
            self.watch.add(incarnation.records_path, incarnation.events_path)
        for name in names:
            self._wait_ready(self._prepared[name])

    def start(self, *names: str) -> None:
        """Let members join, each in a new process unless a process is prepared."""
        self.prepare(*(name for name in names if name not in self._prepared))
        for name in names:
            incarnation = self._prepared.pop(name)
            self._members[name] = incarnation
            incarnation.tell("go")

    def stop(self, *names: str) -> None:
        """Ask members to close (SIGTERM) and wait until they have closed.

        Raises:
            TrialError: a member failed; its events and its standard error contain the reason.
        """
        self._end(signal.SIGTERM, names)

    def retire(self, *names: str) -> None:
        """Ask members to leave permanently (SIGUSR1), and wait until they have left.

        Raises:
            TrialError: a member failed; its events and its standard error contain the reason.
        """
        self._end(signal.SIGUSR1, names)

    def _end(self, number: signal.Signals, names: tuple[str, ...]) -> None:
        for name in names:
            self.resume(name)
            self.member(name).signal(number)
        for name in names:
            self.wait_stopped(name)

    def wait_stopped(self, name: str) -> None:
        """Wait until a closing member has ended; kill it if it does not end.

        Raises:
            TrialError: the member failed or had to be killed.
        """
        incarnation = self.member(name)
        process, log_path = incarnation.process, incarnation.log_path
        try:
            status = wait_for_end(process, CLOSE_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise failure(f"{name} did not close in {CLOSE_S_MAX:.0f} s", log_path) from None
        if status != 0:
            raise failure(f"{name} ended with status {status}", log_path)

    def kill(self, *names: str) -> None:
        """Kill members immediately (SIGKILL)."""
        for name in names:
            self.member(name).signal(signal.SIGKILL)
            self.member(name).process.wait()

    def kill_all(self) -> None:
        """Kill every process of the group immediately, including prepared processes."""
        for incarnation in self.incarnations:
            if incarnation.is_alive:
                incarnation.signal(signal.SIGKILL)
                incarnation.process.kill()
                incarnation.process.wait()
            end_input(incarnation.process)

    # --- disturbance ----------------------------------------------------------------------------

    def freeze(self, *names: str) -> None:
        """Freeze members (SIGSTOP); their connections stay open."""
        for name in names:
            incarnation = self.member(name)
            incarnation.signal(signal.SIGSTOP)
            incarnation.is_frozen = True

    def resume(self, *names: str) -> None:
        """Resume frozen members (SIGCONT)."""
        for name in names:
            incarnation = self.member(name)
            if incarnation.is_frozen:
                incarnation.signal(signal.SIGCONT)
                incarnation.is_frozen = False

    def desynchronise(self) -> None:
        """Freeze each member for its own random time between 1 and 1.75 s.

        Members that join together send their heartbeats together and hear of a rebalance at the
        same moment. Such results look better than reality for every kind of consumer. A member that
        is frozen for longer than the heartbeat interval sends its next heartbeat when it wakes. The
        resulting waits are outside the window, because the group must settle again first.
        """
        began = time.monotonic()
        names = self.living
        durations = {name: self.chance.uniform(*FREEZE_S) for name in names}
        self.freeze(*names)
        for name in sorted(names, key=lambda name: durations[name]):
            time.sleep(max(0.0, began + durations[name] - time.monotonic()))
            self.resume(name)

    # --- observation ----------------------------------------------------------------------------

    def wait_settled(
        self, *, quiet_s: float = 2.0, timeout_s: float = SETTLE_S_MAX, fair: bool = True
    ) -> bool:
        """Wait until the group is at rest; return False if it was not in time.

        Three conditions define rest. In the last half second, living members handed out records of
        every partition. Every living member has a partition. No member reported a callback for
        `quiet_s` seconds.

        Raises:
            TrialError: a member failed.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.is_settled(quiet_s=quiet_s, fair=fair):
                return True
            time.sleep(POLL_S)
        return False

    def is_settled(self, *, quiet_s: float, fair: bool = True) -> bool:
        """Return whether the group is at rest now; see `wait_settled`.

        Raises:
            TrialError: a member failed, so only a smaller group could be at rest.
        """
        for name, member in sorted(self._members.items()):
            status = member.process.poll()
            # A killed process has a negative status; its supervisor ends with 128 and the signal.
            if status is not None and status > 0 and status != KILLED_BELOW_SUPERVISOR:
                raise failure(f"{name} ended with status {status}", member.log_path)
        living = [member for member in self._members.values() if member.is_alive]
        logs = frozenset(member.records_path for member in living)
        return self.watch.is_settled(logs, quiet_s=quiet_s, fair=fair)

    def has_consumed(self, acknowledged: Rows) -> bool:
        """Return whether the last acknowledged record of each partition was handed out."""
        self.watch.refresh()
        ends = np.full(self.partition_count, -1, np.int64)
        np.maximum.at(ends, acknowledged["partition"], acknowledged["offset"])
        return bool((self.watch.last_offsets >= ends).all())

    def log(self) -> TrialLog:
        """Return all logs of the group so far, in order."""
        return merge(
            [
                IncarnationLog(
                    member=incarnation.member,
                    rows=RowReader(incarnation.records_path).read_new(),
                    events=EventReader(incarnation.events_path).read_new(),
                )
                for incarnation in self.incarnations
            ],
            self.acknowledged(),
        )

    def _wait_ready(self, incarnation: Incarnation) -> None:
        reader = EventReader(incarnation.events_path)
        deadline = time.monotonic() + READY_S_MAX
        while not reader.read_new():
            if not incarnation.is_alive:
                raise failure(f"{incarnation.member} failed to start", incarnation.log_path)
            if time.monotonic() >= deadline:
                raise TrialError(f"{incarnation.member} was not ready in {READY_S_MAX:.0f} s")
            time.sleep(POLL_S)
