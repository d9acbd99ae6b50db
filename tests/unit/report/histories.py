"""Hand-made histories of a group: members start, restart and share partitions."""

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.telemetry import (
    EndCause,
    Envelope,
    FaultInjected,
    ProcessEnded,
    ProcessStarted,
    Record,
    ResourcesStarted,
    ResourcesStopped,
    RoundDecided,
    StopReason,
    WarmupsChanged,
)


class Story:
    """Write the records of a group, one call per event."""

    def __init__(self, group: str = "billing") -> None:
        self.group = group
        self.generation = 0
        self.envelopes: list[Envelope] = []

    def write(self, at_ms: int, client: str, record: Record) -> None:
        self.envelopes.append(
            Envelope(
                at_ms=at_ms,
                group=self.group,
                member=f"{client}-id" if client else "",
                generation=self.generation,
                record=record,
                client=client,
            )
        )

    def start(self, at_ms: int, client: str) -> None:
        self.write(at_ms, client, ProcessStarted())

    def crash(self, at_ms: int, client: str) -> None:
        """Write that a process is killed and that its host reports this."""
        self.write(at_ms, client, FaultInjected(description=f"{client} is killed"))
        self.write(at_ms, client, ProcessEnded(cause=EndCause.CRASHED))

    def work(self, at_ms: int, client: str, resources: ResourceSet) -> None:
        self.write(at_ms, client, ResourcesStarted(resources=resources))

    def stop(self, at_ms: int, client: str, resources: ResourceSet) -> None:
        self.write(at_ms, client, ResourcesStopped(resources=resources, reason=StopReason.REVOKED))

    def lead(self, at_ms: int, members: list[str], **decided: object) -> None:
        self.generation += 1
        ids = tuple(sorted(f"{member}-id" for member in members))
        given = {"policy": "deferred", "assignor": "sticky", **decided}
        self.write(at_ms, members[0], RoundDecided(members=ids, **given))  # type: ignore[arg-type]


def scale_up_with_warmups(partitions: int) -> list[Envelope]:
    """Add a second member, which warms up every second partition before it moves."""
    story = Story()
    everything = ResourceSet({"orders": range(partitions)})
    moved = share(partitions, 2, 1)
    story.start(0, "c-1")
    story.lead(1_000, ["c-1"], granted=everything, created=everything)
    story.work(1_050, "c-1", everything)
    story.start(10_000, "c-2")
    story.lead(10_100, ["c-1", "c-2"], waiting=moved)
    story.write(10_200, "c-2", WarmupsChanged(begun=everything))
    story.write(15_000, "c-2", WarmupsChanged(cancelled=everything - moved))
    story.write(20_000, "c-2", WarmupsChanged(warm=moved))
    story.lead(21_000, ["c-1", "c-2"], revoked=moved, waiting=moved, follow_up=True)
    story.stop(21_100, "c-1", moved)
    story.lead(21_200, ["c-1", "c-2"], granted=moved)
    story.write(21_300, "c-2", WarmupsChanged(moved=moved))
    story.work(21_350, "c-2", moved)
    story.lead(40_000, ["c-1", "c-2"])
    return story.envelopes


def share(partitions: int, members: int, number: int) -> ResourceSet:
    """Return every M-th partition of `orders`, starting at the number of the member."""
    return ResourceSet({"orders": range(number, partitions, members)})


def rolling_bounce(partitions: int, members: int, *, jitter_ms: int = 0) -> list[Envelope]:
    """Restart each member in turn, then add one member.

    Args:
        partitions: number of partitions of the topic `orders`.
        members: number of members at the beginning.
        jitter_ms: delay between the starts of two neighbouring partitions.
    """
    story = Story()
    names = [f"c-{number}" for number in range(1, members + 1)]
    everything = ResourceSet({"orders": range(partitions)})
    for name in names:
        story.start(0, name)
    story.lead(3_000, names, granted=everything, created=everything)
    for number, name in enumerate(names):
        _work_one_by_one(story, 3_040, name, share(partitions, members, number), jitter_ms)
    for number, name in enumerate(names):
        at_ms = 10_000 + number * 8_000
        own = share(partitions, members, number)
        others = names[:number] + names[number + 1 :]
        story.crash(at_ms, name)
        story.lead(at_ms + 2_000, others, lost=own, rejoin_in_ms=10_000)
        story.start(at_ms + 2_500, name)
        story.lead(at_ms + 3_000, names, granted=own)
        _work_one_by_one(story, at_ms + 3_030, name, own, jitter_ms)
    _scale_up(story, 10_000 + members * 8_000, names, partitions)
    return sorted(story.envelopes, key=lambda envelope: envelope.at_ms)


def _work_one_by_one(story: Story, at_ms: int, name: str, own: ResourceSet, jitter_ms: int) -> None:
    if not jitter_ms:
        story.work(at_ms, name, own)
        return
    for place, index in enumerate(own.indices("orders").tolist()):
        story.work(at_ms + place * jitter_ms, name, ResourceSet({"orders": [index]}))


def _scale_up(story: Story, at_ms: int, names: list[str], partitions: int) -> None:
    newcomer = f"c-{len(names) + 1}"
    first = share(partitions, len(names), 0)
    moved = ResourceSet({"orders": first.indices("orders")[::2].tolist()})
    story.start(at_ms, newcomer)
    story.lead(at_ms + 100, [*names, newcomer], revoked=moved, waiting=moved, follow_up=True)
    story.stop(at_ms + 600, names[0], moved)
    story.lead(at_ms + 700, [*names, newcomer], granted=moved)
    story.work(at_ms + 750, newcomer, moved)
    story.lead(at_ms + 5_000, [*names, newcomer], granted=EMPTY)
