"""Checkers of a chaos run: pure functions from records and commits to violations.

No checker asks a consumer for its assignment. The input is evidence only:

- `HandOut`: records that `poll` returned to an application.
- `Commit`: commits that the broker acknowledged to a member.
- offsets of records that the broker acknowledged to the producer.
- `Written`: every commit in `__consumer_offsets`, in the order of the broker's log.

A spell is one ownership of a partition by one process: from one `on_assign` to the next. A process
is one life of a member; a restarted member is another process. Moments are nanoseconds of
CLOCK_MONOTONIC, which all processes of a machine share.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from attrs import evolve, frozen

Partition: TypeAlias = tuple[str, int]

EXAMPLES_MAX = 5


@frozen(kw_only=True)
class HandOut:
    """A record that `poll` returned to an application; its call took from `began_ns` to `at_ns`.

    `spell` is how often this process had been assigned the partition.
    """

    process: str
    partition: Partition
    offset: int
    spell: int
    began_ns: int
    at_ns: int


@frozen(kw_only=True)
class Commit:
    """A committed offset that the broker acknowledged to a process, and the time of the answer."""

    process: str
    partition: Partition
    offset: int
    at_ns: int


@frozen(kw_only=True)
class Freeze:
    """A process was stopped by SIGSTOP from `begin_ns` to `end_ns`."""

    process: str
    begin_ns: int
    end_ns: int


@frozen(kw_only=True)
class Written:
    """A record of `__consumer_offsets`; `offset` None is a tombstone, which forgets the offset."""

    partition: Partition
    offset: int | None


@frozen(kw_only=True)
class Spell:
    """The records that a process got in one ownership of one partition."""

    process: str
    partition: Partition
    first_ns: int
    last_ns: int
    offsets: tuple[int, ...]


@frozen(kw_only=True, order=True)
class Violation:
    """A broken promise: a short name of its kind, and the evidence."""

    kind: str
    text: str


def moment_before_freeze(hand_outs: Iterable[HandOut], freezes: Iterable[Freeze]) -> list[HandOut]:
    """Correct the time of the one record that a process got just before it was frozen.

    A process can be stopped after `poll` returned and before it read the clock. The record then has
    a moment after the freeze, although it was handed out before. No client can prevent that. At
    most one record in each freeze gets an earlier time: the first one, and only if its call of
    `poll` began before the freeze. All later records are stale if the lease was over.
    """
    by_process: dict[str, list[HandOut]] = defaultdict(list)
    for one in hand_outs:
        by_process[one.process].append(one)
    for freeze in freezes:
        mine = by_process[freeze.process]
        for index, one in enumerate(mine):
            if one.began_ns <= freeze.begin_ns and one.at_ns >= freeze.end_ns:
                mine[index] = evolve(one, at_ns=freeze.begin_ns)
                break
    return [one for mine in by_process.values() for one in mine]


def spells(hand_outs: Iterable[HandOut]) -> list[Spell]:
    """Return the spells that handed out records, by partition and first moment."""
    groups: dict[tuple[Partition, str, int], list[HandOut]] = defaultdict(list)
    for one in hand_outs:
        groups[one.partition, one.process, one.spell].append(one)
    found = [
        Spell(
            process=process,
            partition=partition,
            first_ns=min(one.at_ns for one in ones),
            last_ns=max(one.at_ns for one in ones),
            offsets=tuple(one.offset for one in ones),
        )
        for (partition, process, _), ones in groups.items()
    ]
    return sorted(found, key=lambda one: (one.partition, one.first_ns, one.process))


def promised(
    acknowledged: Mapping[Partition, Collection[int]], written: Iterable[Written]
) -> dict[Partition, list[int]]:
    """Return the records from the first commit of their partition on.

    Under "latest", a partition without a commit begins at its end. A member that dies before the
    first commit may leave out records of before. Each partition has a commit in the end, or
    `undrained` finds it.
    """
    first: dict[Partition, int] = {}
    for commit in written:
        if commit.offset is not None:
            first.setdefault(commit.partition, commit.offset)
    return {
        partition: [one for one in offsets if one >= first[partition]]
        for partition, offsets in acknowledged.items()
        if partition in first
    }


def lost(
    acknowledged: Mapping[Partition, Collection[int]], hand_outs: Iterable[HandOut]
) -> list[Violation]:
    """Find acknowledged records that no process ever got."""
    seen: dict[Partition, set[int]] = defaultdict(set)
    for one in hand_outs:
        seen[one.partition].add(one.offset)
    return [
        _found("lost", partition, f"{len(missing)} were never handed out: {_some(missing)}")
        for partition, offsets in sorted(acknowledged.items())
        if (missing := sorted(set(offsets) - seen[partition]))
    ]


def skipped(hand_outs: Iterable[HandOut], written: Iterable[Written]) -> list[Violation]:
    """Find spells that left records out.

    A spell begins at a committed offset, below one, or at 0. Within a spell offsets grow by one:
    the topics of a run have neither transactions nor compaction.
    """
    highest: dict[Partition, int] = defaultdict(int)
    for commit in written:
        highest[commit.partition] = max(highest[commit.partition], commit.offset or 0)
    found = []
    for spell in spells(hand_outs):
        first, most = spell.offsets[0], highest[spell.partition]
        if first > most:
            text = f"{spell.process} began at {first}, the highest commit is {most}"
            found.append(_found("skipped", spell.partition, text))
        found += [
            _found("skipped", spell.partition, f"{spell.process} got {after} after {before}")
            for before, after in pairwise(spell.offsets)
            if after != before + 1
        ]
    return found


def two_owners(hand_outs: Iterable[HandOut]) -> list[Violation]:
    """Find pairs of spells of one partition, in two processes, that overlap in time."""
    found = []
    ordered = spells(hand_outs)
    for index, spell in enumerate(ordered):
        for later in ordered[index + 1 :]:
            if later.partition != spell.partition:
                break
            overlap_ns = min(spell.last_ns, later.last_ns) - later.first_ns
            if later.process != spell.process and overlap_ns >= 0:
                text = f"{spell.process} and {later.process} for {overlap_ns / 1e6:.1f} ms"
                text += f" from {later.first_ns}"
                found.append(_found("two owners", spell.partition, text))
    return found


def handed_out_after_commit(
    hand_outs: Iterable[HandOut], commits: Iterable[Commit]
) -> list[Violation]:
    moments: dict[Partition, list[tuple[int, int, Commit | HandOut]]] = defaultdict(list)
    for commit in commits:
        moments[commit.partition].append((commit.at_ns, 0, commit))
    for one in hand_outs:
        moments[one.partition].append((one.at_ns, 1, one))
    found = []
    for partition, mine in sorted(moments.items()):
        highest, by = 0, ""
        again: dict[tuple[str, str], list[int]] = defaultdict(list)
        for _, _, event in sorted(mine, key=lambda entry: entry[:2]):
            if isinstance(event, Commit):
                if event.offset > highest:
                    highest, by = event.offset, event.process
            elif event.offset < highest:
                again[event.process, by].append(event.offset)
        for (process, by), offsets in sorted(again.items()):
            text = f"{process} got {_some(offsets)} after {by} had committed beyond"
            found.append(_found("again after commit", partition, text))
    return found


def went_back(written: Iterable[Written]) -> list[Violation]:
    """Find committed offsets below the one before, in the order of the broker's log."""
    last: dict[Partition, int] = {}
    found = []
    for one in written:
        before = last.get(one.partition, 0)
        if one.offset is not None and one.offset < before:
            text = f"from {before} to {one.offset}"
            found.append(_found("commit went back", one.partition, text))
        last[one.partition] = one.offset or 0  # a tombstone forgets the offset
    return found


def unrest(
    hand_outs: Iterable[HandOut],
    partitions: Collection[Partition],
    processes: Collection[str],
    difference_max: int,
) -> list[Violation]:
    """Find partitions without exactly one owner, then uneven shares, in a group at rest.

    Each partition had new records in that time, and the processes should share them.
    """
    owners: dict[Partition, set[str]] = defaultdict(set)
    for one in hand_outs:
        owners[one.partition].add(one.process)
    found = [
        _found(
            "unrest",
            partition,
            f"handed out by {', '.join(sorted(owners[partition])) or 'no process'}",
        )
        for partition in sorted(partitions)
        if len(owners[partition]) != 1
    ]
    if found:
        return found
    counts = Counter(dict.fromkeys(processes, 0))
    for partition in partitions:
        counts[next(iter(owners[partition]))] += 1
    if max(counts.values()) - min(counts.values()) > difference_max:
        shares = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        return [Violation(kind="unrest", text=f"shares are uneven: {shares}")]
    return []


def restless(rounds_ms: Iterable[int], begin_ms: int, end_ms: int, most: int) -> list[Violation]:
    """Find rounds that go on in a group at rest; a policy may have announced some before."""
    count = sum(begin_ms <= one < end_ms for one in rounds_ms)
    if count <= most:
        return []
    text = f"{count} rounds in {end_ms - begin_ms} ms after the group was at rest"
    return [Violation(kind="rounds without end", text=text)]


def undrained(ends: Mapping[Partition, int], written: Iterable[Written]) -> list[Violation]:
    """Find partitions whose last commit is not the log end offset."""
    last = {one.partition: one.offset or 0 for one in written}
    return [
        _found("undrained", one, f"committed {last.get(one, 0)}, log end {end}")
        for one, end in sorted(ends.items())
        if last.get(one, 0) != end
    ]


def repeated(hand_outs: Sequence[HandOut]) -> int:
    """Return how many records were handed out again; at-least-once delivery allows that."""
    return len(hand_outs) - len({(one.partition, one.offset) for one in hand_outs})


def _found(kind: str, partition: Partition, text: str) -> Violation:
    return Violation(kind=kind, text=f"{partition[0]}-{partition[1]}: {text}")


def _some(offsets: Sequence[int]) -> str:
    text = ", ".join(map(str, offsets[:EXAMPLES_MAX]))
    return text if len(offsets) <= EXAMPLES_MAX else f"{text}, … {offsets[-1]}"
