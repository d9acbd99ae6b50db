"""The members of a run: seats, lives, signals, and logs.

A seat is a member of the group: an identity, a namespace, links to the brokers. A life is one
process in a seat. A reaper watches every process, so no process outlives the run, however the run
ends.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from coopgroup.testing.processes import STOP_S, BrokerProcess, Reaper
from tests.chaos.checkers import Commit, Freeze, HandOut
from tests.chaos.member import MemberSpec, dump_spec
from tests.chaos.network import Link, Namespace
from tests.lab.processes import child_of
from tests.lab.recording import EventReader
from tests.support.growing_file import whole_lines


@define(eq=False)
class Life:
    """One process of a member, and what its log says as far as it was read.

    Attributes:
        is_wanted: whether it should be alive; a fault of the run has not ended it.
        commits: commits that it knew to be acknowledged.
    """

    spec: MemberSpec
    process: BrokerProcess
    is_wanted: bool = True
    hand_outs: list[HandOut] = field(factory=list)
    commits: list[Commit] = field(factory=list)
    freezes: list[Freeze] = field(factory=list)
    frozen_since_ns: int | None = None
    _worker: int | None = None
    _reader: EventReader = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = EventReader(self.path("events"))

    @property
    def name(self) -> str:
        """Name of the process, such as `m1-3`."""
        return self.spec.process

    @property
    def pid(self) -> int:
        """Number of the member's process: the first child of its supervisor, if it has one."""
        own = self.process.pid
        if self._worker is None and self.spec.is_supervised:
            self._worker = child_of(own)
        return own if self._worker is None else self._worker

    @property
    def has_begun(self) -> bool:
        """Whether the process has installed its handlers: a signal before that would end it."""
        return self.path("events").exists() and self.path("events").stat().st_size > 0

    def path(self, suffix: str) -> Path:
        return Path(self.spec.folder) / f"{self.spec.process}.{suffix}"

    def read(self) -> None:
        for event in self._reader.read_new():
            fields: dict[str, Any] = event.fields
            match event.name:
                case "record":
                    self.hand_outs.append(
                        HandOut(
                            process=self.name,
                            partition=(fields["partition"][0], fields["partition"][1]),
                            offset=fields["offset"],
                            spell=fields["spell"],
                            began_ns=fields["began_ns"],
                            at_ns=fields["moment_ns"],
                        )
                    )
                case "committed":
                    self.commits += [
                        Commit(
                            process=self.name,
                            partition=(topic, partition),
                            offset=offset,
                            at_ns=event.at_ns,
                        )
                        for (topic, partition), offset in fields["offsets"]
                    ]
                case _:
                    pass

    def led_generation(self) -> int:
        """Return the last generation that this process led, -1 for none."""
        led = -1
        for line in whole_lines(self.path("telemetry")):
            if b'"round_decided"' in line:
                led = max(led, int(json.loads(line).get("generation", -1)))
        return led

    def starve_library(self) -> None:
        """Let the application run before the threads of its client library.

        After a freeze both become runnable at once. If the library runs first, it empties its
        buffer in time, and a control that should be caught is not. On one core, with the library's
        threads at the lowest priority, the application runs first.
        """
        core = min(os.sched_getaffinity(0))
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            thread = int(task.name)
            with contextlib.suppress(ProcessLookupError):  # a thread that ended meanwhile
                os.sched_setaffinity(thread, {core})
                if thread != self.pid:
                    os.setpriority(os.PRIO_PROCESS, thread, 19)

    def freeze(self) -> None:
        """Stop the process (SIGSTOP), and wait until the kernel has stopped it."""
        if self.spec.is_supervised:
            os.kill(self.pid, signal.SIGSTOP)
            until = time.monotonic() + STOP_S
            while not _is_stopped(self.pid) and time.monotonic() < until:
                time.sleep(0.001)
        else:
            self.process.pause()
        self.frozen_since_ns = time.monotonic_ns()

    def thaw(self) -> None:
        """Continue a stopped process; does nothing if it runs."""
        if self.frozen_since_ns is None:
            return
        freeze = Freeze(
            process=self.name, begin_ns=self.frozen_since_ns, end_ns=time.monotonic_ns()
        )
        self.freezes.append(freeze)
        self.frozen_since_ns = None
        if self.process.is_running:
            self.signal(signal.SIGCONT)
            self.process.is_paused = False

    def kill(self) -> None:
        """End the process (SIGKILL); its supervisor leaves for it, and ends by itself."""
        is_first, self.is_wanted = self.is_wanted, False
        if is_first and self.pid != self.process.pid:
            self.signal(signal.SIGKILL)
        else:
            self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it is alive."""
        if self.process.is_running:
            with contextlib.suppress(ProcessLookupError):  # only its supervisor is left
                os.kill(self.pid, number)


def _is_stopped(process: int) -> bool:
    """Return whether all threads of a process stand."""
    with contextlib.suppress(FileNotFoundError):  # it has ended
        return all(
            (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
            for task in Path(f"/proc/{process}/task").iterdir()
        )
    return True


@define(eq=False)
class Seat:
    """A member of the group, `m1` and so on.

    Attributes:
        spec: specification of each of its processes, except the name of the process.
        links: links to the brokers, in their order; none without root.
        lives: all its processes, in order.
        is_restarting: whether a fault will start the next process.
    """

    name: str
    spec: MemberSpec
    reaper: Reaper
    namespace: Namespace | None = None
    links: Sequence[Link] = ()
    lives: list[Life] = field(factory=list)
    is_restarting: bool = False

    @property
    def life(self) -> Life:
        return self.lives[-1]

    def start(self) -> None:
        name = f"{self.name}-{len(self.lives) + 1}"
        path = Path(self.spec.folder) / name
        config: Mapping[str, Any] = self.spec.config
        if self.spec.kind != "confluent_kafka":
            config = {**config, "coopgroup.telemetry.file": f"{path}.telemetry"}
        spec = evolve(
            self.spec,
            process=name,
            config=dict(config),
            namespace="" if self.namespace is None else self.namespace.path,
        )
        supervisor = (sys.executable, "-m", "coopgroup.supervisor")
        command = [
            *(supervisor if self.spec.is_supervised else ()),
            *("env", "PYTHONFAULTHANDLER=1", sys.executable, "-m", "tests.chaos.member"),
            dump_spec(spec),
        ]
        process = BrokerProcess(command, Path(f"{path}.log"), self.reaper)
        self.lives.append(Life(spec=spec, process=process))
        self.is_restarting = False
