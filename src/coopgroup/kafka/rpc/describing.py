"""Describe a group from outside, without being a member (DescribeGroups)."""

from __future__ import annotations

import queue
from contextlib import closing
from typing import Any, Final

from attrs import define, field, frozen

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import Action, RequestKind, action_for, error_name
from coopgroup.core.model.group_api import Coordinator, FindCoordinatorRequest, GroupRequest
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s, pause
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribeGroupRequest
from coopgroup.kafka.rpc.transport import GroupTransport

_PAUSE_S: Final = 0.2
_KEY: Final = "bootstrap.servers"


def describe_group(
    settings: ConnectionSettings, group_id: str, timeout_ms: int = 10_000
) -> DescribedGroup:
    """Return a group's description by its coordinator.

    Raises:
        ConfigurationError: no broker answers in time, or the brokers refuse the question.
    """
    with closing(GroupDescriber(settings, group_id)) as describer:
        return describer.describe(timeout_ms)[1]


def find_coordinator(
    settings: ConnectionSettings, group_id: str, timeout_ms: int = 10_000
) -> Coordinator:
    """Return the broker that coordinates a group and answers for it; the group need not exist.

    While a group moves, brokers still name the old coordinator. So this function also asks the
    named broker for the group, until it answers.

    Raises:
        ConfigurationError: no broker answers in time, or the brokers refuse the question.
    """
    with closing(GroupDescriber(settings, group_id)) as describer:
        return describer.describe(timeout_ms)[0]


@define(eq=False)
class GroupDescriber:
    """Describes a group again and again, over the same connections until `close`."""

    settings: ConnectionSettings
    group_id: str
    _transport: GroupTransport | None = field(default=None, init=False)

    def describe(self, timeout_ms: int) -> tuple[Coordinator, DescribedGroup]:
        """Return the group's coordinator and its description.

        Raises:
            ConfigurationError: no broker answers in time, or the brokers refuse the question.
        """
        if self._transport is None:
            self._transport = GroupTransport(self.settings, lambda _: None)
            self._transport.start()
        try:
            asking = _Asking(self._transport, self.settings, now_s() + timeout_ms / 1000)
            while (described := asking.describe(self.group_id)) is None:
                pause(_PAUSE_S)
        except BaseException:
            self.close()  # the next question connects anew
            raise
        return described

    def close(self) -> None:
        """End the connections."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()


@frozen(eq=False)
class _Asking:
    """Questions that share a time limit; an unanswered question is repeated until the limit."""

    transport: GroupTransport
    settings: ConnectionSettings
    until_s: float

    def describe(self, group_id: str) -> tuple[Coordinator, DescribedGroup] | None:
        """Return the group's coordinator and its description; None if they are not known yet."""
        found = self._ask(FindCoordinatorRequest(group_id=group_id), None)
        if found.coordinator is None:
            self._refuse_for_good(group_id, found.error_code)
            return None
        answer: DescribedGroup = self._ask(
            DescribeGroupRequest(group_id=group_id), found.coordinator
        )
        self._refuse_for_good(group_id, answer.error_code)
        return (found.coordinator, answer) if answer.error_code == ErrorCode.NONE else None

    def _ask(self, request: GroupRequest | DescribeGroupRequest, node: Coordinator | None) -> Any:  # noqa: ANN401
        left_ms = round(1000 * (self.until_s - now_s()))
        if left_ms <= 0:
            raise self._refusal("no answer in time")
        outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.transport.send(Lane.COMMIT, request, outcome.put, node=node, timeout_ms=left_ms)
        answer = outcome.get()
        if isinstance(answer, TransportFailure):
            raise self._refusal(answer.message)
        return answer

    def _refuse_for_good(self, group_id: str, code: int) -> None:
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise ConfigurationError("GROUP", group_id, "a group that this user may DESCRIBE")
        if action_for(RequestKind.FIND_COORDINATOR, code) is Action.FAIL:
            raise self._refusal(error_name(code))

    def _refusal(self, reason: str) -> ConfigurationError:
        servers = ",".join(f"{host}:{port}" for host, port in self.settings.bootstrap_servers)
        return ConfigurationError(
            _KEY, servers, f"brokers that answer ({' '.join(reason.split())})"
        )
