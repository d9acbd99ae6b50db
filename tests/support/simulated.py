"""Small simulated groups and coordinators for unit tests."""

from typing import Any, TypeVar

from coopgroup.assignors import StickyAssignor
from coopgroup.core.model.group_api import (
    Answer,
    GroupRequest,
    JoinGroupAnswer,
    OffsetCommitAnswer,
)
from coopgroup.policies import SimplePolicy
from coopgroup.simulator.coordinator import CoordinatorSettings, GroupCoordinator
from coopgroup.simulator.host.run_settings import RunSettings
from coopgroup.simulator.scenario import Span
from coopgroup.simulator.simulation import Simulation
from tests.support.group_requests import join, sync
from tests.swarm.play import set_topics, small_group

AnswerKind = TypeVar("AnswerKind", bound=Answer)


class DrivenCoordinator:
    """A group coordinator with a clock; requests are numbered."""

    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.coordinator = GroupCoordinator(settings=settings or CoordinatorSettings())
        self.now_ms = 1_000
        self.answers: dict[int, Answer] = {}
        self._number = 0

    def send(self, request: GroupRequest) -> int:
        """Send a request and return its number; the answer, now or later, has the same number."""
        self._number += 1
        self.coordinator.receive(self._number, request, self.now_ms)
        self._collect()
        return self._number

    def ask(self, request: GroupRequest, kind: type[AnswerKind]) -> AnswerKind:
        """Send a request that is answered immediately, and return the answer."""
        answer = self.answers[self.send(request)]
        assert isinstance(answer, kind)
        return answer

    def code(self, request: GroupRequest) -> int:
        """Return the error code of an answer that comes immediately."""
        answer: Any = self.answers[self.send(request)]
        if isinstance(answer, OffsetCommitAnswer):
            ((_, _, code),) = answer.codes
            return code
        return int(answer.error_code)

    @property
    def generation(self) -> int:
        return self.coordinator.group.generation

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.coordinator.advance(self.now_ms)
        self._collect()

    def joined(self, number: int) -> JoinGroupAnswer:
        answer = self.answers[number]
        assert isinstance(answer, JoinGroupAnswer)
        return answer

    def new_member(self) -> str:
        """Return a member id that a dynamic member may join with."""
        return self.ask(join(), JoinGroupAnswer).member_id

    def stable_group(self, *instance_ids: str | None) -> tuple[str, ...]:
        """Return members of one generation, the leader first; static ones have an instance id."""
        ids: list[tuple[str, str | None]] = []
        for instance_id in instance_ids:
            known = self.new_member() if instance_id is None else ""
            number = self.send(join(known, instance_id=instance_id))
            for member_id, other in ids:
                self.send(join(member_id, instance_id=other))
            ids.append((self.joined(number).member_id, instance_id))
        generation = self.coordinator.group.generation
        names = [member_id for member_id, _ in ids]
        leader = self.coordinator.group.leader_id
        static = dict(ids)
        gifts = tuple((name, name.encode()) for name in names)
        for name in [one for one in names if one != leader]:
            self.send(sync(name, generation, instance_id=static[name]))
        self.send(sync(leader, generation, gifts, instance_id=static[leader]))
        return (leader, *(one for one in names if one != leader))

    def _collect(self) -> None:
        for number, answer in self.coordinator.take_answers():
            assert isinstance(number, int)
            assert number not in self.answers, "answered twice"
            self.answers[number] = answer


def quiet_group(partitions: int = 4, *, seed: int = 1) -> Simulation:
    run_settings = RunSettings(
        assignor=StickyAssignor(), policy=SimplePolicy(), lead_ms=Span(1, 10), jitter_ms=10
    )
    simulation = small_group(seed=seed, run_settings=run_settings, delay_ms_max=5)
    set_topics(simulation, {"T": partitions})
    return simulation
