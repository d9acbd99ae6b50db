"""Explain the decision of each round in plain sentences.

The sentences state only facts in the records and draw no further conclusions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from attrs import evolve, frozen

from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.protocol import kafka_protocol
from coopgroup.report.palette import ranks
from coopgroup.report.wording import counted, listed, seconds
from coopgroup.telemetry import Envelope, ResourcesStarted, RoundDecided, RoundRefused, WithoutRoom

Names: TypeAlias = Mapping[str, str]

_MEMBERS_NAMED_MAX = 5


@frozen(kw_only=True)
class RoundRow:
    """A row of the table of rounds.

    Attributes:
        at_ms: time of the decision, on the clock of the records.
        held_back: number of free resources that wait for an owner or for a delay.
        waiting: number of resources that another member has not released yet.
        rejoin_in_ms: when all members rejoin even if nothing happens, in ms from the round; None
            for never.
    """

    at_ms: int
    generation: int
    leader: str
    method: str = ""
    members: int = 0
    granted: int = 0
    revoked: int = 0
    held_back: int = 0
    waiting: int = 0
    rejoin_in_ms: int | None = None
    sentences: tuple[str, ...] = ()
    refused: bool = False


def round_rows(
    envelopes: Iterable[Envelope], names: Names, known: ResourceSet = EMPTY
) -> tuple[RoundRow, ...]:
    """Return all rounds, in the order of the records.

    Args:
        envelopes: records of the group, by time.
        names: a name for each member id.
        known: resources that members worked on before these records.
    """
    rows, started = [], [known]
    before: frozenset[str] | None = None
    for envelope in envelopes:
        record = envelope.record
        leader = names.get(envelope.member, envelope.member)
        if isinstance(record, RoundDecided):
            if record.created or record.gone:  # a union for each start would take long
                known = ResourceSet.union_all(started)
                started = [known - record.gone]
            change = tuple(_change(before, record, names))
            rows.append(
                _led(
                    envelope,
                    record,
                    leader,
                    (*change, *_language(record), *_decisions(record, known)),
                )
            )
            before = frozenset(record.members)
        elif isinstance(record, WithoutRoom) and rows:  # follows the decision, once for each reason
            sentences = (*rows[-1].sentences, _no_room(record))
            rows[-1] = evolve(rows[-1], sentences=sentences)
        elif isinstance(record, ResourcesStarted):
            started.append(record.resources)
        elif isinstance(record, RoundRefused):
            rows.append(_refused(envelope, record, leader))
    return tuple(rows)


def _led(
    envelope: Envelope, record: RoundDecided, leader: str, reasons: tuple[str, ...]
) -> RoundRow:
    return RoundRow(
        at_ms=envelope.at_ms,
        generation=envelope.generation,
        leader=leader,
        method=f"{record.policy}, {record.assignor}",
        members=len(record.members),
        granted=len(record.granted),
        revoked=len(record.revoked),
        held_back=len(record.lost),
        waiting=len(record.waiting),
        rejoin_in_ms=record.rejoin_in_ms,
        sentences=(*reasons, *_outlook(record)),
    )


def _refused(envelope: Envelope, record: RoundRefused, leader: str) -> RoundRow:
    return RoundRow(
        at_ms=envelope.at_ms,
        generation=envelope.generation,
        leader=leader,
        sentences=("Refused, so nothing moved: " + "; ".join(record.violations) + ".",),
        refused=True,
    )


def _change(before: frozenset[str] | None, record: RoundDecided, names: Names) -> Iterator[str]:
    """Describe the members that joined and left since the last round."""
    members = frozenset(record.members)
    if before is None:
        yield f"First round seen, with {_people(members, names)}."
        return
    if came := members - before:
        yield f"New: {_people(came, names)}."
    if gone := before - members:
        yield f"Gone: {_people(gone, names)}."
    if came == gone:  # true only if both are empty
        yield "The same members as before."


def _no_room(record: WithoutRoom) -> str:
    have = "has" if len(record.resources) == 1 else "have"
    return f"{_of(record.resources)} {have} no room: {'; '.join(record.reasons)}."


def _language(record: RoundDecided) -> Iterator[str]:
    if kafka_protocol(record.protocol) is not None:
        yield f"The group spoke {record.protocol}, a protocol of Kafka's own clients."


def _decisions(record: RoundDecided, known: ResourceSet) -> Iterator[str]:
    free, created = record.granted - record.created, record.created - known
    if created:
        yield f"{_of(created)} {_were(created)} never owned before: granted at once."
    if forgotten := record.created & known:  # a new leader learns only of what members claim
        yield f"{_of(forgotten)} had an owner that this leader does not know: granted at once."
    if free:
        yield f"{_of(free)} {_were(free)} free: granted."
    if deleted := record.revoked & record.gone:
        yield (
            f"{_of(deleted)} no longer exist{_s(deleted)}, or no member subscribes to "
            f"{_them(deleted)}: {_their(deleted)} owner stops {_them(deleted)}."
        )
    if moved := record.revoked - record.gone:
        yield (
            f"{_of(moved)} leave{_s(moved)} {_their(moved)} owner by the target: "
            "the owner stops first."
        )
    if record.waiting - record.revoked:
        rest = record.waiting - record.revoked
        yield f"{_of(rest)} wait{_s(rest)} until another member has released {_them(rest)}."
    if record.lost:
        yield (
            f"{_of(record.lost)} {_were(record.lost)} lost with "
            f"{_their(record.lost)} owner and wait{_s(record.lost)} for it to come back."
        )
    if record.contested:
        yield (
            f"{_of(record.contested)} {_were(record.contested)} claimed twice in one generation: "
            "granted to nobody in this round."
        )
    if not any((record.granted, record.revoked, record.waiting, record.lost, record.contested)):
        yield "Every member keeps what it has."


def _outlook(record: RoundDecided) -> Iterator[str]:
    """Describe the next step and its reason."""
    if record.follow_up:
        yield "Another round follows as soon as they have stopped."
    if record.rejoin_in_ms is not None:
        yield f"At latest in {seconds(record.rejoin_in_ms)} {_purpose(record)}."


def _purpose(record: RoundDecided) -> str:
    if record.lost:
        return "what is still lost is given away"
    return "the next moves follow" if record.policy == "incremental" else "comes the next round"


def _of(resources: ResourceSet) -> str:
    return f"{len(resources):,} ({listed(resources)})"


def _were(resources: ResourceSet) -> str:
    return "was" if len(resources) == 1 else "were"


def _s(resources: ResourceSet) -> str:
    return "s" if len(resources) == 1 else ""


def _their(resources: ResourceSet) -> str:
    return "its" if len(resources) == 1 else "their"


def _them(resources: ResourceSet) -> str:
    return "it" if len(resources) == 1 else "them"


def _people(members: Iterable[str], names: Names) -> str:
    called = [names.get(member, member) for member in members]
    ranked = [name for _, name in sorted(zip(ranks(called), called, strict=True))]
    if len(ranked) <= _MEMBERS_NAMED_MAX:
        return ", ".join(ranked)
    shown = ", ".join(ranked[:_MEMBERS_NAMED_MAX])
    return f"{counted(len(ranked), 'member')} ({shown}, …)"
