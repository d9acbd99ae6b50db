"""A member of a chaos run: one process, one consumer, one loop that logs every record.

Run as `python -m tests.chaos.member SPEC`, with `MemberSpec` as JSON. The application polls, logs
each record first, and commits in one of three styles:

- `sync`: everything twice a second, and in `on_revoke`. That includes idle partitions.
- `async`: the same, without waiting for the answer.
- `auto`: the consumer commits by itself.

It has one of three fronts: `poll`, `asyncio` (`getone`), or `process`. The threads of `process` log
the records, and it always commits by itself.

Signals:

- SIGTERM closes the consumer; SIGUSR1 hands its partitions over first.
- SIGUSR2 stops the polls for the seconds in the file `.stall`.
- SIGHUP writes the stacks of all threads to the log.

The file `.clock` holds seconds to add to the wall clock.
Log lines are written with one system call each, so SIGKILL loses no line that a commit covers.
"""

import asyncio
import ctypes
import faulthandler
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, Final

from attrs import asdict, frozen
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.network import enter_namespace
from tests.lab.recording import EventLog

KINDS: Final = ("coopgroup", "without lease", "confluent_kafka")
POLL_S: Final = 0.1
COMMIT_S: Final = 0.5
HAND_OVER_S_MAX: Final = 10.0
LONG_MS: Final = 600_000
PR_SET_PDEATHSIG: Final = 1


@frozen(kw_only=True)
class MemberSpec:
    """Configuration of a member program, whose logs are in `folder` and have the process's name.

    Attributes:
        kind: one of `KINDS`; the last two are positive controls, which the checkers must catch.
        policy: name and options, as those of the assignor; empty if the broker assigns.
        commits: "sync", "async" or "auto".
        front: "poll", "asyncio" or "process".
        namespace: file of the network namespace to enter, or "" for none.
        work_s: how long the application works on each record.
        is_supervised: whether its parent is `coopgroup.supervisor`.
    """

    kind: str
    folder: str
    process: str
    config: dict[str, Any]
    topics: list[str]
    policy: dict[str, Any]
    assignor: dict[str, Any]
    commits: str
    front: str = "poll"
    namespace: str = ""
    work_s: float = 0.0
    is_supervised: bool = False


def dump_spec(spec: MemberSpec) -> str:
    """Write a specification as an argument of the program."""
    return json.dumps(asdict(spec))


class Application:
    """The application around one consumer."""

    def __init__(self, spec: MemberSpec) -> None:
        self._spec = spec
        self._path = Path(spec.folder) / spec.process
        self._log = EventLog(Path(f"{self._path}.events"))
        self._positions: dict[tuple[str, int], int] = {}
        self._spells: dict[tuple[str, int], int] = {}
        self._is_closing = False
        self._is_handing_over = False
        self._stalls = False
        self._consumer = self._build()

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Remember the signal; the loop handles it."""
        if number == signal.SIGUSR2:
            self._stalls = True
            return
        self._is_closing = True
        self._is_handing_over = number == signal.SIGUSR1

    def run(self) -> None:
        """Consume until a signal asks to stop, then close."""
        self._log.write("begun")  # from here on, signals have handlers
        self._consumer.subscribe(
            self._spec.topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )
        self._consume(lambda: self._is_closing)
        if self._is_handing_over:
            self._log.write("handing over")
            self._consumer.hand_over()
            until = time.monotonic() + HAND_OVER_S_MAX
            self._consume(lambda: not self._consumer.assignment() or time.monotonic() > until)
        self._log.write("closing")
        self._consumer.close()
        self._log.write("closed")

    # --- loop -----------------------------------------------------------------------------------

    def _consume(self, is_over: Callable[[], bool]) -> None:
        next_commit = time.monotonic() + COMMIT_S
        while not is_over():
            began_ns = time.monotonic_ns()
            message = self._consumer.poll(POLL_S)
            if message is not None:
                self._write_down(message, began_ns)
            if time.monotonic() >= next_commit:
                self._commit()
                next_commit = time.monotonic() + COMMIT_S
            self._stall()

    def _write_down(self, message: Message, began_ns: int) -> None:
        if (error := message.error()) is not None:
            self._log.write("error", code=error.name(), text=error.str())
            return
        partition = (str(message.topic()), int(message.partition() or 0))
        self._note(partition, int(message.offset() or 0), began_ns)
        if self._spec.work_s:
            time.sleep(self._spec.work_s)

    def _note(self, partition: tuple[str, int], offset: int, began_ns: int) -> None:
        at_ns = time.monotonic_ns()
        self._log.write(
            "record",
            partition=partition,
            offset=offset,
            spell=self._spells.get(partition, 0),
            began_ns=began_ns,
            moment_ns=at_ns,
        )
        self._positions[partition] = offset + 1

    def _stall(self) -> None:
        if self._stalls:
            self._stalls = False
            time.sleep(float(Path(f"{self._path}.stall").read_text()))

    def _commit(self) -> None:
        if self._spec.commits == "auto":
            return
        if self._spec.commits == "async":
            self._consumer.commit(asynchronous=True)  # `_on_commit` gets the answer
            return
        try:
            answers = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self._log.write("commit failed", text=str(error))
            return
        self._on_commit(None, answers if isinstance(answers, list) else [])

    # --- callbacks ------------------------------------------------------------------------------

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        done = [
            ((one.topic, one.partition), one.offset)
            for one in partitions
            if error is None and one.error is None and one.offset >= 0
        ]
        self._log.write("committed", offsets=done, text=str(error or ""))

    def _on_assign(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        names = [(one.topic, one.partition) for one in partitions]
        for name in names:
            self._spells[name] = self._spells.get(name, 0) + 1
            self._positions.pop(name, None)  # another member may have committed a higher offset
        self._log.write("assigned", partitions=names)

    def _on_revoke(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._forget("revoked", partitions)

    def _on_lost(self, _consumer: object, partitions: list[TopicPartition]) -> None:
        self._forget("lost", partitions)

    def _forget(self, event: str, partitions: list[TopicPartition]) -> None:
        names = [(one.topic, one.partition) for one in partitions]
        for name in names:
            self._positions.pop(name, None)
        self._log.write(event, partitions=names)

    def _build(self) -> Any:  # noqa: ANN401 - consumers of two libraries
        is_auto = self._spec.commits == "auto" or self._spec.front == "process"
        config = self._spec.config | {
            "enable.auto.commit": is_auto,
            "auto.commit.interval.ms": int(COMMIT_S * 1000),
            "on_commit": self._on_commit,
        }
        if self._spec.kind == "confluent_kafka":
            return Consumer(config)
        if self._spec.kind == "without lease":
            _forget_the_lease()
        return _cooperative(self._spec, config)


class HandlingApplication(Application):
    """The application around `process`: threads handle the records."""

    def __init__(self, spec: MemberSpec) -> None:
        self._stop = threading.Event()
        super().__init__(spec)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal, and end the handlers if the process is to end."""
        super().on_signal(number, frame)
        if self._is_closing:
            self._stop.set()

    def _consume(self, is_over: Callable[[], bool]) -> None:
        if self._is_closing:  # it hands over
            super()._consume(is_over)
            return
        from coopgroup.processing import process  # noqa: PLC0415 - the wall clock is patched before

        process(self._consumer, self._handle, workers=4, stop=self._stop)

    def _handle(self, message: Message) -> None:
        self._write_down(message, time.monotonic_ns())
        self._stall()

    def _commit(self) -> None:
        """Leave the offsets to `process`."""


class AsyncApplication(Application):
    """The application around one consumer for asyncio."""

    def run(self) -> None:
        """Consume until a signal asks to stop, then close."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._log.write("begun")
        self._consumer.subscribe(
            self._spec.topics,
            on_assign=self._on_assign,
            on_revoke=self._give_up,
            on_lost=self._on_lost,
        )
        await self._consumer.start()
        await self._get(lambda: self._is_closing)
        if self._is_handing_over:
            self._log.write("handing over")
            handing_over = asyncio.create_task(self._consumer.hand_over(HAND_OVER_S_MAX))
            await self._get(handing_over.done)
            await handing_over
        self._log.write("closing")
        await self._consumer.close()
        self._log.write("closed")

    async def _get(self, is_over: Callable[[], bool]) -> None:
        next_commit = time.monotonic() + COMMIT_S
        while not is_over():
            began_ns = time.monotonic_ns()
            try:
                async with asyncio.timeout(POLL_S):
                    record = await self._consumer.getone()
            except TimeoutError:
                pass
            except KafkaException as error:
                self._log.write("error", code=str(error.args[0].name()), text=str(error))
            else:
                self._note((record.topic, record.partition), record.offset, began_ns)
            if time.monotonic() >= next_commit:
                await self._commit_or_begin()
                next_commit = time.monotonic() + COMMIT_S
            self._stall()

    async def _give_up(self, consumer: object, partitions: list[TopicPartition]) -> None:
        await self._commit_or_begin()
        self._forget("revoked", partitions)
        del consumer

    async def _commit_or_begin(self) -> None:
        if self._spec.commits == "auto":
            return
        commit = asyncio.create_task(self._commit_all())
        self._commits.add(commit)
        commit.add_done_callback(self._commits.discard)
        if self._spec.commits == "sync":
            await commit

    async def _commit_all(self) -> None:
        owned = {(one.topic, one.partition) for one in self._consumer.assignment()}
        # Of the partitions that got a record: `commit` does not say what it commits.
        offsets = {one: at for one, at in self._positions.items() if one in owned}
        try:
            await self._consumer.commit()
        except KafkaException as error:
            self._log.write("commit failed", text=str(error))
        else:
            self._log.write("committed", offsets=list(offsets.items()), text="")

    @cached_property
    def _commits(self) -> set[asyncio.Task[None]]:
        """Commits on their way: a task that nothing holds may be collected."""
        return set()


FRONTS: Final = {
    "poll": Application,
    "process": HandlingApplication,
    "asyncio": AsyncApplication,
}


def _cooperative(spec: MemberSpec, config: dict[str, Any]) -> object:
    # The wall clock is patched before.
    from coopgroup import CooperativeConsumer  # noqa: PLC0415
    from coopgroup.aio import AsyncCooperativeConsumer  # noqa: PLC0415
    from coopgroup.assignors import create_assignor  # noqa: PLC0415
    from coopgroup.core.policies.built_in import create_policy  # noqa: PLC0415

    policy, assignor = dict(spec.policy), dict(spec.assignor)
    made = AsyncCooperativeConsumer if spec.front == "asyncio" else CooperativeConsumer
    if not policy:
        return made(config)
    return made(
        config,
        policy=create_policy(policy.pop("name"), policy),
        assignor=create_assignor(assignor.pop("name"), assignor),
    )


def _forget_the_lease() -> None:
    """Make a member that continues without a lease, however long no heartbeat was answered."""
    from coopgroup.core.member.member import Member  # noqa: PLC0415
    from coopgroup.kafka.clock import now_ms  # noqa: PLC0415 - only this control needs it

    for name in ("lost_at_ms", "hold_until_ms"):
        if not isinstance(getattr(Member, name, None), property):
            raise TypeError(f"Member.{name} has moved: this control would be a healthy member")
        setattr(Member, name, property(lambda _: now_ms() + LONG_MS))


def _let_the_wall_clock_jump(path: Path) -> None:
    """Add the seconds in a file to the wall clock of this process, as far as Python reads it."""
    true_ns = time.time_ns

    def jumped_ns() -> int:
        offset = path.read_text() if path.exists() else ""
        return true_ns() + int(float(offset or 0) * 1e9)

    time.time_ns = jumped_ns
    time.time = lambda: jumped_ns() / 1e9


def _end_with_the_supervisor() -> None:
    """Let Linux kill this process with its parent: the reaper of a run knows only the parent."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        sys.exit(1)  # it died before


def main() -> None:
    """Run the member that the argument describes."""
    spec = MemberSpec(**json.loads(sys.argv[1]))
    if spec.is_supervised:
        _end_with_the_supervisor()
    if spec.namespace:
        enter_namespace(spec.namespace)
    _let_the_wall_clock_jump(Path(spec.folder) / f"{spec.process}.clock")
    application = FRONTS[spec.front](spec)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, application.on_signal)
    faulthandler.register(signal.SIGHUP, all_threads=True)
    application.run()


if __name__ == "__main__":
    main()
