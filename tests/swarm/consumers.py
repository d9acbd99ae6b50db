"""The swarm with members of KIP-848: runs of groups in which the broker assigns, and exact checks.

    run = draw_consumer(seed)
    played = play(run)          # of the module `play`, as any other run

A run has the faults and habits of a run of the classic protocol, translated: faults of JoinGroup,
SyncGroup and Heartbeat hit the heartbeat of KIP-848, and a process that dies at its sync is killed.
What has no meaning there is left out: unreadable and false claims, hand-overs, declined starts.
The broker has one of three assignment intervals, and may be older than KIP-1251.

In some runs members of both protocols share the group, or processes change their protocol one after
the other, in either direction: the group is converted while members come and go.

All general checkers apply: one owner, no needless loss, no lease beyond the coordinator's timers,
work committed before it is handed over, rest with all records committed. `Beats` adds exact ones.
"""

from __future__ import annotations

import ast
import random
import re
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field

from coopgroup.core.member import ErrorCode, GroupProtocol
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
)
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.simulator.coordinator.consumer_group import ConsumerGroup
from coopgroup.simulator.host.process import Process
from coopgroup.simulator.scenario import LEADER, Choice, Identity
from coopgroup.simulator.simulation import broker_settings
from coopgroup.telemetry import MembershipLost, StateChanged
from tests.swarm.returning import draw_returning
from tests.swarm.runs import LATE_MS, TOPICS, Act, ActKind, Faults, SwarmRun, draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coopgroup.core.member import MemberConfig
    from coopgroup.core.model.group_api import Answer
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import Violation, Watcher
    from coopgroup.simulator.world.calls import Call, Caller
    from coopgroup.telemetry import Envelope

CONSUMER: Final = "consumer"
"""Stands for members of KIP-848 in place of the protocols of other clients."""

_APART: Final = 70_000_000
_BEAT: Final = "ConsumerBeat"
_BEAT_CODES: Final = (-1, 14, 15, 16, 25, 110)
_COMMIT_CODES: Final = (14, 15, 16, 25, 113)
_OF_ROUNDS: Final = {"JoinGroup", "SyncGroup", "Heartbeat"}
_MEANINGLESS: Final = {ActKind.GARBLE, ActKind.FORGE, ActKind.HAND_OVER, ActKind.DECLINE}
_INTERVALS_MS: Final = (0, 0, 300, 1_000)
_SET: Final = re.compile(r"\{[^{}]*\}$")
_PARTITION: Final = re.compile(r"\w+-\d+")
_BEATS_MS: Final = 400  # two heartbeats
_BELL_PART: Final = 0.7
_CHURN_PART: Final = 0.4
_BOTH_PART: Final = 0.25
CLASSIC: Final = "classic"
"""The client of an act that starts a process with the classic protocol."""
_FENCES: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


def draw_consumer(seed: int) -> SwarmRun:
    """Draw a run whose members speak KIP-848."""
    chance = random.Random(f"swarm/consumer/{seed}")
    run = _draw_churn(seed, chance) if chance.random() < _CHURN_PART else _draw(seed, chance)
    if chance.random() < _BOTH_PART:
        run = attrs.evolve(run, acts=tuple(_of_both(chance, run.acts)))
    return run


def _of_both(chance: random.Random, acts: tuple[Act, ...]) -> Iterator[Act]:
    """Let processes of both protocols start, or let them change it in a rolling restart."""
    migrates, back = chance.random() < 0.5, chance.random() < 0.5
    started: list[Act] = []
    for act in acts:
        is_classic = (not back) if migrates else chance.random() < 0.5
        if act.kind is ActKind.START and is_classic:
            yield attrs.evolve(act, client=CLASSIC)
        else:
            yield act
        started += [act] if act.kind is ActKind.START else []
    for act in started if migrates else ():
        down_ms = chance.choice((30, 100, 300))
        kind = chance.choice((ActKind.CLOSE, ActKind.CLOSE, ActKind.CRASH))
        yield Act(after_ms=chance.choice((0, 100, 700)), kind=kind, process=act.process)
        yield attrs.evolve(act, after_ms=down_ms, client=CLASSIC if back else "")


def _draw(seed: int, chance: random.Random) -> SwarmRun:
    before = chance.choice((draw, draw, draw, draw_returning))(seed + _APART)
    faults = before.faults
    if chance.random() < _BELL_PART:
        faults = attrs.evolve(faults, **_bell(chance))
    return attrs.evolve(
        before,
        seed=seed,
        policy=Choice(name="simple"),
        assignor="sticky",
        faults=faults,
        acts=tuple(_translated(chance, before.acts)),
        theirs=CONSUMER,
    )


def _bell(chance: random.Random) -> dict[str, Any]:
    return {
        "bell_delay_ms_max": chance.choice((2, 2, 40, 400)),
        "bell_loss": chance.choice((0.0, 0.1, 0.5)),
        "bell_false_ms": chance.choice((0, 0, 20, 300)),
    }


def _draw_churn(seed: int, chance: random.Random) -> SwarmRun:
    """Draw a run whose targets change while members still stop partitions of earlier ones."""
    acts = [
        Act(kind=ActKind.RESIZE, topics=("T",), number=chance.randint(3, 6)),
        Act(kind=ActKind.RESIZE, topics=("U",), number=chance.randint(1, 3)),
    ]
    names: list[str] = []
    for number in range(1, chance.randint(8, 18)):
        gap_ms = chance.choice((0, 5, 30, 60, 100, 300))
        what = chance.random()
        if len(names) < 2 or (what < 0.35 and len(names) < 5):
            names.append(f"p{number}")
            identity = chance.choice((Identity.NONE, Identity.NONE, *Identity))
            start = Act(after_ms=gap_ms, kind=ActKind.START, process=names[-1], topics=TOPICS)
            acts.append(attrs.evolve(start, identity=identity))
        elif what < 0.85:
            kind = chance.choice((ActKind.CLOSE, ActKind.CRASH, ActKind.STALL, ActKind.SUBSCRIBE))
            act = Act(after_ms=gap_ms, kind=kind, process=chance.choice(names))
            if kind is ActKind.SUBSCRIBE:
                act = attrs.evolve(act, topics=chance.choice((("T",), ("U",), TOPICS)))
            acts.append(attrs.evolve(act, for_ms=chance.choice((1, 50, 200))))
        else:
            resize = Act(after_ms=gap_ms, kind=ActKind.RESIZE, topics=(chance.choice(TOPICS),))
            acts.append(attrs.evolve(resize, number=chance.randint(0, 6)))
    return SwarmRun(
        seed=seed,
        faults=Faults(
            delay_ms_max=chance.choice((2, 10, 40)),
            slow=chance.choice((0.3, 0.7)),
            slow_ms_max=chance.choice((100, 400)),
            no_metadata=chance.choice((0.0, 0.2)),
            commit_interval_ms=chance.choice((30, 250)),
            awaits_commits=chance.random() < 0.5,
            late_commit_ms=chance.choice((0, 100)),
            **(_bell(chance) if chance.random() < _BELL_PART else {}),
        ),
        acts=tuple(acts),
        healed_after_ms=chance.choice((0, 30, 300)),
        theirs=CONSUMER,
    )


def _translated(chance: random.Random, acts: tuple[Act, ...]) -> Iterator[Act]:
    names = [act.process for act in acts if act.kind is ActKind.START]
    for act in acts:
        if act.kind in _MEANINGLESS:
            continue
        changes: dict[str, Any] = {}
        if act.process == LEADER and names:
            changes["process"] = chance.choice(names)
        if act.kind is ActKind.CRASH_AT_SYNC:
            changes |= {"kind": ActKind.CRASH, "number": 0, "times": 1}
        if act.request in _OF_ROUNDS:
            for_ms = chance.choice(LATE_MS["Heartbeat"])
            number = chance.choice(_BEAT_CODES)
            changes |= {"request": _BEAT, "number": number, "for_ms": for_ms}
        elif act.request:
            changes["number"] = chance.choice(_COMMIT_CODES)
        yield attrs.evolve(act, **changes)


def is_of_kip848(run: SwarmRun) -> bool:
    """Return whether members of a run speak KIP-848."""
    return run.theirs.split(",")[0] == CONSUMER


def protocol_of(run: SwarmRun, act: Act) -> GroupProtocol:
    """Return the group protocol of a process that starts."""
    is_new = is_of_kip848(run) and act.client != CLASSIC
    return GroupProtocol.CONSUMER if is_new else GroupProtocol.CLASSIC


def has_leaders(run: SwarmRun) -> bool:
    """Return whether some members, and not all of them, take part in rounds."""
    return is_of_kip848(run) and any(act.client == CLASSIC for act in run.acts)


def knowable(
    run: SwarmRun,
    simulation: Simulation,
    vanished: ResourceSet,
    violations: tuple[Violation, ...],
) -> tuple[Violation, ...]:
    """Return the violations without those that no member of KIP-848 could prevent.

    The broker knows partitions by topic id, so the old owner of a topic made again hears of it
    later. And it may convert a group without knowing what its members own (`forgotten`). If it
    converts a group that is in a round because a member has gone, and a static member returns, it
    makes no new target: the partitions of the member that has gone have no owner until the group
    changes again (seen with Kafka 4.3.0).
    """
    if not is_of_kip848(run):
        return violations
    group = simulation.brokers.coordinator.group
    if has_leaders(run) and isinstance(group, ConsumerGroup):
        targets = ResourceSet.union_all([EMPTY, *group.target.values()])
        ownerless = group.topics.by_name(group.topics.existing() - targets)
        violations = tuple(one for one in violations if not _lacks_owners(one, ownerless))
    again = tuple(f"{name}-{index} is with " for name, index in vanished)
    forgotten = {f"{name}-{index}" for name, index in simulation.brokers.coordinator.forgotten}
    return tuple(
        one
        for one in violations
        if not (one.message.startswith(again) or forgotten & set(_PARTITION.findall(one.message)))
    )


def _lacks_owners(violation: Violation, ownerless: ResourceSet) -> bool:
    """Return whether resources are not worked on, or not committed, because they have no owner."""
    found = _SET.search(violation.message)
    if found is None or violation.checker not in {"commits", "rest"}:
        return False
    return ResourceSet(ast.literal_eval(found[0])) <= ownerless


def of_conversions(telemetry: Sequence[Envelope]) -> frozenset[tuple[str, int]]:
    """Return the losses that no classic member of a converted group can prevent.

    Each is a process and its time. When the last member of KIP-848 has left, the group goes on in
    another generation, and the group coordinator refuses the one before. This costs memberships in
    two cases:

    - A round waits for a process that ended without a leave as long as its session. A member that
      waits for this round proves nothing meanwhile, and its lease ends.
    - The member of KIP-848 was there between two heartbeats of a classic member, which did not
      hear that the broker assigned. It takes the refusal for a round without it.
    """
    waiting: set[str] = set()
    found: set[tuple[str, int]] = set()
    came_ms = -_BEATS_MS
    for one in telemetry:
        match one.record:
            case StateChanged(before="joining", after="stable" | "leaving"):
                came_ms = one.at_ms  # of KIP-848: it needs no SyncGroup
            case StateChanged(cause="the broker no longer assigns"):
                waiting.add(one.client)
            case StateChanged(after="syncing" | "leading"):
                waiting.discard(one.client)
            case MembershipLost(cause="lease expired") if one.client in waiting:
                found.add((one.client, one.at_ms))
            case MembershipLost(cause="Heartbeat answered ILLEGAL_GENERATION"):
                if one.at_ms <= came_ms + _BEATS_MS:
                    found.add((one.client, one.at_ms))
            case _:
                pass
    return frozenset(found)


def broker_of(run: SwarmRun, config: MemberConfig) -> GroupCoordinator:
    """Return the coordinator of a run, with the times of its members."""
    if not is_of_kip848(run):
        return GroupCoordinator(settings=broker_settings(config))
    chance = random.Random(f"swarm/consumer/{run.seed}/broker")
    settings = broker_settings(
        config,
        assignment_interval_ms=chance.choice(_INTERVALS_MS),
        takes_older_epochs=chance.random() < 0.7,
    )
    return GroupCoordinator(settings=settings)


@define(eq=False)
class Beats:
    """Checks each heartbeat of KIP-848 against the member that sends it.

    - One heartbeat of a member is on its way at a time.
    - A full heartbeat has what the member owns, by the ids of these topics. A short one is sent
      only if the coordinator has accepted a full one with the same content.
    - A member id that was fenced never joins again.
    - A process that joins under another id has left under the last one, unless the coordinator has
      forgotten it, or another process may have it.

    Attributes:
        simulation: the group.
        transcript: receives all events, too; None for no transcript.
        on_its_way: the heartbeat of each process that has no outcome.
        told: what each member id has told in its last full heartbeat that was accepted.
        fenced: member ids that the coordinator refused.
        forgotten: those that it does not know.
        left: member ids whose leave was sent.
    """

    simulation: Simulation
    transcript: Watcher | None = None
    on_its_way: dict[str, Call] = field(factory=dict)
    told: dict[str, tuple[tuple[str, ...], ResourceSet]] = field(factory=dict)
    fenced: set[str] = field(factory=set)
    forgotten: set[str] = field(factory=set)
    left: set[str] = field(factory=set)
    _ids: dict[str, tuple[Caller, str]] = field(factory=dict)

    def recorded(self, envelope: Envelope) -> None:
        """Handle a new telemetry record."""
        if self.transcript is not None:
            self.transcript.recorded(envelope)

    def sent(self, call: Call) -> None:
        """Handle a sent request."""
        if self.transcript is not None:
            self.transcript.sent(call)
        request = call.send.request
        if isinstance(request, ConsumerBeatRequest) and request.epoch < 0:
            self.left.add(request.member_id)
        elif isinstance(request, ConsumerBeatRequest):
            for message in (*self._of_joins(call, request), *self._of_content(call, request)):
                self.simulation.world.object_to("beats", f"{call.process.name} {message}")
            self.on_its_way[call.process.name] = call

    def _of_joins(self, call: Call, request: ConsumerBeatRequest) -> Iterator[str]:
        process, member_id = call.process, request.member_id
        earlier = self.on_its_way.get(process.name)
        if earlier is not None and earlier.process is process and not earlier.is_over:
            ids = {one.request_id for one in process.session.member.outstanding.values()}
            if earlier.send.request_id in ids:
                yield "sends a heartbeat while another is on its way"
        if request.epoch == 0 and member_id in self.fenced:
            yield f"joins under {member_id}, which was fenced"
        before, last_id = self._ids.get(process.name, (process, member_id))
        self._ids[process.name] = process, member_id
        is_shared = process.config.keeps_identity
        # A leave waits for the outcome of an earlier one.
        waiting = set(process.session.member.beat.left_behind)
        known = {member_id} | self.left | self.forgotten | waiting
        if before is process and not is_shared and last_id not in known:
            yield f"joins under {member_id}, and leaves {last_id} in the group"

    def _of_content(self, call: Call, request: ConsumerBeatRequest) -> Iterator[str]:
        # The effects of a step are carried out after it, so this is the member that sends.
        member = call.process.session.member
        content = (member.next_join.topics, member.owned)
        if request.owned is None:
            if self.told.get(request.member_id) != content:
                yield "sends a short heartbeat, and the coordinator does not know its content"
            return
        names = self.simulation.brokers.names
        told = {(names[topic_id], on) for topic_id, on in request.owned}
        owned = {(name, tuple(on.tolist())) for name, on in member.owned.items()}
        if told != owned or request.topics != content[0]:
            yield f"tells {told} of {request.topics}, and has {owned} of {content[0]}"

    def answered(self, call: Call, answer: Answer) -> None:
        """Handle an answer that has arrived; its process has not read it yet."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)
        request = call.send.request
        if isinstance(request, OffsetCommitRequest) and isinstance(answer, OffsetCommitAnswer):
            codes = {code for *_, code in answer.codes}
            self.forgotten |= {request.member_id} if ErrorCode.UNKNOWN_MEMBER_ID in codes else set()
        if not isinstance(request, ConsumerBeatRequest) or request.epoch < 0:
            return
        assert isinstance(answer, ConsumerBeatAnswer)
        if answer.error_code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}:
            self.forgotten.add(request.member_id)
        paused = isinstance(call.process, Process) and call.process.paused
        if answer.error_code in _FENCES and not paused:  # it may go on before it reads the answer
            self.fenced.add(request.member_id)
        if not answer.error_code and request.owned is not None:
            beat = call.process.session.member.beat.sending
            self.told[request.member_id] = (beat.topics, beat.owned)
        elif answer.error_code:
            self.told.pop(request.member_id, None)

    def failed(self, call: Call) -> None:
        """Handle a call without an answer."""
        if self.transcript is not None:
            self.transcript.failed(call)
        if not isinstance(call.send.request, ConsumerBeatRequest):
            return
        waiting = {one.request_id for one in call.process.session.member.outstanding.values()}
        # A heartbeat from before a loss says nothing of what the member told when it joined again.
        if call.send.request_id in waiting:
            self.told.pop(call.send.request.member_id, None)
