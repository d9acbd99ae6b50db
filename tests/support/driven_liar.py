"""`Liar`: a member of a driven group that claims what it likes, and never gives anything up.

It only joins, syncs and sends heartbeats. It shares no decision with our members.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final, cast

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    HeartbeatAnswer,
    JoinGroupAnswer,
    JoinGroupRequest,
    SyncGroupAnswer,
)
from coopgroup.protocol import (
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)
from tests.support.driven_group import TOPIC, DrivenGroup, DrivenMember, _Wire
from tests.support.group_requests import heartbeat, join, sync

_HEARTBEAT_S: Final = 0.5


@define(eq=False)
class Liar:
    """A liar, in the place of a `DrivenMember`.

    Attributes:
        topics: what it subscribes to.
        claims: what it claims; None for all partitions.
        ahead: generation of its claims, relative to the last completed one; None for 2^31-1.
        given: what the last assignment gave it.
    """

    name: str
    group: DrivenGroup
    wire: _Wire
    topics: tuple[str, ...] = ()
    ahead: int | None = None
    claims: ResourceSet | None = None
    member_id: str = ""
    generation: int = -1
    given: ResourceSet = EMPTY
    owned: dict[int, int] = field(factory=dict)
    _busy: bool = False
    _joined: bool = False
    _beat_at_s: float = 0.0

    is_stable = True
    driver = SimpleNamespace(leads=False, stop=list)

    def work(self) -> None:
        """Process nothing."""

    def turn(self) -> None:
        """Send the next request."""
        now_s = self.group.hand.now_s
        if self._busy:
            return
        if not self._joined:
            self._send(self._join())
        elif now_s >= self._beat_at_s:
            self._beat_at_s = now_s + _HEARTBEAT_S
            self._send(heartbeat(self.member_id, self.generation))

    def _join(self) -> JoinGroupRequest:
        last = self.group.coordinator.group.generation
        claims = ResourceSet({TOPIC: range(self.group.partitions)})
        metadata = encode_subscription(
            Subscription(
                topics=self.topics,
                owned=claims if self.claims is None else self.claims,
                generation=2**31 - 1 if self.ahead is None else last + self.ahead,
                user_data=encode_user_data(UserData()),
            )
        )
        return join(
            self.member_id,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=60_000,
            protocols=(("coopgroup", metadata),),
        )

    def _send(self, request: Any) -> None:  # noqa: ANN401  (one of several kinds)
        self._busy = True
        self.wire.send(Lane.JOIN, request, self._answered, node=None, timeout_ms=60_000)

    def _answered(self, answer: object) -> None:
        self._busy = False
        match answer:
            case JoinGroupAnswer(error_code=ErrorCode.NONE):
                assert answer.leader_id != answer.member_id
                self.generation, self._joined = answer.generation, True
                self._send(sync(self.member_id, self.generation))
            case JoinGroupAnswer():
                self.member_id = answer.member_id
            case SyncGroupAnswer(error_code=ErrorCode.NONE):
                self.given = decode_assignment(answer.assignment, skips_rest=True).assigned
            case HeartbeatAnswer(error_code=ErrorCode.NONE):
                pass
            case _:
                self._joined = False


def add_liar(group: DrivenGroup, **more: Any) -> Liar:  # noqa: ANN401  (attributes of `Liar`)
    """Start a liar."""
    liar = Liar(name="liar", group=group, wire=_Wire("liar", group), **more)
    group.members["liar"] = cast("DrivenMember", liar)
    return liar
