"""Clients of one group in a program: what each was told, and its next request.

Member ids are names here ("id1" for the first id that any client was told, "id2", ...). A broker's
ids are random, a model's are numbered; `Names` maps names to ids.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import attrs
from attrs import define, field

from coopgroup.core.model.group_api import (
    Answer,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
    GroupRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    LeaveGroupAnswer,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupAnswer,
    SyncGroupRequest,
)
from tests.support.conformance_programs import Ask, Generation, Id, Instance, Join, Request

TOPIC: Final = "orders"
INVENTED: Final = "nobody"
NO_INSTANCES: Final = {None: "alpha", "alpha": "beta", "beta": "alpha"}
"""The static id that a client takes for its own by mistake."""

ID_REQUIRED: Final = 79
NOT_A_MEMBER: Final = frozenset({25, 82})
NOT_THIS_GENERATION: Final = frozenset({22, 27})


@define
class Names:
    """Names of the member ids of one side."""

    of_id: dict[str, str] = field(factory=lambda: {"": "", INVENTED: INVENTED})
    id_of: dict[str, str] = field(factory=lambda: {"": "", INVENTED: INVENTED})

    def add(self, name: str, member_id: str) -> None:
        self.of_id[member_id] = name
        self.id_of[name] = member_id

    def name(self, member_id: str) -> str:
        """Return the name of an id; an id that no client was told has none."""
        return self.of_id.get(member_id, f"unknown {member_id}")

    def name_answer(self, answer: Answer) -> Answer:
        """Return an answer with names and ordered members, without the coordinator's address."""
        match answer:
            case JoinGroupAnswer():
                members = [
                    attrs.evolve(one, member_id=self.name(one.member_id)) for one in answer.members
                ]
                return attrs.evolve(
                    answer,
                    leader_id=self.name(answer.leader_id),
                    member_id=self.name(answer.member_id),
                    members=tuple(sorted(members, key=lambda one: one.member_id)),
                )
            case FindCoordinatorAnswer():
                return attrs.evolve(answer, error_message="", coordinator=None)
            case _:
                return answer

    def to_ids(self, request: GroupRequest) -> GroupRequest:
        """Return a request with ids instead of names."""
        match request:
            case FindCoordinatorRequest():
                return request
            case SyncGroupRequest():
                given = tuple((self.id_of[name], message) for name, message in request.assignments)
                member_id = self.id_of[request.member_id]
                return attrs.evolve(request, member_id=member_id, assignments=given)
            case _:
                return attrs.evolve(request, member_id=self.id_of[request.member_id])


class Stage(enum.Enum):
    """The state of a client."""

    OUT = "has no member id"
    NAMED = "has an id and must join"
    JOINED = "has joined and must sync"
    SYNCED = "has its assignment"


@define(kw_only=True, eq=False)
class Client:
    """One client.

    Attributes:
        member: name of its member id.
        joined: the last successful answer to its joins.
        commits: count of its commits.
        waits_for: token of the join or sync that waits, None for none.
        waits_unnamed: whether that request has no member id, so that no client could name its seat.
    """

    name: str
    group_id: str
    instance_id: str | None
    session_ms: int
    rebalance_ms: int
    stage: Stage = Stage.OUT
    member: str = ""
    earlier: list[str] = field(factory=list)
    joined: JoinGroupAnswer | None = None
    revision: int = 0
    commits: int = 0
    waits_for: int | None = None
    waits_unnamed: bool = False

    @property
    def generation(self) -> int:
        return -1 if self.joined is None else self.joined.generation

    # --- what it asks --------------------------------------------------------------------------

    def next_request(self) -> GroupRequest:
        if self.stage in {Stage.OUT, Stage.NAMED}:
            return self.join(Join(client=0), self.session_ms, "")
        kind = Request.SYNC_GROUP if self.stage is Stage.JOINED else Request.HEARTBEAT
        return self.ask(Ask(client=0, request=kind), "")

    def join(self, step: Join, session_ms: int, another: str) -> JoinGroupRequest:
        """Return a join.

        Args:
            step: the errors in it, if any.
            session_ms: session timeout.
            another: name of another client's member id.
        """
        self.revision += step.changed
        return JoinGroupRequest(
            group_id=self.group_id,
            member_id=self._member(step.member, another),
            group_instance_id=self._instance(step.instance),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            protocol_type=step.protocol_type,
            protocols=tuple(
                (protocol, f"{self.name} {protocol} {self.revision}".encode())
                for protocol in step.protocols.value
            ),
            reason="",
        )

    def ask(self, step: Ask, another: str) -> GroupRequest:
        """Return another request, with names instead of ids."""
        sender: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self._member(step.member, another),
            "group_instance_id": self._instance(step.instance),
        }
        generation = self._generation(step.generation)
        match step.request:
            case Request.FIND_COORDINATOR:
                return FindCoordinatorRequest(group_id=self.group_id)
            case Request.HEARTBEAT:
                return HeartbeatRequest(generation=generation, **sender)
            case Request.LEAVE_GROUP:
                return LeaveGroupRequest(reason="", **sender)
            case Request.OFFSET_COMMIT:
                self.commits += 1
                offsets = ((TOPIC, 0, self.commits, -1, ""), (TOPIC, 1, self.commits, 0, "x"))
                return OffsetCommitRequest(generation=generation, offsets=offsets, **sender)
            case Request.SYNC_GROUP:
                chosen = "" if self.joined is None else self.joined.protocol_name
                return SyncGroupRequest(
                    generation=generation,
                    protocol_type="raw",
                    protocol_name=step.protocol_name or chosen,
                    assignments=self._decided(),
                    **sender,
                )

    def _decided(self) -> tuple[tuple[str, bytes], ...]:
        """Return a distinct assignment for each member."""
        if self.joined is None:
            return ()
        generation = self.joined.generation
        names = [one.member_id for one in self.joined.members]
        return tuple((name, f"{generation} for {name}".encode()) for name in names)

    def _member(self, which: Id, another: str) -> str:
        earlier = self.earlier[-1] if self.earlier else INVENTED
        return {
            Id.OWN: self.member,
            Id.EMPTY: "",
            Id.ANOTHERS: another,
            Id.EARLIER: earlier,
            Id.INVENTED: INVENTED,
        }[which]

    def _instance(self, which: Instance) -> str | None:
        return {
            Instance.OWN: self.instance_id,
            Instance.ABSENT: None,
            Instance.ANOTHERS: NO_INSTANCES[self.instance_id],
            Instance.INVENTED: "gamma",
        }[which]

    def _generation(self, which: Generation) -> int:
        before_after = {Generation.OWN: 0, Generation.BEFORE: -1, Generation.AFTER: 1}
        return -1 if which is Generation.NONE else self.generation + before_after[which]

    # --- what it is told -----------------------------------------------------------------------

    def learn(self, request: GroupRequest, answer: Answer) -> None:
        if isinstance(answer, JoinGroupAnswer) and answer.error_code in {0, ID_REQUIRED}:
            self._take(answer.member_id)
            self.stage = Stage.NAMED
            if not answer.error_code:
                self.joined, self.stage = answer, Stage.JOINED
            return
        if isinstance(request, FindCoordinatorRequest) or request.member_id != self.member:
            return
        match answer:
            case JoinGroupAnswer() | SyncGroupAnswer() | HeartbeatAnswer() | LeaveGroupAnswer():
                code = answer.error_code
            case _:
                return
        if code in NOT_A_MEMBER or (isinstance(answer, LeaveGroupAnswer) and not code):
            self._take("")
            self.stage = Stage.OUT
        elif code in NOT_THIS_GENERATION:
            self.stage = Stage.NAMED
        elif isinstance(answer, SyncGroupAnswer) and not code:
            self.stage = Stage.SYNCED

    def _take(self, member: str) -> None:
        if self.member and self.member != member:
            self.earlier.append(self.member)
        self.member = member
