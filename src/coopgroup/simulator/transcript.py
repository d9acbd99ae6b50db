"""`Transcript`: a run as readable lines, one per event.

    12.345 a-2 > JoinGroup of a-2-00000000-0000-0000-0000-000000000003, claims of generation 4: T 7
    12.351 a-2 < JoinGroup: generation 5, led by a-1-00000000-0000-0000-0000-000000000001
    12.351 a-2   state joining -> syncing: joined

`>` is a request and `<` its outcome; other lines are telemetry records. Routine heartbeats and
accepted commits are left out, because they would hide the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from attrs import define, field

from coopgroup.core.member.error_actions import error_name
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import (
    Answer,
    ConsumerBeatAnswer,
    ConsumerBeatRequest,
    FindCoordinatorAnswer,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    OffsetCommitAnswer,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from coopgroup.errors import DecodeError
from coopgroup.protocol import decode_assignment, decode_subscription, kafka_protocol
from coopgroup.simulator.world.calls import Call
from coopgroup.telemetry import Envelope, OffsetsCommitted, Record, StateChanged

_INDEX_MIN: Final = -1  # index of a connector itself; does not occur in a group of partitions


@define(eq=False)
class Transcript:
    """Collects lines."""

    lines: list[str] = field(factory=list)

    def recorded(self, envelope: Envelope) -> None:
        """A record was written."""
        record = envelope.record
        if not isinstance(record, OffsetsCommitted):
            who = envelope.client or "*"
            self._say(envelope.at_ms, who, " ", _record_in_words(record))

    def sent(self, call: Call) -> None:
        """A process sent a request."""
        request = call.send.request
        if not isinstance(request, HeartbeatRequest | OffsetCommitRequest | ConsumerBeatRequest):
            process = call.process
            self._say(process.world.now_ms, process.name, ">", _request_in_words(request))

    def answered(self, call: Call, answer: Answer) -> None:
        """A process received its answer."""
        if _says_something(answer):
            process = call.process
            words = f"{_name(call.send.request)}: {_answer_in_words(answer)}"
            self._say(process.world.now_ms, process.name, "<", words)

    def failed(self, call: Call) -> None:
        """A process will get no answer."""
        process = call.process
        words = f"{_name(call.send.request)}: no answer"
        self._say(process.world.now_ms, process.name, "<", words)

    def _say(self, at_ms: int, who: str, mark: str, words: str) -> None:
        self.lines.append(f"{at_ms // 1000:6}.{at_ms % 1000:03} {who} {mark} {words}")


def resources_in_words(resources: ResourceSet) -> str:
    """Format names with ranges of indices: `orders 0-3 7, payments 1`."""
    if not resources:
        return "nothing"
    return ", ".join(f"{name} {ranges(indices.tolist())}" for name, indices in resources.items())


def ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers with ranges: `0-5 8 10-11`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _name(message: GroupRequest) -> str:
    return type(message).__name__.removesuffix("Request")


def _says_something(answer: Answer) -> bool:
    match answer:
        case HeartbeatAnswer() | ConsumerBeatAnswer():
            return bool(answer.error_code)
        case OffsetCommitAnswer():
            return any(code for *_, code in answer.codes)
        case _:
            return True


def _request_in_words(request: GroupRequest) -> str:
    match request:
        case JoinGroupRequest():
            who = request.member_id or "a new member"
            return f"JoinGroup of {who}, {_claims_in_words(request.protocols[0][1])}"
        case SyncGroupRequest():
            decided = f", decides for {len(request.assignments)}" if request.assignments else ""
            return f"SyncGroup of generation {request.generation}{decided}"
        case _:
            return _name(request)


def _claims_in_words(subscription: bytes) -> str:
    try:
        told = decode_subscription(subscription, index_min=_INDEX_MIN)
    except DecodeError as error:
        return f"unreadable: {error}"
    if not told.owned:
        return "claims nothing"
    return f"claims of generation {told.generation}: {resources_in_words(told.owned)}"


def _answer_in_words(answer: Answer) -> str:
    match answer:
        case OffsetCommitAnswer():
            code = next(code for *_, code in answer.codes if code)
            return error_name(code)
        case JoinGroupAnswer() if not answer.error_code:
            skips = ", keeps what is stored" if answer.skip_assignment else ""
            return f"generation {answer.generation}, led by {answer.leader_id}{skips}"
        case SyncGroupAnswer() if not answer.error_code:
            return _assignment_in_words(answer.assignment)
        case FindCoordinatorAnswer() if answer.coordinator is not None:
            return f"broker {answer.coordinator.node_id}"
        case JoinGroupAnswer() if answer.member_id:
            return f"{error_name(answer.error_code)}, {answer.member_id}"
        case _:
            return error_name(answer.error_code) if answer.error_code else "done"


def _assignment_in_words(message: bytes) -> str:
    try:
        told = decode_assignment(message, index_min=_INDEX_MIN, skips_rest=True)
    except DecodeError as error:
        return f"unreadable: {error}"
    words = resources_in_words(told.assigned)
    if told.revoked is not None:
        words += f"; stop {resources_in_words(told.revoked)}, then rejoin"
    if told.rejoin_in_ms is not None:
        words += f"; rejoin in {told.rejoin_in_ms} ms"
    return words


def _record_in_words(record: Record) -> str:
    if isinstance(record, StateChanged):
        return f"state {record.before} -> {record.after}: {record.cause}"
    words = [type(record).__name__]
    for one in attrs.fields(type(record)):
        value = getattr(record, one.name)
        if isinstance(value, ResourceSet):
            if value:
                words.append(f"{one.name}=[{resources_in_words(value)}]")
        elif isinstance(value, bool):
            if value:
                words.append(one.name)
        elif isinstance(value, tuple):
            if value:
                words.append(f"{one.name}=({', '.join(map(str, value))})")
        elif value not in {"", 0, None} and not _goes_without_saying(one.name, value):
            words.append(f"{one.name}={value}")
    return " ".join(words)


def _goes_without_saying(name: str, value: object) -> bool:
    is_ours = name == "protocol" and kafka_protocol(str(value)) is None
    return is_ours or name == "session_timeout_ms"  # a setting of the scenario
