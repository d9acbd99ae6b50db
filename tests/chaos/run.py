"""`make chaos`: positive controls first, then a real cluster under the faults of each seed.

A run has five parts: start, faults, rest, drain, check. At rest, one process hands out each
partition, and the shares are even. Drained means that the committed offset of each partition is its
log end offset. A run that fails leaves its logs in `build/chaos/<seed>`.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from attrs import asdict, define, field
from confluent_kafka import Consumer, TopicPartition

from coopgroup.errors import ClusterError
from coopgroup.pipeline.topic.codec import (
    ConsumerKey,
    ConsumerKind,
    GroupKey,
    OffsetKey,
    decode_key,
    decode_offset_value,
)
from tests.chaos.checkers import (
    Commit,
    HandOut,
    Partition,
    Violation,
    Written,
    handed_out_after_commit,
    lost,
    moment_before_freeze,
    promised,
    repeated,
    restless,
    skipped,
    two_owners,
    undrained,
    unrest,
    went_back,
)
from tests.chaos.faults import Group, draw, draw_group
from tests.chaos.member import MemberSpec
from tests.chaos.stage import GROUP, IDLE, TOPICS, Stage, can_disturb_network

FAULTS_S: Final = 60.0
START_S: Final = 60.0
REST_S: Final = 90.0
REST_WINDOW_S: Final = 4.0
DRAIN_S: Final = 45.0
QUIET_S: Final = 6.0
# A policy may have announced a round before; a group without rest has several a second.
QUIET_ROUNDS_MAX: Final = 3
OFFSETS_TOPIC: Final = "__consumer_offsets"
CONTROL_SESSION_MS: Final = 3_000
CONTROL_RECORDS: Final = 20
CONTROL_BACKLOG: Final = 3_000
CONTROL_S: Final = 40.0
# A frozen client that wakes hears within milliseconds that it was fenced. So confluent_kafka may be
# lucky once; coopgroup must not need luck.
DRILLS: Final = {"coopgroup": 2, "without lease": 2, "confluent_kafka": 5}

CLIENT: Final[dict[str, Any]] = {
    "group.id": GROUP,
    "auto.offset.reset": "latest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_000,
    "max.poll.interval.ms": 12_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 1_000,
    # librdkafka waits that long for an answer over a half-open connection, and then may wait once
    # more for the next request. Its default of 60 s would exceed the time for rest.
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 5_000,
}
# In groups of `group.protocol=consumer` these time-outs are the broker's.
BROKERS: Final = {
    "group.consumer.session.timeout.ms": str(CLIENT["session.timeout.ms"]),
    "group.consumer.heartbeat.interval.ms": str(CLIENT["heartbeat.interval.ms"]),
}


@define(kw_only=True)
class Report:
    """The result of a run.

    Attributes:
        faults: number of faults of each kind that hit a target.
        records: records that the brokers acknowledged.
        again: records that applications got again.
        rest_s: time from the end of the faults until the group was at rest, None if it never was.
        drain_s: time from the end of the load until all was committed, None if it never was.
        error: why the run could not be played to its end, or "".
    """

    seed: int
    group: Group
    faults: Counter[str] = field(factory=Counter)
    records: int = 0
    again: int = 0
    rest_s: float | None = None
    drain_s: float | None = None
    violations: list[Violation] = field(factory=list)
    error: str = ""

    @property
    def is_good(self) -> bool:
        """Whether the run was played to its end and no promise was broken."""
        return not self.violations and not self.error

    def line(self) -> str:
        found = Counter(one.kind for one in self.violations)
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(found.items()))
        chosen = (self.group.policy, self.group.assignor)
        names = ", ".join(str(one["name"]) for one in chosen if one)
        return (
            f"seed {self.seed}: {names or self.group.protocol}; "
            f"{self.faults.total()} faults, {self.records} records, {self.again} again, "
            f"rest {_seconds(self.rest_s)}, drained {_seconds(self.drain_s)}: "
            f"{self.error or kinds or 'no violation'}"
        )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def play(
    seed: int,
    folder: Path,
    *,
    seconds: float = FAULTS_S,
    network: bool,
    protocol: str = "classic",
) -> Report:
    """Play the run of a seed; the logs replace the files of a folder. Only root has a network."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    group = draw_group(seed, protocol)
    report = Report(seed=seed, group=group)
    try:
        with Stage(folder, seed, network=network, properties=BROKERS) as stage:
            try:
                _play_on(stage, report, group, seconds, network=network)
            finally:
                report.faults = Counter(fault.kind for fault, _ in stage.performed)
                report.violations += stage.violations
                plan = [{**asdict(fault), "hit": hit} for fault, hit in stage.performed]
                (folder / "faults.json").write_text(json.dumps(plan, indent=1))
    except (ClusterError, OSError) as error:
        report.error = f"{type(error).__name__}: {error}"
    return report


def _play_on(stage: Stage, report: Report, group: Group, seconds: float, *, network: bool) -> None:
    for topic, partitions in (*TOPICS.items(), IDLE):
        stage.cluster.create_topic(topic, partitions, len(stage.cluster.brokers))
    members = zip(group.identities, group.commits, group.fronts, strict=True)
    for index, (identity, commits, front) in enumerate(members):
        name = f"m{index + 1}"
        config = {**stage.cluster.client_config(), **CLIENT, "client.id": name}
        if group.protocol == "consumer":
            config = {"group.protocol": "consumer", **config}
            del config["session.timeout.ms"], config["heartbeat.interval.ms"]
        config |= {
            "static": {"group.instance.id": name},
            "kept": {"coopgroup.state.dir": str(stage.scratch / "state")},
            "none": {},
        }[identity]
        spec = MemberSpec(
            kind="coopgroup",
            folder=str(stage.folder),
            process=name,
            config=config,
            topics=["^chaos-.*"],
            policy=group.policy,
            assignor=group.assignor,
            commits=commits,
            front=front,
            is_supervised=identity == "none" and sys.platform == "linux",
        )
        stage.add_member(spec)
    if not _await_first_commits(stage, report):
        return
    for topic, partitions in TOPICS.items():
        stage.load.open(topic, partitions)
    # Shares count only partitions with records, and the idle ones have none yet.
    if _await_rest(stage, START_S, report, IDLE[1] + group.difference_max) is None:
        return
    for number in range(IDLE[1]):
        at_s = (number + 0.5) * seconds / IDLE[1]
        stage.later(at_s, lambda count=number + 1: stage.load.open(IDLE[0], count))  # type: ignore[misc]
    for fault in draw(report.seed, seconds, network=network, protocol=group.protocol):
        stage.later(fault.at_s, lambda fault=fault: stage.perform(fault))  # type: ignore[misc]
    stage.play(seconds)
    stage.heal()
    report.rest_s = _await_rest(stage, REST_S, report, group.difference_max)
    quiet_ms = [time.time_ns() // 1_000_000]
    stage.play(QUIET_S)
    quiet_ms.append(time.time_ns() // 1_000_000)
    stage.load.finish(DRAIN_S)
    report.drain_s = _await_drain(stage)
    stage.close_members()
    _check(stage, report, quiet_ms)


def _await_first_commits(stage: Stage, report: Report) -> bool:
    """Wait until the group has committed where its partitions begin, before the first record."""
    wanted = [
        TopicPartition(topic, one)
        for topic, count in (*TOPICS.items(), IDLE)
        for one in range(count)
    ]
    missing, until = wanted, time.monotonic() + START_S
    with _reader(stage, GROUP) as reader:
        while time.monotonic() < until:
            stage.play(1.0)
            stage.read()
            missing = [one for one in reader.committed(wanted, timeout=20) if one.offset < 0]
            if not missing:
                return True
    report.violations += [
        Violation(kind="no first commit", text=f"{one.topic} [{one.partition}]") for one in missing
    ]
    stage.explain()
    return False


def _await_rest(
    stage: Stage, timeout_s: float, report: Report, difference_max: int
) -> float | None:
    """Wait until the group is at rest; on a time-out, the last reason is a violation."""
    begin_ns = time.monotonic_ns()
    while True:
        stage.play(1.0)
        stage.read()
        now_ns = time.monotonic_ns()
        since_ns = now_ns - int(REST_WINDOW_S * 1e9)
        recent = [one for life in stage.lives for one in life.hand_outs if one.at_ns > since_ns]
        processes = [seat.life.name for seat in stage.seats]
        reasons = unrest(recent, stage.load.partitions, processes, difference_max)
        elapsed_s = (now_ns - begin_ns) / 1e9
        if not reasons and elapsed_s > REST_WINDOW_S:
            return round(elapsed_s, 1)
        if elapsed_s > timeout_s:
            report.violations += reasons
            stage.explain()
            return None


def _await_drain(stage: Stage) -> float | None:
    """Wait until all acknowledged records are committed, as far as members know."""
    begin = time.monotonic()
    while time.monotonic() < begin + DRAIN_S:
        stage.play(0.5)
        stage.read()
        done: dict[Partition, int] = defaultdict(int)
        for life in stage.lives:
            for one in life.commits:
                done[one.partition] = max(done[one.partition], one.offset)
        if all(done[one] > max(offsets) for one, offsets in _acknowledged(stage).items()):
            return round(time.monotonic() - begin, 1)
    return None


def _acknowledged(stage: Stage) -> dict[Partition, list[int]]:
    """Return the acknowledged records of the topics that were not deleted."""
    known = stage.load.acknowledged.items()
    return {one: offsets for one, offsets in known if one[0] not in stage.load.closed and offsets}


def _check(stage: Stage, report: Report, quiet_ms: list[int]) -> None:
    """Read all logs, and check them."""
    stage.read()
    hand_outs, commits = _evidence(stage)
    written, rounds_ms = read_log(stage)
    kept = [one for one in written if one.partition[0] not in stage.load.closed]
    acknowledged = _acknowledged(stage)
    open_hand_outs = [one for one in hand_outs if one.partition[0] not in stage.load.closed]
    report.records = sum(map(len, acknowledged.values()))
    report.again = repeated(hand_outs)
    report.violations += [
        *lost(promised(acknowledged, kept), hand_outs),
        *skipped(open_hand_outs, kept),
        *two_owners(hand_outs),
        *handed_out_after_commit(open_hand_outs, commits),
        *went_back(kept),
        *undrained(_ends(stage), kept),
        *restless(rounds_ms, quiet_ms[0], quiet_ms[1], QUIET_ROUNDS_MAX),
    ]


def _evidence(stage: Stage) -> tuple[list[HandOut], list[Commit]]:
    freezes = [one for life in stage.lives for one in life.freezes]
    hand_outs = [one for life in stage.lives for one in life.hand_outs]
    commits = [one for life in stage.lives for one in life.commits]
    return moment_before_freeze(hand_outs, freezes), commits


@contextlib.contextmanager
def _reader(stage: Stage, group: str = "chaos-reader") -> Iterator[Consumer]:
    """Yield a consumer that joins no group and commits nothing."""
    reader = Consumer(
        stage.cluster.client_config()
        | {
            "group.id": group,
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        yield reader
    finally:
        reader.close()


def _ends(stage: Stage) -> dict[Partition, int]:
    """Return the log end offsets of all partitions of the load."""
    with _reader(stage) as reader:
        return {
            one: reader.get_watermark_offsets(TopicPartition(*one), timeout=20)[1]
            for one in sorted(stage.load.partitions)
        }


def read_log(stage: Stage) -> tuple[list[Written], list[int]]:
    """Return all commits in the order of the broker's log, and the moments of all rounds in ms."""
    written, rounds_ms = [], []
    with _reader(stage) as reader:
        topic = reader.list_topics(OFFSETS_TOPIC, timeout=20).topics[OFFSETS_TOPIC]
        reader.assign([TopicPartition(OFFSETS_TOPIC, one, 0) for one in topic.partitions])
        unread = set(topic.partitions)
        until = time.monotonic() + START_S
        while unread:
            if time.monotonic() > until:
                raise ClusterError(f"{OFFSETS_TOPIC} could not be read to its end")
            for message in reader.consume(1000, timeout=1):
                if message.error() is not None:
                    unread.discard(message.partition() if message.partition() is not None else -1)
                    continue
                key = decode_key(message.key() or b"")
                value = message.value()
                is_round = isinstance(key, GroupKey) or (
                    isinstance(key, ConsumerKey) and key.kind is ConsumerKind.TARGET
                )
                if is_round and key.group == GROUP and value is not None:
                    rounds_ms.append(message.timestamp()[1])
                if isinstance(key, OffsetKey) and key.group == GROUP:
                    offset = None if value is None else decode_offset_value(value).committed
                    written.append(Written(partition=(key.topic, key.partition), offset=offset))
    return written, rounds_ms


# --- positive controls --------------------------------------------------------------------------


def control(kind: str, folder: Path, *, network: bool) -> list[Violation]:
    """Freeze a member beyond its session timeout, or cut it off; return the checkers' findings.

    A healthy member plays the same drill, so a control that is caught proves that the checkers
    work. The member without a lease is cut off, which needs a network: after a freeze it would
    learn within milliseconds that it was fenced, before it hands out much.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Stage(folder, 0, network=network, brokers=1) as stage:
        stage.cluster.create_topic("chaos-control", 4)
        stage.load.open("chaos-control", 4)
        # The first member works slowly, so it has fetched far ahead. The second member soon gets
        # the records that are still in the first one's buffer.
        for name, work_s in (("m1", 0.002), ("m2", 0.0)):
            config = {**stage.cluster.client_config(), **CLIENT, "client.id": name}
            config |= {"session.timeout.ms": CONTROL_SESSION_MS, "heartbeat.interval.ms": 500}
            config |= {"auto.offset.reset": "earliest"}  # its records come before the members
            if kind == "confluent_kafka":
                config["partition.assignment.strategy"] = "cooperative-sticky"
            spec = MemberSpec(
                kind=kind,
                folder=str(folder),
                process=name,
                config=config,
                topics=["chaos-control"],
                policy={"name": "simple"},
                assignor={"name": "sticky"},
                commits="auto",
                work_s=work_s,
            )
            stage.add_member(spec)
        found: list[Violation] = []
        for _ in range(DRILLS[kind]):
            _play_drill(stage, kind, is_cut=network and kind != "confluent_kafka")
            hand_outs, commits = _evidence(stage)
            found = [*two_owners(hand_outs), *handed_out_after_commit(hand_outs, commits)]
            if found:
                break
        stage.close_members()
        return [*stage.violations, *found]


def _play_drill(stage: Stage, kind: str, *, is_cut: bool) -> None:
    victim = stage.seats[0]
    before = len(victim.life.hand_outs)
    for _ in range(CONTROL_BACKLOG):
        for partition in range(4):
            stage.load.produce("chaos-control", partition)
    until = time.monotonic() + CONTROL_S
    while len(victim.life.hand_outs) < before + CONTROL_RECORDS or not _shared(stage):
        if time.monotonic() > until:
            raise ClusterError("the members of the control do not share the topic")
        stage.play(0.1)
        stage.read()
    if is_cut:
        stage.cut_off(victim)
    else:
        if kind != "coopgroup":
            victim.life.starve_library()
        victim.life.freeze()
    stage.play(3 * CONTROL_SESSION_MS / 1000)
    stage.heal()
    stage.play(2 * CONTROL_SESSION_MS / 1000)
    stage.read()


def _shared(stage: Stage) -> bool:
    return all(seat.life.hand_outs for seat in stage.seats)


def _play_controls(folder: Path, *, network: bool) -> bool:
    """Play both controls and the healthy member; return whether the checkers separate them."""
    good = True
    for kind in ("coopgroup", "without lease", "confluent_kafka"):
        found = control(kind, folder / f"control-{kind.replace(' ', '-')}", network=network)
        counts = Counter(one.kind for one in found)
        good = good and bool(found) == (kind != "coopgroup")
        text = ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))
        print(f"control {kind}: {text or 'no violation'}", flush=True)
    return good


# --- command line -------------------------------------------------------------------------------


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Play controls and seeds; return 0 if all promises were kept, 1 if not."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("first_seed", type=int)
    parser.add_argument("seeds", type=int)
    parser.add_argument("--minutes", type=float, default=None, help="start no run after that")
    parser.add_argument("--seconds", type=float, default=FAULTS_S, help="of faults in each run")
    parser.add_argument("--protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument("--no-controls", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("build/chaos"))
    options = parser.parse_args(arguments)
    # So that processes and namespaces end, too. SIGINT as well: a shell starts a process in the
    # background with SIGINT ignored, and Python leaves it so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    network = can_disturb_network()
    if not network:
        print("not root: no network namespaces, so faults of the network are left out", flush=True)
    began = time.monotonic()
    good = options.no_controls or _play_controls(options.folder, network=network)
    total: Counter[str] = Counter()
    records = failed = runs = 0
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        if options.minutes is not None and time.monotonic() - began > options.minutes * 60:
            break
        folder = options.folder / str(seed)
        report = play(
            seed, folder, seconds=options.seconds, network=network, protocol=options.protocol
        )
        print(report.line(), flush=True)
        runs += 1
        total += report.faults
        records += report.records
        if report.is_good:
            shutil.rmtree(folder)
            continue
        failed += 1
        for violation in sorted(report.violations)[:20]:
            print(f"  {violation.kind}: {violation.text}", flush=True)
        print(f"  logs: {folder}; again: make chaos SEEDS=1 FIRST_SEED={seed}", flush=True)
    for kind, count in total.most_common():
        print(f"{count:6} {kind}")
    print(f"{runs} runs, {total.total()} faults, {records} records, {failed} runs failed")
    return 0 if good and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
