"""The swarm with members of KIP-848: runs of groups in which the broker assigns, and exact checks.

    run = draw_consumer(seed)
    played = play(run)          # of the module `play`, as any other run

A run has the faults and habits of a run of the classic protocol, translated: faults of JoinGroup,
SyncGroup and Heartbeat hit the heartbeat of KIP-848, and a process that dies at its sync is killed.
What has no meaning there is left out: unreadable and false claims, hand-overs, declined starts.
The broker has one of two assignment intervals, and may be older than KIP-1251.

All general checkers apply: one owner, no needless loss, no lease beyond the coordinator's timers,
work committed before it is handed over, rest with all records committed. `Beats` adds exact ones.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define, field

from coopgroup.core.member import ErrorCode, GroupProtocol
from coopgroup.core.model.group_api import ConsumerBeatAnswer, ConsumerBeatRequest
from coopgroup.simulator.coordinator import GroupCoordinator
from coopgroup.simulator.scenario import LEADER, Choice
from coopgroup.simulator.simulation import broker_settings
from tests.swarm.returning import draw_returning
from tests.swarm.runs import LATE_MS, Act, ActKind, SwarmRun, draw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.core.member import Member, MemberConfig
    from coopgroup.core.model import ResourceSet
    from coopgroup.core.model.group_api import Answer
    from coopgroup.simulator.simulation import Simulation
    from coopgroup.simulator.world import Watcher
    from coopgroup.simulator.world.calls import Call
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
_BELL_PART: Final = 0.7
_FENCES: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


def draw_consumer(seed: int) -> SwarmRun:
    """Draw a run whose members speak KIP-848."""
    chance = random.Random(f"swarm/consumer/{seed}")
    before = chance.choice((draw, draw, draw, draw_returning))(seed + _APART)
    faults = before.faults
    if chance.random() < _BELL_PART:
        faults = attrs.evolve(
            faults,
            bell_delay_ms_max=chance.choice((2, 2, 40, 400)),
            bell_loss=chance.choice((0.0, 0.1, 0.5)),
            bell_false_ms=chance.choice((0, 0, 20, 300)),
        )
    return attrs.evolve(
        before,
        seed=seed,
        policy=Choice(name="simple"),
        assignor="sticky",
        faults=faults,
        acts=tuple(_translated(chance, before.acts)),
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


def protocol_of(run: SwarmRun) -> GroupProtocol:
    """Return the group protocol of the members of a run."""
    return GroupProtocol.CONSUMER if run.theirs == CONSUMER else GroupProtocol.CLASSIC


def broker_of(run: SwarmRun, config: MemberConfig) -> GroupCoordinator:
    """Return the coordinator of a run, with the times of its members."""
    if run.theirs != CONSUMER:
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

    Attributes:
        simulation: the group.
        transcript: receives all events, too; None for no transcript.
        on_its_way: the heartbeat of each process that has no outcome.
        told: what each member id has told in its last full heartbeat that was accepted.
        fenced: member ids that the coordinator refused.
    """

    simulation: Simulation
    transcript: Watcher | None = None
    on_its_way: dict[str, Call] = field(factory=dict)
    told: dict[str, tuple[tuple[str, ...], ResourceSet]] = field(factory=dict)
    fenced: set[str] = field(factory=set)

    def recorded(self, envelope: Envelope) -> None:
        """Handle a new telemetry record."""
        if self.transcript is not None:
            self.transcript.recorded(envelope)

    def sent(self, call: Call) -> None:
        """Handle a sent request."""
        if self.transcript is not None:
            self.transcript.sent(call)
        request = call.send.request
        if isinstance(request, ConsumerBeatRequest) and request.epoch >= 0:
            message = self._objection(call, request)
            if message:
                self.simulation.world.object_to("beats", f"{call.process.name} {message}")
            self.on_its_way[call.process.name] = call

    def _objection(self, call: Call, request: ConsumerBeatRequest) -> str:
        # The session of a process has not been replaced yet while it carries out its effects, but
        # its effects come after the step, so the member is the one that sends.
        member = call.process.session.member
        earlier = self.on_its_way.get(call.process.name)
        waits = earlier is not None and not earlier.is_over and earlier.process is call.process
        if waits and earlier is not None and self._is_wanted(member, earlier):
            return "sends a heartbeat while another is on its way"
        if request.epoch == 0 and request.member_id in self.fenced:
            return f"joins under {request.member_id}, which was fenced"
        content = (member.next_join.topics, member.owned)
        if request.owned is None:
            if self.told.get(request.member_id) != content:
                return "sends a short heartbeat, and the coordinator does not know its content"
            return ""
        names = self.simulation.brokers.names
        told = {(names[topic_id], on) for topic_id, on in request.owned}
        owned = {(name, tuple(on.tolist())) for name, on in member.owned.items()}
        if told != owned or request.topics != content[0]:
            return f"tells {told} of {request.topics}, and has {owned} of {content[0]}"
        return ""

    def _is_wanted(self, member: Member, earlier: Call) -> bool:
        ids = {one.request_id for one in member.outstanding.values()}
        return earlier.send.request_id in ids

    def answered(self, call: Call, answer: Answer) -> None:
        """Handle an answer that has arrived; its process has not read it yet."""
        if self.transcript is not None:
            self.transcript.answered(call, answer)
        request = call.send.request
        if not isinstance(request, ConsumerBeatRequest) or request.epoch < 0:
            return
        assert isinstance(answer, ConsumerBeatAnswer)
        if answer.error_code in _FENCES:
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
        if isinstance(call.send.request, ConsumerBeatRequest):
            self.told.pop(call.send.request.member_id, None)
