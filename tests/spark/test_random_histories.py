"""Random histories with a known truth: simulated groups, and what the pipeline reads of them.

Each group is played in the simulator, and the pipeline reads the records that its coordinator
writes. The groups are classic, or of KIP-848, or they change from one to the other. A seed that
fails is a group of its own: `check(spark, [seed])`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final

import pytest
from attrs import define, field, frozen

from coopgroup.pipeline.topic.consumer_groups import BROKER
from coopgroup.pipeline.views import VIEWS
from coopgroup.simulator.measures import find_outages
from coopgroup.simulator.scenario import (
    Choice,
    Client,
    Close,
    Cost,
    Crash,
    CreateTopic,
    DeleteTopic,
    Event,
    Group,
    How,
    MemberSet,
    Scenario,
    Span,
    Topic,
)
from coopgroup.simulator.scenario.times import lifetimes
from coopgroup.telemetry import read_ledger
from tests.spark.simulated import Played, history_of_groups, play
from tests.support.written_log import Known, Log, client_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_MS, BETWEEN_MS = 60_000, 150_000
SESSION_MS, BROKER_SESSION_MS = 10_000, 45_000  # a group of KIP-848 has Kafka's default
JOIN_MS = 15_000
CLOSING_MS = 100  # a member that closes commits first
DELETED_MS = 10_000  # within this time, the coordinator has deleted the offsets of a topic
RATE_PER_S = 20.0
ROLLING_MS, SURGE_MS = 30_000, 4_000
TOPIC, AGAIN, LATER = "orders", "orders~2", "bills"
SAMPLE = 10  # of each ten samples of the simulation, one is a moment of `lag`
POLICIES: Final = (
    Choice(name="simple"),
    Choice(name="deferred", options={"scheduled_rebalance_timeout_ms": 30_000}),
    Choice(name="eager"),
)


CLIENTS: Final = (Client.COOPGROUP, Client.KIP_848)


@define
class Plan:
    """A random story: what happens to a group, and who was away since when, and for how long."""

    dice: random.Random
    client: Client
    at_ms: int = FIRST_MS
    sets: list[MemberSet] = field(factory=list)
    events: list[Event] = field(factory=list)
    alive: list[str] = field(factory=list)
    away: list[tuple[str, int, int | None]] = field(factory=list)

    def start(self, name: str, at_ms: int = 0) -> None:
        topics = (TOPIC, AGAIN, LATER)
        self.sets.append(MemberSet(name=name, topics=topics, client=self.client, start_ms=at_ms))
        self.alive.append(name)

    def stop(self, name: str, back_ms: int | None, how: How = How.CLOSE) -> None:
        kind = Close if how is How.CLOSE else Crash
        self.events.append(kind(at_ms=self.at_ms, member=name, back_after_ms=back_ms))
        self.away.append((name, self.at_ms, back_ms))
        if back_ms is None:
            self.alive.remove(name)

    def one_goes(self) -> None:
        back_ms = self.dice.choice([None, 2_000, 8_000, 20_000, 60_000])
        if back_ms is not None or len(self.alive) > 1:
            self.stop(self.dice.choice(self.alive), back_ms, self.dice.choice([*How]))

    def one_comes(self) -> None:
        self.start(f"new-{self.at_ms}", self.at_ms)

    def roll(self) -> None:
        for name in self.alive:
            self.stop(name, self.dice.choice([1_000, 10_000]))
            self.at_ms += ROLLING_MS

    def change(self) -> None:
        """Upgrade to KIP-848 or back: new members come before or after the old ones go."""
        (self.client,) = {*CLIENTS} - {self.client}
        after_ms = self.dice.choice([-SURGE_MS, SURGE_MS])
        for number, name in enumerate(tuple(self.alive)):
            self.start(f"{self.client.value}-{number + 1}", self.at_ms + after_ms)
            self.stop(name, None)
            self.at_ms += ROLLING_MS

    def make_topic_again(self, partitions: int) -> None:
        self.events.append(DeleteTopic(at_ms=self.at_ms, topic=TOPIC))
        self.at_ms += self.dice.choice([500, 20_000, 70_000])
        self.make_topic(AGAIN, partitions)

    def make_topic(self, name: str, partitions: int) -> None:
        self.events.append(CreateTopic(at_ms=self.at_ms, topic=topic(name, partitions)))


def topic(name: str, partitions: int) -> Topic:
    return Topic(name=name, partitions=partitions, rate_per_s=(RATE_PER_S,) * partitions)


@frozen(kw_only=True)
class Story:
    """A played story."""

    plan: Plan
    played: Played

    @property
    def log(self) -> Log:
        return self.played.log

    @property
    def known(self) -> list[Known]:
        """What the coordinator knew; the records of one ms are one state."""
        states: list[Known] = []
        for one in self.log.known:
            is_same = bool(states) and states[-1].protocol == one.protocol == BROKER
            if is_same and states[-1].at_ms == one.at_ms:
                states.pop()
            states.append(one)
        return states


def tell(seed: int) -> Story:
    dice = random.Random(seed)
    changes = dice.random() < 0.5
    plan = Plan(dice=dice, client=dice.choice(CLIENTS))
    is_classic = not changes and plan.client is Client.COOPGROUP
    members = dice.randint(2, 5)
    partitions = members * dice.randint(1, 3)
    for number in range(members):
        plan.start(f"m-{number + 1}")
    deeds = [
        dice.choice([plan.one_goes, plan.one_goes, plan.one_comes, plan.roll])
        for _ in range(dice.randint(1, 3))
    ]
    if dice.random() < 0.3:
        deeds.append(partial(plan.make_topic_again, partitions))
    if dice.random() < 0.2:
        deeds.append(partial(plan.make_topic, LATER, partitions))
    if changes:
        deeds.append(plan.change)
    dice.shuffle(deeds)
    for deed in deeds:
        deed()
        plan.at_ms += BETWEEN_MS + dice.randrange(10_000)
    restore_ms = dice.choice([0, 500, 5_000])
    scenario = Scenario(
        duration_ms=plan.at_ms,
        settle_ms=60_000,
        group=Group(
            # Eager members of a group of KIP-848 stop each second to ask for their partitions.
            policy=dice.choice(POLICIES if is_classic else POLICIES[:-1]),
            session_timeout_ms=SESSION_MS if is_classic else BROKER_SESSION_MS,
            rebalance_timeout_ms=60_000,
        ),
        topics=(topic(TOPIC, partitions),),
        members=tuple(plan.sets),
        costs=(Cost(restore_ms=Span(restore_ms, restore_ms)),),
        events=tuple(plan.events),
    )
    name = f"seed-{seed}"
    pattern = rf"{name}\.(orders|bills)" if dice.random() < 0.4 else None
    log = Log(group=name, pattern=pattern, has_topics=dice.random() < 0.3)
    return Story(plan=plan, played=play(scenario, log, seed=seed))


# --- the truth ------------------------------------------------------------------------------------


def ends_of(story: Story) -> Iterator[dict[str, Any]]:
    """Yield the table `ends`: the ends of all partitions at some moments."""
    run, log = story.played.run, story.log
    begun = {one.name: (0, one) for one in run.scenario.topics}
    ended: dict[str, int] = {}
    for event in run.scenario.events:
        if isinstance(event, CreateTopic):
            begun[event.topic.name] = (event.at_ms, event.topic)
        if isinstance(event, DeleteTopic):
            ended[event.topic] = event.at_ms
    for at_ms in run.lag.times_ms[::SAMPLE].tolist():
        for name, (begin_ms, made) in begun.items():
            # The coordinator deletes the offsets of a topic a little later than the topic.
            quiet_ms = DELETED_MS if name == AGAIN else 0
            if not begin_ms + quiet_ms <= at_ms < ended.get(name, at_ms + 1):
                continue
            for partition in range(made.partitions):
                yield {
                    "topic": log.topic(name),
                    "partition": partition,
                    "at_ms": at_ms,
                    "begin": 0,
                    "end": int((at_ms - begin_ms) * RATE_PER_S / 1_000 + 1e-6),
                    "is_present": True,
                    "topic_id": log.topic_id_text(name),
                }


def true_lag(story: Story) -> dict[tuple[Any, ...], tuple[int | None, int]]:
    """Return the committed offset and the lag by topic, partition and moment."""
    found = {}
    for end in ends_of(story):
        place, at_ms = (end["topic"], end["partition"]), end["at_ms"]
        commits = [one for one in story.log.commits if one[0] <= at_ms and one[1] == place]
        committed = commits[-1][2] if commits else None
        state = state_at(story.known, at_ms)
        is_read = any(end["topic"] in topics for topics in state.topics.values()) if state else 0
        if committed is not None or is_read:
            found[(*place, at_ms)] = (committed, max(0, end["end"] - (committed or 0)))
    return found


def state_at(states: Iterable[Known], at_ms: int) -> Known | None:
    return next((one for one in reversed([*states]) if one.at_ms <= at_ms), None)


def true_owners(states: list[Known]) -> list[tuple[Any, ...]]:
    """Return who owned each partition, from when until when."""
    found: list[tuple[Any, ...]] = []
    open_: dict[tuple[tuple[str, int], str], int] = {}
    for state in states:
        held = {(one, member) for member, some in state.owned.items() for one in some}
        gone = sorted(open_.keys() - held)
        found += [(*key[0], key[1], open_.pop(key), state.at_ms) for key in gone]
        open_ = dict.fromkeys(sorted(held), state.at_ms) | open_
    return sorted(found + [(*key[0], key[1], since, None) for key, since in open_.items()], key=str)


def true_moves(states: list[Known]) -> list[tuple[int, tuple[str, int]]]:
    """Return the time and the partition of each move to another process."""
    shared = {
        client
        for one in states
        for client in map(client_of, one.owned)
        if [*map(client_of, one.owned)].count(client) > 1
    }
    last: dict[tuple[str, int], str] = {}
    found = []
    for state in states:
        for member, owned in state.owned.items():
            client = client_of(member)
            process = member if client in shared else client
            for one in owned:
                if last.setdefault(one, process) != process:
                    found.append((state.at_ms, one))
                last[one] = process
    return found


def true_rounds(story: Story, since_ms: int) -> int:
    """Return how often the generation grew; a group that is made again begins anew."""
    steps = pairwise([(0, 0), *story.log.generations])
    return sum(
        new - (old if new > old else 0) for (_, old), (at_ms, new) in steps if at_ms > since_ms
    )


def true_triggers(before: Known, after: Known) -> tuple[str, ...]:
    """Return the triggers of a rebalance without static members."""
    came, went = after.owned.keys() - before.owned, before.owned.keys() - after.owned
    if not after.owned or not before.owned:
        return ("created" if after.owned else "emptied",)
    if came or went:
        return ("exchange" if came and went else "join" if came else "leave",)
    return ("subscription",) if before.topics != after.topics else ("rejoin",)


def true_outage_s(story: Story) -> float:
    """Return how long partitions had no owner; before its first owner, a partition needs none."""
    run = story.played.run
    ledger = read_ledger(run.telemetry, until_ms=run.scenario.end_ms)
    lives = lifetimes(run.scenario)
    spans = find_outages(ledger, lives, run.begin_ms, run.scenario.end_ms)
    is_outage = spans.start_ms > lives.begin_ms[spans.resource]
    return float((spans.end_ms - spans.start_ms)[is_outage].sum()) / 1_000


# --- the comparison -------------------------------------------------------------------------------

Tables = Mapping[str, list[Any]]


def differences(story: Story, found: Tables) -> Iterator[str]:
    """Yield what the tables say wrongly about a group."""
    if story.played.run.violations:
        yield f"violations: {story.played.run.violations}"
    yield from different_states(story, found)
    yield from different_rebalances(story, found)
    yield from different_absences(story, found["absences"])
    yield from different_lag(story, found)


def different_states(story: Story, found: Tables) -> Iterator[str]:
    owned: dict[int, dict[str, set[tuple[str, int]]]] = defaultdict(dict)
    topics: dict[int, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for row in found["members"]:
        owned[row.source_offset][row.member_id] = set()
        topics[row.source_offset][row.member_id] = tuple(row.topics)
    for row in found["assignments"]:
        owned[row.source_offset][row.member_id].add((row.topic, row.partition))
    states = [
        Known(
            at_ms=row.at_ms,
            generation=row.generation,
            protocol=row.protocol,
            owned={name: frozenset(some) for name, some in owned[row.source_offset].items()},
            topics=topics[row.source_offset],
        )
        for row in sorted(found["generations"], key=lambda row: row.source_offset)
        if not row.is_tombstone
    ]
    if states != story.known:
        pairs = zip_longest(states, story.known)
        yield f"states: {next(one for one in pairs if one[0] != one[1])}"
    columns = ("topic", "partition", "member_id", "since", "until")
    owners = [tuple(getattr(row, name) for name in columns) for row in found["owners"]]
    if sorted(owners, key=str) != true_owners(story.known):
        wrong = {*owners} ^ {*true_owners(story.known)}
        yield f"owners: {sorted(wrong, key=str)[:4]}"
    last = {
        (row.topic, row.partition): row.committed
        for row in sorted(found["commits"], key=lambda row: row.source_offset)
    }
    if last != {place: offset for _, place, offset in story.log.commits}:
        yield "commits"


def different_rebalances(story: Story, found: Tables) -> Iterator[str]:
    states, since_ms = story.known, story.played.run.begin_ms
    rebalances = [one for one in found["rebalances"] if one.end_ms > since_ms]
    rounds = sum(one.rounds + one.missing for one in rebalances)
    if rounds != true_rounds(story, since_ms):
        yield f"rounds: {rounds}, truly {true_rounds(story, since_ms)}"
    moves = true_moves(states)
    for one in found["rebalances"]:
        places = [place for at_ms, place in moves if one.begin_ms <= at_ms <= one.end_ms]
        twice = {place for place in places if places.count(place) > 1}
        if (one.moved, one.moved_twice) != (len({*places}), len(twice)):
            yield f"moves at {one.end_ms}: {one.moved}, {one.moved_twice}, truly {places}"
        after = state_at(states, one.end_ms)
        assert after is not None
        counts = len(after.owned), len(frozenset().union(*after.owned.values()))
        if (one.members_after, one.partitions) != counts:
            yield f"at {one.end_ms}: {one.members_after}, {one.partitions}, truly {counts}"
        before = state_at(states, one.begin_ms - 1) or Known(at_ms=0, generation=0)
        first = state_at(states, one.begin_ms)
        assert first is not None
        if one.trigger not in true_triggers(before, first):
            yield f"at {one.begin_ms}: {one.trigger}, truly {true_triggers(before, first)}"
    unavailable_s = sum(one.unavailable_partition_s or 0 for one in rebalances)
    error_s = sum(one.unavailable_error_s or 0 for one in rebalances)
    # No commit shows how long a partition of a new topic waited for its owner.
    made_ms = [one.at_ms for one in story.plan.events if isinstance(one, CreateTopic)]
    unobserved = sum(
        one.unobserved
        for one in rebalances
        if not any(0 <= one.end_ms - at_ms <= JOIN_MS for at_ms in made_ms)
    )
    true_s = true_outage_s(story)
    if abs(unavailable_s - true_s) > error_s and not unobserved:
        yield f"outages: {unavailable_s} ± {error_s}, truly {true_s}"


def different_absences(story: Story, found: list[Any]) -> Iterator[str]:
    absences = sorted(found, key=lambda one: one.gone_latest_ms)
    if len(absences) != len(story.plan.away):
        yield f"absences: {len(absences)}, truly {len(story.plan.away)}"
        return
    for one, (name, at_ms, back_ms) in zip(absences, story.plan.away, strict=True):
        if one.client_id != name:
            yield f"at {at_ms} {one.client_id} left, truly {name}"
        if not one.gone_earliest_ms - CLOSING_MS <= at_ms <= one.gone_latest_ms:
            yield f"{name} left at {one.gone_earliest_ms} to {one.gone_latest_ms}, truly {at_ms}"
        if back_ms is None and one.returned_as != "never":
            yield f"{name} came back, which is not true"
        returned_ms = one.returned_ms
        if returned_ms is not None and back_ms is not None:
            late_ms = returned_ms - at_ms - back_ms
            if not 0 <= late_ms <= JOIN_MS:
                yield f"{name} came back {late_ms} ms late"


def different_lag(story: Story, found: Tables) -> Iterator[str]:
    truth = true_lag(story)
    lag = {(row.topic, row.partition, row.at_ms): (row.committed, row.lag) for row in found["lag"]}
    if lag != truth:
        wrong = sorted({*lag.items()} ^ {*truth.items()}, key=str)
        yield f"lag: {len(wrong)} such as {wrong[:3]}"
    simulated = story.played.run.lag
    times_ms = simulated.times_ms.tolist()
    made_again = [
        one.at_ms
        for one in story.plan.events
        if isinstance(one, CreateTopic) and one.topic.name == AGAIN
    ]
    totals: dict[int, int] = defaultdict(int)
    for (_, _, at_ms), (_, waiting) in truth.items():
        totals[at_ms] += waiting
    for at_ms, total in totals.items():
        is_quiet = any(0 <= at_ms - made_ms < DELETED_MS for made_ms in made_again)
        if not is_quiet and total != simulated.lags[times_ms.index(at_ms)].sum():
            yield f"lag of the truth at {at_ms}: {total}"
    for row in found["skew"]:
        state = state_at(story.known, row.at_ms)
        assert state is not None
        of_members = [
            sum(truth[(*place, row.at_ms)][1] for place in owned if (*place, row.at_ms) in truth)
            for owned in state.owned.values()
        ]
        expected = (state.generation, len(of_members), sum(of_members), max(of_members))
        if (row.generation, row.members, row.lag_total, row.lag_max) != expected:
            yield f"skew at {row.at_ms}: {row}, truly {expected}"


OF_HISTORY: Final = ("commits", "generations", "members", "assignments", "lag")
OF_EPISODES: Final = ("rebalances", "absences", "skew")


def check(spark: SparkSession, seeds: Iterable[int]) -> None:
    stories = [tell(seed) for seed in seeds]
    ends = [end for story in stories for end in ends_of(story)]
    tables = history_of_groups(spark, [one.played for one in stories], ends=ends)
    rows = {name: rows_of(tables[name]) for name in (*OF_HISTORY, *OF_EPISODES)}
    for name in ("generations", "members", "assignments"):
        tables[name].createOrReplaceTempView(name)
    times = ("unix_millis(since) AS since", "unix_millis(until) AS until")
    columns = ("`group`", "topic", "partition", "member_id", *times)
    rows["owners"] = rows_of(spark.sql(VIEWS["owners"]).selectExpr(*columns))
    wrong = {}
    for story in stories:
        own = {kind: some[story.log.group] for kind, some in rows.items()}
        if said := [*differences(story, own)]:
            wrong[story.log.group] = said
    assert wrong == {}, "\n".join(f"{name}: {said}" for name, said in wrong.items())


def rows_of(frame: DataFrame) -> dict[str, list[Any]]:
    """Return the rows of each group."""
    found = defaultdict(list)
    for row in frame.collect():
        found[row.group].append(row)
    return found


def test_tables_agree_with_the_truth_in_random_histories(spark: SparkSession) -> None:
    check(spark, range(20))


@pytest.mark.verify
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(1_000, 1_500, 50))
def test_tables_agree_with_the_truth_in_many_random_histories(
    first: int, spark: SparkSession
) -> None:
    check(spark, range(first, first + 50))
