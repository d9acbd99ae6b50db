"""Every fault of one message, and every deed of the world at its moment, as acts of a run.

`of_message` returns faults of the message itself, and `of_moment` what else may happen then. Each
is a plain act of the swarm. So `with_fault` turns a history and a fault into a plain run, which can
be saved, made smaller and played again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
from attrs import frozen

from coopgroup.core.member.error_actions import ERROR_ACTIONS, Action, ErrorCode, RequestKind
from coopgroup.simulator.scenario import LEADER
from coopgroup.simulator.world.network import Mishap
from tests.swarm.chains import start_of
from tests.swarm.runs import Act, ActKind, SwarmRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SHORT_MS: Final = 150
_LATE_MS: Final[Mapping[RequestKind, tuple[int, ...]]] = {
    # less and more than the request time-out (300) and the session (600)
    RequestKind.FIND_COORDINATOR: (_SHORT_MS, 350, 700),
    RequestKind.HEARTBEAT: (_SHORT_MS, 350, 700),
    RequestKind.OFFSET_COMMIT: (_SHORT_MS, 350, 700),
    RequestKind.LEAVE_GROUP: (_SHORT_MS, 350, 700),
    # less and more than the session and the rebalance time-out (1,500)
    RequestKind.JOIN_GROUP: (_SHORT_MS, 700, 1_700),
    RequestKind.SYNC_GROUP: (_SHORT_MS, 700, 1_700),
    # less and more than its time-out (200), the session, and the time to stop (1,500)
    RequestKind.CONSUMER_BEAT: (_SHORT_MS, 350, 700, 1_700),
}
_STILL_MS: Final = (300, 900)  # less and more than the session
_SOON_MS: Final = 50
_CROWD: Final = "p9"  # a process that no history has
# The transport makes these; a refused call cannot show them.
_OF_TRANSPORT: Final = {
    ErrorCode.NONE,
    ErrorCode.NO_ANSWER,
    ErrorCode.UNAUTHENTICATED,
    ErrorCode.UNSUPPORTED_BY_BROKER,
}
# The first step of a membership, and no fault: a join that has an id is never asked to take one.
_NO_FAULTS: Final = {(RequestKind.JOIN_GROUP, ErrorCode.MEMBER_ID_REQUIRED)}
# Beside those of each action: a member of KIP-848 also looks at these codes themselves.
_TOLD_APART: Final = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}


_KINDS: Final = {kind.value: kind for kind in RequestKind} | {
    "ConsumerBeat": RequestKind.CONSUMER_BEAT  # Kafka has a longer name for it
}


def kind_of(request: str) -> RequestKind:
    """Return the kind of a request, by the name that acts have for it."""
    return _KINDS[request]


@frozen(order=True)
class Message:
    """A request that a process sent."""

    at_ms: int
    process: str
    request: str


def codes_of(kind: RequestKind, *, every: bool) -> Iterator[ErrorCode]:
    """Yield codes that a request can be refused with: every one, or one for each action.

    Those of `_TOLD_APART` are always among them.
    """
    seen: set[Action] = set()
    for (of, code), action in ERROR_ACTIONS.items():
        if of is kind and code not in _OF_TRANSPORT and (of, code) not in _NO_FAULTS:
            if every or action not in seen or code in _TOLD_APART:
                yield code
            seen.add(action)


def of_message(message: Message, every_code: bool) -> Iterator[Act]:
    """Yield the faults of a message; each must be played before the message is sent."""
    upset = Act(kind=ActKind.UPSET, process=message.process, request=message.request, is_fault=True)
    yield attrs.evolve(upset, mishap=Mishap.REQUEST_LOST.name)
    yield attrs.evolve(upset, mishap=Mishap.ANSWER_LOST.name)
    kind = kind_of(message.request)
    for for_ms in _LATE_MS[kind]:
        yield attrs.evolve(upset, mishap=Mishap.DELAYED.name, for_ms=for_ms)
        yield attrs.evolve(upset, mishap=Mishap.ANSWER_DELAYED.name, for_ms=for_ms)
    for code in codes_of(kind, every=every_code):
        yield attrs.evolve(upset, mishap=Mishap.REFUSED.name, number=int(code))


def of_moment(
    processes: Iterable[str], with_leaves: bool, *, with_leader: bool = True
) -> Iterator[Act]:
    """Yield the deeds of the world right after some processes sent a message.

    Args:
        processes: their names.
        with_leaves: whether supervisors leave for crashed processes; none does for an identity.
        with_leader: whether a member leads the group.
    """
    for process in sorted(set(processes)):
        act = Act(kind=ActKind.CRASH, process=process, is_fault=True)
        yield act
        yield attrs.evolve(act, for_ms=_SOON_MS)
        for leave_ms in (
            _STILL_MS if with_leaves else ()
        ):  # the leave comes before or after the end of the session
            yield attrs.evolve(act, number=leave_ms)
        yield attrs.evolve(act, kind=ActKind.CLOSE)
        yield attrs.evolve(act, kind=ActKind.STALL)
        for for_ms in _STILL_MS:
            yield attrs.evolve(act, kind=ActKind.PAUSE, for_ms=for_ms)
            yield attrs.evolve(act, kind=ActKind.CUT, for_ms=for_ms)
    for down_ms in (0, 200):
        yield Act(kind=ActKind.MOVE, number=3, for_ms=down_ms, is_fault=True)
    yield attrs.evolve(start_of(_CROWD, ("T",)), is_fault=True)
    if with_leader:
        yield Act(kind=ActKind.CLOSE, process=LEADER, is_fault=True)
        yield Act(kind=ActKind.CRASH, process=LEADER, is_fault=True)


def with_fault(run: SwarmRun, at_ms: int, fault: Act) -> SwarmRun:
    """Return a run with one more act at a time; the other acts keep their times."""
    since_ms, place = at_ms, 0
    while place < len(run.acts) and run.acts[place].after_ms <= since_ms:
        since_ms -= run.acts[place].after_ms
        place += 1
    after = run.acts[place:]
    if after:
        after = (attrs.evolve(after[0], after_ms=after[0].after_ms - since_ms), *after[1:])
    rest_ms = sum(act.after_ms for act in after)
    healed_ms = run.healed_after_ms if after else run.healed_after_ms - since_ms
    return attrs.evolve(
        run,
        acts=(*run.acts[:place], attrs.evolve(fault, after_ms=since_ms), *after),
        healed_after_ms=max(healed_ms, fault.for_ms + _SOON_MS - rest_ms),
    )


def without_faults(run: SwarmRun) -> SwarmRun:
    """Return the history of a run that `with_fault` returned; all its acts keep their times."""
    acts: list[Act] = []
    waited_ms = 0
    for act in run.acts:
        waited_ms += act.after_ms
        if not act.is_fault:
            acts.append(attrs.evolve(act, after_ms=waited_ms))
            waited_ms = 0
    return attrs.evolve(run, acts=tuple(acts))
