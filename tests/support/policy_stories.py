"""Stories of groups under the policies that wait, played by processes on a real broker.

A story says which members start, end and return. In between it waits for facts, never for a time
that could be too short on a slow machine. All stories of a chapter are played in parallel; each has
its own group, and all groups consume the one topic of the chapter. Actions and their times are
recorded, so that the simulator can play the same story.

This file checks only that the story could be played.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from coopgroup.model import ResourceSet
from coopgroup.simulator import Run, Scenario, simulate
from coopgroup.simulator.scenario import (
    Choice,
    Close,
    Cost,
    Crash,
    Identity,
    MemberSet,
    Span,
    Topic,
)
from coopgroup.simulator.scenario import Group as SimulatedGroup
from coopgroup.telemetry import Envelope, Record, RoundDecided, from_json, read_ownership
from coopgroup.testing import KafkaCluster
from coopgroup.testing.trial import Facts, Group, Trial, TrialLog, Window, measure
from coopgroup.testing.trial.spec import POLICY_ARGUMENTS, policy_name
from tests.support.live_group import unique

__all__ = ["PARTITIONS", "SETTINGS", "Act", "Cast", "Chapter", "Played", "Story", "told"]

PARTITIONS: Final = 24
RATE: Final = 10.0
REST_S: Final = 0.8
POLL_S: Final = 0.1
SETTLE_S_MAX: Final = 60.0
SETTINGS: Final[Mapping[str, Any]] = {
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 300,
    "commit_interval_ms": 500,
}
WARM_UP_MS: Final = 30_000
_REBALANCE_TIMEOUT_MS: Final = 300_000  # the default of max.poll.interval.ms
_Kind = TypeVar("_Kind", bound=Record)


@frozen(kw_only=True)
class Act:
    """An action on a process.

    Attributes:
        at_ns: its time, on the clock of the records.
        how: `start`, `kill` or `close`.
    """

    at_ns: int
    how: str
    member: str


@frozen(kw_only=True)
class Story:
    """The events of one group.

    Attributes:
        members: members at the begin, at rest.
        play: the actions that follow.
        policy_arguments: arguments of the policy; they win over those of `POLICY_ARGUMENTS`.
        settings: further fields of `WorkerSpec`.
        first_leads: whether the first member leads; else any member may.
    """

    name: str
    kind: str
    members: tuple[str, ...]
    play: Callable[[Cast], None]
    policy_arguments: Mapping[str, Any] = field(factory=dict)
    settings: Mapping[str, Any] = field(factory=dict)
    first_leads: bool = False

    @property
    def policy(self) -> Choice:
        """Return the policy in the form of the simulator."""
        name = policy_name(self.kind)
        return Choice(name=name, options={**POLICY_ARGUMENTS[name], **self.policy_arguments})


@frozen(kw_only=True)
class Chapter:
    """Stories that are played in parallel.

    Attributes:
        name: name of the chapter.
    """

    name: str
    stories: tuple[Story, ...]


@define(kw_only=True)
class Cast:
    """A group that plays a story; its actions are recorded.

    Attributes:
        acts: actions so far.
        marks: named moments, in order, on the clock of the records.
    """

    group: Group
    acts: list[Act] = field(factory=list)
    marks: dict[str, int] = field(factory=dict)
    _read: list[Envelope] = field(factory=list, init=False)
    _position: int = field(default=0, init=False)
    _rounds_before: int = field(default=0, init=False)

    def start(self, *names: str) -> None:
        self.group.prepare(*(name for name in names if name not in self.group.prepared))
        self._note("start", names)
        self.group.start(*names)

    def kill(self, *names: str) -> None:
        """SIGKILL."""
        self._rounds_before = len(self.rounds())
        self._note("kill", names)
        self.group.kill(*names)

    def close(self, *names: str) -> None:
        """SIGTERM: close the consumers, and wait until all have ended."""
        self._rounds_before = len(self.rounds())
        self._note("close", names)
        self.group.ask_to_stop(*names)
        for name in names:
            self.group.wait_stopped(name)

    def rest(self) -> None:
        """Wait until the group is at rest and all members have a fair share.

        A policy that moves a few resources per round is also quiet between its rounds.
        """
        self.until(lambda: self.group.is_settled(quiet_s=REST_S) and self._is_balanced(), "at rest")

    def owned(self, name: str) -> set[int]:
        """Return the partitions of the present process of a member."""
        self.group.watch.refresh()
        path = self.group.member(name).records_path
        return next(one.owned for one in self.group.watch.logs if one.records_path == path)

    def _is_balanced(self) -> bool:
        """Return whether all own a fair share, and have worked on it: marks count work."""
        counts = [len(self.owned(name)) for name in self.group.living]
        watch = self.group.watch
        works = (
            partition in watch.logs[owner].owned
            for partition, owner in enumerate(watch.owners.tolist())
        )
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1 and all(works)

    def _state(self) -> str:
        """Return the state of a group that fails to come to rest."""
        watch = self.group.watch
        now_ns = time.monotonic_ns()
        return "\n".join(
            [
                *(f"{one.member}: {one.record}" for one in self.envelopes()[-20:]),
                *(f"{log.member}: {log.state}, {sorted(log.owned)}" for log in watch.logs),
                f"last handed out, ms ago: {((now_ns - watch.last_ns) // 1_000_000).tolist()}",
            ]
        )

    def mark(self, name: str) -> None:
        self.marks[name] = time.monotonic_ns()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SETTLE_S_MAX
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not in time\n{self._state()}"
            time.sleep(POLL_S)

    def rounds(self) -> list[RoundDecided]:
        return self.records(RoundDecided)

    def records(self, kind: type[_Kind]) -> list[_Kind]:
        """Return the members' records of one kind so far."""
        return [one.record for one in self.envelopes() if isinstance(one.record, kind)]

    def envelopes(self) -> list[Envelope]:
        with (self.group.folder / f"{self.group.group_id}.jsonl").open("rb") as file:
            file.seek(self._position)
            lines, _, _ = file.read().rpartition(b"\n")
        if lines:
            self._position += len(lines) + 1
            self._read.extend(from_json(json.loads(line)) for line in lines.split(b"\n"))
            self._read.sort(key=lambda one: one.at_ms)
        return self._read

    def loss_is_noticed(self) -> bool:
        """Return whether a resource has waited for its owner since the last end of a process."""
        return any(one.lost for one in self.rounds()[self._rounds_before :])

    def _note(self, how: str, names: Sequence[str]) -> None:
        now_ns = time.monotonic_ns()
        self.acts.extend(Act(at_ns=now_ns, how=how, member=name) for name in names)


@frozen(kw_only=True)
class Played:
    """The record of a played story.

    Attributes:
        marks: named moments; `begin` and `end` are those of the story.
        wall_ns: clock of the telemetry minus clock of the records.
        log: records that were handed out.
        telemetry: telemetry of all members, in order of time.
    """

    story: Story
    acts: tuple[Act, ...]
    marks: Mapping[str, int]
    wall_ns: int
    log: TrialLog
    telemetry: tuple[Envelope, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all members, past ones too, in the order of the log's numbers."""
        return tuple(sorted({act.member for act in self.acts}))

    def facts(self, begin: str = "begin", end: str = "end") -> Facts:
        """Return the facts between two marks."""
        return measure(self.log, Window(begin_ns=self.marks[begin], end_ns=self.marks[end]))

    def moves(self, begin: str = "begin", end: str = "end") -> Counter[tuple[str, str]]:
        """Return how many partitions moved between two marks, by source and target member."""
        return Counter((before, after) for _, before, after, _ in self._moves(begin, end))

    def moved(self, begin: str = "begin", end: str = "end") -> list[int]:
        """Return the partitions that moved between two marks, in order of time."""
        ordered = sorted(self._moves(begin, end), key=lambda one: one[3])
        return [partition for partition, *_ in ordered]

    def shares(self, mark: str) -> dict[str, list[int]]:
        """Return the partitions that each member worked on last before a mark."""
        found: dict[str, list[int]] = {}
        for partition in range(PARTITIONS):
            before = [
                one
                for one in self.log.spells
                if one.partition == partition and one.first_ns < self.marks[mark]
            ]
            found.setdefault(self.names[before[-1].member], []).append(partition)
        return dict(sorted(found.items()))

    def rounds(self, begin: str = "begin", end: str = "end") -> list[Envelope]:
        """Return the rounds between two marks, in order."""
        since_ms, until_ms = ((self.marks[one] + self.wall_ns) / 1e6 for one in (begin, end))
        return [
            one
            for one in self.telemetry
            if isinstance(one.record, RoundDecided) and since_ms <= one.at_ms < until_ms
        ]

    def _moves(self, begin: str, end: str) -> list[tuple[int, str, str, int]]:
        """Return (partition, source, target, time in ns) of each move."""
        return [
            (after.partition, self.names[before.member], self.names[after.member], after.first_ns)
            for before, after in pairwise(self.log.spells)
            if before.partition == after.partition
            and before.member != after.member
            and self.marks[begin] <= after.first_ns < self.marks[end]
        ]

    # --- the same in the simulator ----------------------------------------------------------------

    def predict(self, seed: int = 1) -> Prediction:
        """Let the simulator play the same actions at the same times."""
        run = simulate(scenario_of(self), seed=seed)
        assert run.violations == ()
        return Prediction(run=run, begin_ms=simulated_ms(self, self.marks["begin"]))


@frozen(kw_only=True)
class Prediction:
    """The simulator's version of a story.

    Attributes:
        begin_ms: when the story begins: the group has started and is at rest.
    """

    run: Run
    begin_ms: int

    def moves(self) -> Counter[tuple[str, str]]:
        """Return how many partitions moved, by source and target member."""
        return Counter((before, after) for _, before, after in self._moves())

    def moved(self) -> list[int]:
        """Return the partitions that moved, in order of time."""
        return [partition for partition, _, _ in self._moves()]

    def rounds(self) -> list[RoundDecided]:
        return [
            one.record
            for one in self.run.telemetry
            if isinstance(one.record, RoundDecided) and one.at_ms >= self.begin_ms
        ]

    def _moves(self) -> list[tuple[int, str, str]]:
        owned = read_ownership(self.run.telemetry, until_ms=self.run.scenario.end_ms)
        clients = owned.clients
        rows = zip(
            owned.resource.tolist(), owned.owner.tolist(), owned.start_ms.tolist(), strict=True
        )
        found = [
            (start_ms, int(owned.resources.flat_indices[after]), clients[one], clients[other])
            for (before, one, _), (after, other, start_ms) in pairwise(rows)
            if before == after and one != other and start_ms >= self.begin_ms
        ]
        return [(partition, before, after) for _, partition, before, after in sorted(found)]


def simulated_ms(played: Played, at_ns: int) -> int:
    """Convert a moment of a story to virtual time.

    There is time between the first starts and the story, so that the simulated group comes to rest
    in any order of joins; the real group was at rest.
    """
    begin_ns = played.marks["begin"]
    return 0 if at_ns < begin_ns else WARM_UP_MS + (at_ns - begin_ns) // 1_000_000


def scenario_of(played: Played) -> Scenario:
    story = played.story
    settings = {**SETTINGS, **story.settings}
    acts = [(act, simulated_ms(played, act.at_ns)) for act in played.acts]
    starts: dict[str, int] = {}
    events: list[Crash | Close] = []
    for place, (act, at_ms) in enumerate(acts):
        if act.how == "start":
            starts.setdefault(act.member, at_ms)
            continue
        back = [one_ms for one, one_ms in acts[place:] if one.member == act.member][1:2]
        kind = Crash if act.how == "kill" else Close
        back_after_ms = back[0] - at_ms if back else None
        events.append(kind(at_ms=at_ms, member=act.member, back_after_ms=back_after_ms))
    identity = Identity.NONE
    if story.kind.endswith("-static"):
        identity = Identity.STATIC
    elif story.kind.endswith("-kept"):
        identity = Identity.STATE_DIR
    heavy = settings.get("heavy_partitions", ())
    stop_ms = settings.get("heavy_stop_ms", 0)
    return Scenario(
        name=story.name,
        duration_ms=acts[-1][1] + 1_000,
        settle_ms=30_000,
        group=SimulatedGroup(
            policy=story.policy,
            session_timeout_ms=settings["session_timeout_ms"],
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            heartbeat_interval_ms=settings["heartbeat_interval_ms"],
            commit_interval_ms=settings["commit_interval_ms"],
        ),
        topics=(Topic(name="t", partitions=PARTITIONS, rate_per_s=(RATE,) * PARTITIONS),),
        members=tuple(
            MemberSet(name=name, topics=("t",), identity=identity, start_ms=at_ms)
            for name, at_ms in starts.items()
        ),
        costs=(Cost(resources=ResourceSet({"t": list(heavy)}), stop_ms=Span(stop_ms, stop_ms)),)
        if heavy
        else (),
        events=tuple(events),
    )


# --- telling --------------------------------------------------------------------------------------

_told: Final[dict[str, Future[dict[str, Played]]]] = {}


def told(cluster: KafkaCluster, chapter: Chapter) -> Mapping[str, Played]:
    """Return the stories of a chapter by name; they are played once, for the first caller.

    Raises:
        AssertionError: a story could not be played; every caller gets this error.
    """
    if chapter.name not in _told:
        with ThreadPoolExecutor(1) as narrator:
            _told[chapter.name] = narrator.submit(_tell, cluster, chapter)
    return _told[chapter.name].result()


def _tell(cluster: KafkaCluster, chapter: Chapter) -> dict[str, Played]:
    topic = unique(chapter.name)
    cluster.create_topic(topic, PARTITIONS)
    with (
        Trial(
            client_config=cluster.client_config(), topics=[topic], partitions_per_topic=PARTITIONS
        ) as trial,
        ThreadPoolExecutor(len(chapter.stories)) as pool,
    ):
        casts = {story.name: Cast(group=_group(trial, story)) for story in chapter.stories}
        for story in chapter.stories:
            casts[story.name].group.prepare(*story.members)
        trial.start_producer(rate_per_partition=RATE)
        for future in [pool.submit(_play, story, casts[story.name]) for story in chapter.stories]:
            future.result()
        trial.finish()
        return {
            story.name: Played(
                story=story,
                acts=tuple(casts[story.name].acts),
                marks=dict(casts[story.name].marks),
                wall_ns=time.time_ns() - time.monotonic_ns(),
                log=casts[story.name].group.log(),
                telemetry=tuple(casts[story.name].envelopes()),
            )
            for story in chapter.stories
        }


def _group(trial: Trial, story: Story) -> Group:
    group_id = unique(story.name)
    return trial.group(
        story.kind,
        group_id=group_id,
        policy_arguments=dict(story.policy_arguments),
        extra_config={"coopgroup.telemetry.file": str(trial.folder / f"{group_id}.jsonl")},
        **{**SETTINGS, **story.settings},
    )


def _play(story: Story, cast: Cast) -> None:
    if story.first_leads:
        cast.start(story.members[0])
        cast.rest()
        cast.start(*story.members[1:])
    else:
        cast.start(*story.members)
    cast.rest()
    cast.mark("begin")
    story.play(cast)
    cast.rest()
    cast.mark("end")
