"""Lock step: each request of a program goes to a broker and to the model; the answers must agree.

The model follows real time, so a slow machine affects both sides alike. The player avoids races:

- Before a request, it waits for everything that the model will end within `margin_ms`.
- After a request that the model leaves waiting, the broker gets `settle_ms` to receive it.
- Before the next request, each side must have answered every request that the other side answered.

A disagreement caused by a slow machine disappears at a slower pace; a real one stays (`check`).

The broker may choose the successor of a departed leader; the model then adopts its choice. All else
must be equal. Ids are compared by their first appearance.
"""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import attrs
from attrs import define, field, frozen

from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import (
    Answer,
    GroupRequest,
    JoinGroupAnswer,
    JoinGroupRequest,
    SyncGroupRequest,
)
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupCoordinator
from tests.support.conformance_broker import BrokerClients
from tests.support.conformance_clients import Client, Names, Stage
from tests.support.conformance_programs import (
    Ask,
    HangUp,
    Join,
    Patience,
    Proceed,
    Program,
    Round,
    Step,
    Wait,
)

LONG_MS: Final = 60_000
SESSION_MIN_MS: Final = 100
SESSION_MAX_MS: Final = 1_800_000
SESSION_UNITS: Final = 8
REBALANCE_UNITS: Final = 6
ROUND_PASSES_MAX: Final = 8


class DisagreementError(AssertionError):
    """The broker and the model gave different answers."""


@frozen(kw_only=True)
class Pace:
    """The speed at which a program is played.

    Attributes:
        unit_ms: the unit of its times.
        margin_ms: no request is sent so shortly before a time-out.
        settle_ms: time for the broker to receive a request that will wait.
        answer_s: time for the broker to answer a request that will not wait.
    """

    unit_ms: int
    margin_ms: int
    settle_ms: int
    answer_s: float


PACES: Final = (
    Pace(unit_ms=100, margin_ms=120, settle_ms=15, answer_s=2),
    Pace(unit_ms=300, margin_ms=400, settle_ms=150, answer_s=5),
    *[Pace(unit_ms=600, margin_ms=900, settle_ms=500, answer_s=15)] * 3,
)


def check(
    program: Program, broker: BrokerClients, group_id: str, paces: tuple[Pace, ...] = PACES
) -> Counter[tuple[str, int]]:
    """Play a program; on a disagreement play it more slowly, at the slowest pace several times.

    Returns:
        How often each request was answered with each code.

    Raises:
        DisagreementError: at every pace.
    """
    for attempt, pace in enumerate(paces, start=1):
        try:
            return play(program, broker, f"{group_id}-{attempt}", pace)
        except DisagreementError:
            if attempt == len(paces):
                raise
    raise AssertionError("there is no pace to play at")


def play(
    program: Program, broker: BrokerClients, group_id: str, pace: Pace
) -> Counter[tuple[str, int]]:
    """Play a program once, in a new group.

    Returns:
        How often each request was answered with each code.

    Raises:
        DisagreementError: an answer of the broker is not that of the model.
    """
    game = _Game(program=program, broker=broker, group_id=group_id, pace=pace)
    try:
        for step in program.steps:
            game.take(step)
        game.end()
    finally:
        game.hang_up_all()
    return game.seen


@define(eq=False)
class _Call:
    """A request that both sides have."""

    client: int
    request: GroupRequest
    outcome: queue.Queue[Any]


_Answered = tuple[_Call | None, Answer, Any]


@define(kw_only=True, eq=False)
class _Game:
    """The state of one program while it is played."""

    program: Program
    broker: BrokerClients
    group_id: str
    pace: Pace
    model: GroupCoordinator = field(init=False)
    clients: list[Client] = field(init=False)
    calls: dict[int, _Call] = field(factory=dict)
    history: list[str] = field(factory=list)
    seen: Counter[tuple[str, int]] = field(factory=Counter)
    of_broker: Names = field(factory=Names)
    of_model: Names = field(factory=Names)
    began_s: float = field(factory=time.monotonic)
    # Whether the leader departed, so that any member may follow it.
    is_throne_free: bool = False
    next_token: int = 1

    def __attrs_post_init__(self) -> None:
        self.model = GroupCoordinator(
            settings=CoordinatorSettings(
                initial_rebalance_delay_ms=0,
                session_timeout_min_ms=SESSION_MIN_MS,
                session_timeout_max_ms=SESSION_MAX_MS,
            )
        )
        one = self.program
        self.clients = [
            Client(
                name=f"client {number}",
                group_id=self.group_id,
                instance_id=instance_id,
                session_ms=self._patience_ms(one.sessions[number], SESSION_UNITS),
                rebalance_ms=self._patience_ms(one.rebalances[number], REBALANCE_UNITS),
            )
            for number, instance_id in enumerate(one.instances)
        ]

    def _patience_ms(self, patience: Patience, units: int) -> int:
        return {
            Patience.LONG: LONG_MS,
            Patience.SHORT: units * self.pace.unit_ms,
            Patience.BELOW_MINIMUM: SESSION_MIN_MS - 1,
            Patience.ABOVE_MAXIMUM: SESSION_MAX_MS + 1,
        }[patience]

    # --- steps ---------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        match step:
            case Wait():
                self.history.append(f"wait {step.units} units")
                self.live_until(self.now_ms + step.units * self.pace.unit_ms)
            case Round():
                self._round(step.absent)
            case Proceed():
                number = step.client % len(self.clients)
                self.ask(number, self.clients[number].next_request())
            case HangUp():
                self._hang_up(step.client % len(self.clients))
            case Join():
                number, client, another = self._ones(step.client)
                session_ms = client.session_ms
                if step.session is not None:
                    session_ms = self._patience_ms(step.session, SESSION_UNITS)
                self.ask(number, client.join(step, session_ms, another.member))
            case Ask():
                number, client, another = self._ones(step.client)
                self.ask(number, client.ask(step, another.member))

    def end(self) -> None:
        """Check that the broker sends no answer that the model does not send."""
        time.sleep(self.pace.settle_ms / 1000)
        self._steer_clear()
        self._no_other_answers()

    def hang_up_all(self) -> None:
        """Close every connection with a waiting request."""
        for number in sorted({call.client for call in self.calls.values()}):
            self.broker.hang_up(number)

    def _ones(self, number: int) -> tuple[int, Client, Client]:
        """Return a client, and another client whose id it may use by mistake."""
        count = len(self.clients)
        own = number % count
        further = 1 + number // count % max(1, count - 1)
        return own, self.clients[own], self.clients[(own + further) % count]

    def _round(self, absent: frozenset[int]) -> None:
        """Let all clients proceed until all of them are stable."""
        taken = self.program.instances
        present = [
            number
            for number, instance_id in enumerate(taken)
            if number not in absent and (instance_id is None or number == taken.index(instance_id))
        ]
        for _ in range(ROUND_PASSES_MAX):
            answered = self.seen.total()
            for number in present:
                if self.clients[number].waits_for is None:
                    self.ask(number, self.clients[number].next_request())
            at_rest = all(
                self.clients[n].stage is Stage.SYNCED or self.clients[n].waits_for is not None
                for n in present
            )
            if at_rest or self.seen.total() == answered:
                return

    def _hang_up(self, number: int) -> None:
        client = self.clients[number]
        if client.waits_for is None or client.waits_unnamed:
            return
        self.history.append(f"client {number} hangs up")
        del self.calls[client.waits_for]
        client.waits_for = None
        client.stage = Stage.NAMED
        self.broker.hang_up(number)

    # --- requests ------------------------------------------------------------------------------

    def ask(self, number: int, request: GroupRequest) -> None:
        """Send a request to both sides; a client has at most one waiting join or sync."""
        client = self.clients[number]
        waits = isinstance(request, JoinGroupRequest | SyncGroupRequest)
        if waits and client.waits_for is not None:
            return
        self._steer_clear()
        token, self.next_token = self.next_token, self.next_token + 1
        self.history.append(f"client {number} asks {request}")
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            client.waits_for, client.waits_unnamed = token, not request.member_id
        outcome = self._send(token, number, request, Lane.JOIN if waits else Lane.COMMIT)
        self.calls[token] = _Call(number, request, outcome)
        self._agree()
        if token in self.calls:
            time.sleep(self.pace.settle_ms / 1000)
            self._no_other_answers()

    def _send(self, token: int, number: int, request: GroupRequest, lane: Lane) -> queue.Queue[Any]:
        """Send to the model first: a time-out of the model is never later than the broker's."""
        before = self._throne()
        self.model.receive(token, self.of_model.to_ids(request), self.now_ms)
        self._watch_throne(before, request)
        return self.broker.begin(number, lane, self.of_broker.to_ids(request))

    # --- time ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return int((time.monotonic() - self.began_s) * 1000)

    def live_until(self, end_ms: int) -> None:
        """Let time pass on both sides, up to one time-out after another."""
        while True:
            at_ms = self.model.deadline_ms()
            if at_ms is None or at_ms > end_ms:
                self._sleep_until(end_ms)
                return
            self._sleep_until(at_ms)
            before = self._throne()
            self.model.advance(at_ms)
            self._watch_throne(before, None)
            self._agree()

    def _steer_clear(self) -> None:
        """Wait for all time-outs that are close, and until the broker has noticed them, too."""
        while True:
            self.live_until(self.now_ms)
            at_ms = self.model.deadline_ms()
            if at_ms is None or at_ms > self.now_ms + self.pace.margin_ms:
                return
            self.live_until(at_ms)
            self._sleep_until(at_ms + self.pace.margin_ms)

    def _sleep_until(self, at_ms: int) -> None:
        time.sleep(max(0, at_ms - self.now_ms) / 1000)

    # --- answers -------------------------------------------------------------------------------

    def _agree(self) -> None:
        """Check that the broker gives every answer that the model has given."""
        answers: list[_Answered] = []
        for token, expected in self.model.take_answers():
            assert isinstance(token, int)
            call = self.calls.get(token)
            if call is None:
                answers.append((None, expected, None))
                continue
            answers.append((call, expected, self._outcome(call, expected)))
            del self.calls[token]
            client = self.clients[call.client]
            if client.waits_for == token:
                client.waits_for = None
        self._pair_ids(answers)
        for call, expected, answer in self._adopt_leader(answers):
            if call is not None:
                self._compare(call, expected, answer)
        self._no_other_answers()

    def _outcome(self, call: _Call, expected: Answer) -> Any:  # noqa: ANN401 - or a failure
        try:
            return call.outcome.get(timeout=self.pace.answer_s)
        except queue.Empty:
            self._disagree(call, self.of_model.name_answer(expected), "no answer")
            raise

    def _no_other_answers(self) -> None:
        for call in self.calls.values():
            if not call.outcome.empty():
                self._disagree(call, "no answer", call.outcome.get())

    def _pair_ids(self, answers: list[_Answered]) -> None:
        """Name the ids that both sides tell a client for the first time."""
        for _, expected, answer in answers:
            if isinstance(expected, JoinGroupAnswer) and isinstance(answer, JoinGroupAnswer):
                new = answer.member_id not in self.of_broker.of_id
                if new and expected.member_id not in self.of_model.of_id:
                    name = f"id{len(self.of_model.of_id) - 1}"
                    self.of_broker.add(name, answer.member_id)
                    self.of_model.add(name, expected.member_id)

    def _compare(self, call: _Call, expected: Answer, answer: Any) -> None:  # noqa: ANN401
        by_model = self.of_model.name_answer(expected)
        by_broker = self.of_broker.name_answer(answer)
        if by_model != by_broker:
            self._disagree(call, by_model, by_broker)
        self.history.append(f"  client {call.client} is told {by_model}")
        name = type(call.request).__name__.removesuffix("Request")
        self.seen[name, _code(expected)] += 1
        self.clients[call.client].learn(call.request, by_model)

    def _disagree(self, call: _Call, by_model: object, by_broker: object) -> None:
        lines = "\n".join(self.history)
        raise DisagreementError(
            f"{lines}\nclient {call.client} asked {call.request}\n"
            f"  model:  {by_model}\n  broker: {by_broker}"
        )

    # --- who leads -----------------------------------------------------------------------------

    def _throne(self) -> tuple[str, str | None]:
        """Return the leader and its static id in the model."""
        leader_id = self.model.group.leader_id
        seat = self.model.group.seats.get(leader_id)
        return leader_id, None if seat is None else seat.instance_id

    def _watch_throne(self, before: tuple[str, str | None], request: GroupRequest | None) -> None:
        """Note whether the leader departed; a static leader that came back has not."""
        leader_id, instance_id = before
        group = self.model.group
        if not group.leader_id:
            self.is_throne_free = False
        elif leader_id and leader_id != group.leader_id:
            came_back = (
                isinstance(request, JoinGroupRequest)
                and instance_id is not None
                and request.group_instance_id == instance_id
                and self._throne()[1] == instance_id
            )
            self.is_throne_free = self.is_throne_free or not came_back

    def _adopt_leader(self, answers: list[_Answered]) -> Iterator[_Answered]:
        """Let the model follow the broker's choice of a leader among the joined members."""
        group = self.model.group
        joined = {
            one.member_id: one
            for _, one, _ in answers
            if isinstance(one, JoinGroupAnswer) and not one.error_code
        }
        told = [one for _, _, one in answers if isinstance(one, JoinGroupAnswer)]
        chosen = next((one.leader_id for one in told if not one.error_code), "")
        leader_id = self.of_model.id_of.get(self.of_broker.name(chosen), "")
        may_choose = self.is_throne_free and leader_id in joined
        if joined:
            self.is_throne_free = False
        if not may_choose or leader_id == group.leader_id:
            yield from answers
            return
        members = joined[group.leader_id].members
        group.leader_id = leader_id
        for call, expected, answer in answers:
            adopted = expected
            if isinstance(expected, JoinGroupAnswer) and not expected.error_code:
                heard = members if expected.member_id == leader_id else ()
                adopted = attrs.evolve(expected, leader_id=leader_id, members=heard)
            yield call, adopted, answer


def _code(answer: Answer) -> int:
    codes = getattr(answer, "codes", None)
    return int(answer.error_code if codes is None else codes[0][2])  # type: ignore[union-attr]
