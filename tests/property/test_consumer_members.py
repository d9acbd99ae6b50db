"""A member of KIP-848 beside a coordinator that answers anything, in any order, and then recovers.

The hostile coordinator knows no rules: it assigns at random, repeats itself, names unknown topic
ids, and answers with any error code. Whatever it does, the member keeps its own promises:

- It works only on what an answer granted, and commits only what it owns.
- What it owns, and what it tells, are the same. A heartbeat never claims a partition of which the
  application knows nothing.
- After the coordinator has become sane, it comes to rest with its whole assignment.
"""

import random
from collections.abc import Callable

import attrs
import pytest

from coopgroup.core.member import Action, ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.core.member.effects import (
    Effect,
    GrantResources,
    LoseResources,
    RevokeResources,
    Send,
)
from coopgroup.core.member.error_actions import action_for
from coopgroup.core.member.events import (
    ApplicationStalled,
    BellRang,
    CommitRequested,
    LossHandled,
    Offset,
    RejoinRequested,
    RequestFailed,
    SubscriptionChanged,
)
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import (
    ConsumerBeatRequest,
    FindCoordinatorAnswer,
    OffsetCommitAnswer,
    OffsetCommitRequest,
)
from coopgroup.errors import LocalProtocolError
from tests.support.consumer_members import (
    BEAT,
    CONFIG,
    KEEPING,
    LEAVE,
    STATIC,
    SUBSCRIBED,
    DrivenConsumer,
    beaten,
    by_id,
    new,
)
from tests.support.members import HELD, NODE, OTHER_NODE, found

COMMIT, FIND = RequestKind.OFFSET_COMMIT, RequestKind.FIND_COORDINATOR
PARTITIONS = 4
ACTS = 80
RUNS = 100
CODES = [
    code
    for code in ErrorCode
    if not {action_for(BEAT, code), action_for(RequestKind.OFFSET_COMMIT, code)}
    & {Action.FAIL, Action.PROCEED}
]
CONFIGS = [CONFIG, STATIC, KEEPING, attrs.evolve(CONFIG, has_bell=True)]


@attrs.define
class Hostile:
    """The member, its application, and what was seen on the wire."""

    driven: DrivenConsumer
    working: ResourceSet = EMPTY
    stopping: ResourceSet = EMPTY
    claimed: ResourceSet = EMPTY
    names: dict[str, str] = attrs.field(factory=lambda: {"id-T": "T"})

    def do(self, act: Callable[[], DrivenConsumer]) -> None:
        try:
            act()
        except LocalProtocolError:
            return  # an application that reports in the wrong moment; nothing has changed
        for effect in self.driven.effects:
            self._see(effect)
        self._check()

    def _see(self, effect: Effect) -> None:
        match effect:
            case GrantResources(resources=resources):
                assert not resources & self.working, "granted twice"
                self.working |= resources
            case RevokeResources(resources=resources):
                assert resources <= self.working, "revoked, and not owned"
                assert not resources & self.stopping, "revoked twice"
                self.stopping |= resources
            case LoseResources(resources=resources):
                assert resources == self.working, "lost, and not owned"
                self.working, self.stopping = EMPTY, EMPTY
            case Send(request=ConsumerBeatRequest() as request):
                self._see_beat(request)
            case Send(request=OffsetCommitRequest() as request):
                rows = ResourceSet.from_pairs(row[:2] for row in request.offsets)
                assert rows <= self.driven.member.owned, "commits what it does not own"
            case _:
                pass

    def _see_beat(self, request: ConsumerBeatRequest) -> None:
        if request.epoch < 0:
            return
        if request.owned is not None:
            told = {self._name(one): on for one, on in request.owned}
            self.claimed = ResourceSet(told)
        assert self.claimed == self.driven.member.owned, "a heartbeat that tells something else"
        assert (request.epoch == 0) <= (not self.claimed), "a join that claims"

    def _name(self, topic_id: str) -> str:
        return topic_id.split("-")[1][0]

    def _check(self) -> None:
        member = self.driven.member
        given_up = self.stopping - member.owned
        self.working -= given_up
        self.stopping -= given_up
        assert self.working == member.owned
        pending = member.revocation.pending | member.revocation.stopped
        assert pending == self.stopping
        owning = {MemberState.STABLE, MemberState.REVOKING}
        assert not member.owned or member.state in owning
        assert (member.state is MemberState.REVOKING) == bool(self.stopping)
        if member.owned:
            assert member.lost_at_ms >= self.driven.now_ms

    # --- one act of the coordinator or of the application ----------------------------------------

    def act(self, chance: random.Random) -> None:
        driven, member = self.driven, self.driven.member
        kinds = sorted(member.outstanding, key=lambda one: one.value)
        if kinds and chance.random() < 0.6:
            self._answer(chance, chance.choice(kinds))
            return
        partition = chance.randint(0, PARTITIONS - 1)
        offsets = (Offset("T", partition, chance.randint(1, 9)),)
        part = ResourceSet.from_pairs(one for one in self.stopping if chance.random() < 0.5)
        events = [
            lambda: driven.stop(part),
            lambda: driven.give(CommitRequested(commit_id=driven.now_ms, offsets=offsets)),
            lambda: driven.give(BellRang()),
            lambda: driven.give(LossHandled()),
            lambda: driven.give(RejoinRequested(reason="")),
            lambda: driven.give(ApplicationStalled()),
            lambda: driven.give(SubscriptionChanged(topics=("T", "U"))),
            lambda: driven.wait(chance.choice([1, 60, 900, 2_500, 7_000])),
            self.wait_for_deadline,
        ]
        self.do(chance.choice(events))

    def wait_for_deadline(self) -> DrivenConsumer:
        at_ms = next_deadline_ms(self.driven.member)
        pause_ms = 1 if at_ms is None else at_ms - self.driven.now_ms
        return self.driven.wait(max(0, pause_ms))

    def _answer(self, chance: random.Random, kind: RequestKind) -> None:
        driven = self.driven
        self.driven.names = chance.choice([None, {}, {"id-T": "T"}, {"id-U": "U"}])
        is_refused = chance.randint(0, 9) < 2
        code = chance.choice(CODES) if is_refused else None
        request_id = driven.member.outstanding[kind].request_id
        if kind is FIND:
            node = chance.choice([NODE, OTHER_NODE, None])
            answer = FindCoordinatorAnswer(error_code=0, error_message="", coordinator=node)
            answer = answer if node else attrs.evolve(answer, error_code=15)
            self.do(lambda: driven.answer(kind, answer))
        elif code is ErrorCode.NO_ANSWER:
            self.do(lambda: driven.give(failed(request_id)))
        elif kind is COMMIT:
            codes = tuple(("T", one, code or 0) for one in range(PARTITIONS))
            self.do(lambda: driven.answer(kind, OffsetCommitAnswer(codes=codes)))
        elif code is not None or kind is LEAVE:
            refused = attrs.evolve(beaten(-1), error_code=code or 0)
            self.do(lambda: driven.answer(kind, refused))
        else:
            epoch = chance.randint(1, 5)
            some = tuple(one for one in range(PARTITIONS) if chance.random() < 0.5)
            topic_id = chance.choice(["id-T", "id-T", "id-T", "id-T2", "id-U"])
            rows = ((topic_id, some),) if some else ()
            given = None if chance.random() < 0.2 else rows
            self.do(lambda: driven.answer(BEAT, beaten(epoch, given)))

    # --- a sane coordinator, and an application that does its part --------------------------------

    def recover(self) -> None:
        """Answer everything as a broker would that assigns HELD, until the member rests."""
        driven = self.driven
        driven.names = {"id-T": "T"}
        for _ in range(200):
            member = driven.member
            if self._rests():
                return
            if member.state is MemberState.LOSING:
                self.do(lambda: driven.give(LossHandled()))
            elif self.stopping:
                self.do(lambda: driven.stop(self.stopping))
                if self.stopping:
                    self._answer_well()
            elif member.outstanding:
                self._answer_well()
            else:
                self.do(self.wait_for_deadline)
        pytest.fail(f"no rest: {driven.member}")

    def _rests(self) -> bool:
        member = self.driven.member
        told = member.beat.told
        return (
            member.state is MemberState.STABLE
            and self.working == HELD
            and told is not None
            and told.owned == HELD
            and set(member.beat.ids.values()) == {"id-T"}
            and not member.commits.queue
        )

    def _answer_well(self) -> None:
        driven = self.driven
        kind = next(iter(driven.member.outstanding), None)
        if kind is None:
            self.do(self.wait_for_deadline)
        elif kind is FIND:
            self.do(lambda: driven.answer(FIND, found(NODE)))
        elif kind is COMMIT:
            codes = tuple(("T", one, 0) for one in range(PARTITIONS))
            self.do(lambda: driven.answer(COMMIT, OffsetCommitAnswer(codes=codes)))
        elif kind is LEAVE:
            self.do(lambda: driven.answer(LEAVE, beaten(-1)))
        else:
            self.do(lambda: driven.answer(BEAT, beaten(7, by_id(HELD))))


def failed(request_id: int) -> RequestFailed:
    return RequestFailed(request_id=request_id, code=ErrorCode.NO_ANSWER, message="gone")


@pytest.mark.parametrize("part", range(8))
def test_member_keeps_its_promises_and_rests_when_the_coordinator_is_sane(part: int) -> None:
    for seed in range(part * RUNS, part * RUNS + RUNS):
        chance = random.Random(f"hostile coordinator/{seed}")
        hostile = Hostile(new(chance.choice(CONFIGS)))
        hostile.do(lambda hostile=hostile: hostile.driven.give(SUBSCRIBED))  # type: ignore[misc]
        for _ in range(ACTS):
            hostile.act(chance)
        hostile.recover()
