"""Stories of groups under the policies that wait, played by processes on a real broker.

A story says who starts, ends and comes back, and waits for facts in between, never for a time that
a slow machine might need longer for. All stories of a chapter are played at once, each by a group
of its own that consumes the one topic of the chapter. What was done, and when, is written down, so
that the simulator can play the same.

Rule of this file: nothing is asserted here but that the story could be told.
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
from coopgroup.telemetry import Envelope, Record, RoundLed, from_json, read_ownership
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
    """Something that was done to a process.

    Attributes:
        at_ns: when, on the clock of the records.
        how: `start`, `kill` or `close`.
        member: to whom.
    """

    at_ns: int
    how: str
    member: str


@frozen(kw_only=True)
class Story:
    """What happens to one group.

    Attributes:
        name: of the story.
        kind: of its consumers.
        members: who is there at the begin, at rest.
        play: what happens then.
        policy_arguments: of the policy; they win over those of `POLICY_ARGUMENTS`.
        settings: further fields of `WorkerSpec`.
        first_leads: whether the first member leads; else whoever joins first.
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
        """The policy as the simulator names it."""
        name = policy_name(self.kind)
        return Choice(name=name, options={**POLICY_ARGUMENTS[name], **self.policy_arguments})


@frozen(kw_only=True)
class Chapter:
    """Stories that are played at the same time.

    Attributes:
        name: of the chapter.
        stories: its stories.
    """

    name: str
    stories: tuple[Story, ...]


@define(kw_only=True)
class Cast:
    """A group that plays a story; what it does is written down.

    Attributes:
        group: its processes.
        acts: what was done so far.
        marks: moments with a name, in order, on the clock of the records.
    """

    group: Group
    acts: list[Act] = field(factory=list)
    marks: dict[str, int] = field(factory=dict)
    _read: list[Envelope] = field(factory=list, init=False)
    _position: int = field(default=0, init=False)
    _rounds_before: int = field(default=0, init=False)

    def start(self, *names: str) -> None:
        """Let processes join; those that are not prepared are loaded first."""
        self.group.prepare(*(name for name in names if name not in self.group.prepared))
        self._note("start", names)
        self.group.start(*names)

    def kill(self, *names: str) -> None:
        """SIGKILL."""
        self._rounds_before = len(self.rounds())
        self._note("kill", names)
        self.group.kill(*names)

    def close(self, *names: str) -> None:
        """SIGTERM: the consumer is closed; waits until all have ended."""
        self._rounds_before = len(self.rounds())
        self._note("close", names)
        self.group.ask_to_stop(*names)
        for name in names:
            self.group.wait_stopped(name)

    def rest(self) -> None:
        """Wait until the group is at rest and everybody has a fair share.

        A policy that moves a few at a time is quiet in between, too, and not at rest.
        """
        self.until(lambda: self.group.is_settled(quiet_s=REST_S) and self._is_balanced(), "at rest")

    def owned(self, name: str) -> set[int]:
        """What the present process of a member has."""
        self.group.watch.refresh()
        path = self.group.member(name).records_path
        return next(one.owned for one in self.group.watch.logs if one.records_path == path)

    def _is_balanced(self) -> bool:
        counts = [len(self.owned(name)) for name in self.group.living]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1

    def _state(self) -> str:
        """What is known of a group that fails to come to rest."""
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
        """Give this moment a name."""
        self.marks[name] = time.monotonic_ns()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a fact; a test that waits in vain fails."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not in time\n{self._state()}"
            time.sleep(POLL_S)

    def rounds(self) -> list[RoundLed]:
        """The rounds that were led so far."""
        return self.records(RoundLed)

    def records(self, kind: type[_Kind]) -> list[_Kind]:
        """What the members wrote so far, of one kind."""
        return [one.record for one in self.envelopes() if isinstance(one.record, kind)]

    def envelopes(self) -> list[Envelope]:
        """Everything that the members wrote so far, in order of time."""
        with (self.group.folder / f"{self.group.group_id}.jsonl").open("rb") as file:
            file.seek(self._position)
            lines, _, _ = file.read().rpartition(b"\n")
        if lines:
            self._position += len(lines) + 1
            self._read.extend(from_json(json.loads(line)) for line in lines.split(b"\n"))
            self._read.sort(key=lambda one: one.at_ms)
        return self._read

    def loss_is_noticed(self) -> bool:
        """Whether since the last end of a process something has waited for its owner."""
        return any(one.lost for one in self.rounds()[self._rounds_before :])

    def _note(self, how: str, names: Sequence[str]) -> None:
        now_ns = time.monotonic_ns()
        self.acts.extend(Act(at_ns=now_ns, how=how, member=name) for name in names)


@frozen(kw_only=True)
class Played:
    """A story as it went.

    Attributes:
        story: what was played.
        acts: what was done.
        marks: moments with a name; `begin` and `end` are those of the story.
        wall_ns: what the clock of the telemetry is ahead of that of the records.
        log: what was handed out.
        telemetry: of all members, in order of time.
    """

    story: Story
    acts: tuple[Act, ...]
    marks: Mapping[str, int]
    wall_ns: int
    log: TrialLog
    telemetry: tuple[Envelope, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Members that ever were, in the order in which the log numbers them."""
        return tuple(sorted({act.member for act in self.acts}))

    def facts(self, begin: str = "begin", end: str = "end") -> Facts:
        """What happened between two marks."""
        return measure(self.log, Window(begin_ns=self.marks[begin], end_ns=self.marks[end]))

    def moves(self, begin: str = "begin", end: str = "end") -> Counter[tuple[str, str]]:
        """How many partitions moved between two marks, by the members from and to."""
        return Counter((before, after) for _, before, after, _ in self._moves(begin, end))

    def moved(self, begin: str = "begin", end: str = "end") -> list[int]:
        """Which partitions moved between two marks, in order of time."""
        ordered = sorted(self._moves(begin, end), key=lambda one: one[3])
        return [partition for partition, *_ in ordered]

    def first_after(self, mark: str, partition: int) -> str:
        """Who was the first to hand out something of a partition after a mark."""
        spells = [
            one
            for one in self.log.spells
            if one.partition == partition and one.last_ns >= self.marks[mark]
        ]
        return self.names[spells[0].member]

    def shares(self, mark: str) -> dict[str, list[int]]:
        """Which partitions each member worked on last before a mark."""
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
        """The rounds that were led between two marks, in order."""
        since_ms, until_ms = ((self.marks[one] + self.wall_ns) / 1e6 for one in (begin, end))
        return [
            one
            for one in self.telemetry
            if isinstance(one.record, RoundLed) and since_ms <= one.at_ms < until_ms
        ]

    def _moves(self, begin: str, end: str) -> list[tuple[int, str, str, int]]:
        """Partition, from whom, to whom, when (ns)."""
        return [
            (after.partition, self.names[before.member], self.names[after.member], after.first_ns)
            for before, after in pairwise(self.log.spells)
            if before.partition == after.partition
            and before.member != after.member
            and self.marks[begin] <= after.first_ns < self.marks[end]
        ]

    # --- the same in the simulator ----------------------------------------------------------------

    def predict(self, seed: int = 1) -> Prediction:
        """Let the simulator play what was done, at the same times."""
        run = simulate(scenario_of(self), seed=seed)
        assert run.violations == ()
        return Prediction(run=run, begin_ms=simulated_ms(self, self.marks["begin"]))


@frozen(kw_only=True)
class Prediction:
    """A story as the simulator tells it.

    Attributes:
        run: the run.
        begin_ms: when the story begins: the group has started and is at rest.
    """

    run: Run
    begin_ms: int

    def moves(self) -> Counter[tuple[str, str]]:
        """How many partitions moved, by the members from and to."""
        return Counter((before, after) for _, before, after in self._moves())

    def moved(self) -> list[int]:
        """Which partitions moved, in order of time."""
        return [partition for partition, _, _ in self._moves()]

    def rounds(self) -> list[RoundLed]:
        """The rounds that were led in the story."""
        return [
            one.record
            for one in self.run.telemetry
            if isinstance(one.record, RoundLed) and one.at_ms >= self.begin_ms
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
    """A moment of a story in virtual time.

    Between the first starts and the story there is time for the group to come to rest, however
    its first members found together; in the story it was at rest.
    """
    begin_ns = played.marks["begin"]
    return 0 if at_ns < begin_ns else WARM_UP_MS + (at_ns - begin_ns) // 1_000_000


def scenario_of(played: Played) -> Scenario:
    """What was done in a story, for the simulator."""
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
    """The stories of a chapter by name; they are played once, when somebody first asks.

    Raises:
        AssertionError: a story could not be told; everybody who asks hears of it.
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
