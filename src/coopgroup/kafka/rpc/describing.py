"""Describe a group from outside, without being a member.

DescribeGroups describes a classic group, and ConsumerGroupDescribe one that the broker assigns.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final, TypeAlias

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import (
    Action,
    RequestKind,
    action_for,
    error_name,
    usual_cause,
)
from coopgroup.core.model.group_api import Coordinator, FindCoordinatorRequest
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s, pause
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.rpc.consumer_groups import ConsumerGroup, DescribeConsumerGroup
from coopgroup.kafka.rpc.outcomes import FailureKind, TransportFailure
from coopgroup.kafka.rpc.questions import DescribedGroup, DescribeGroupRequest
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.printable import host_and_port

_PAUSE_S: Final = 0.2
_Describe: TypeAlias = DescribeGroupRequest | DescribeConsumerGroup
# Answers to ConsumerGroupDescribe: the coordinator does not assign such a group.
_NOT_ASSIGNED: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


def describe_group(
    settings: ConnectionSettings, group_id: str, timeout_ms: int = 10_000
) -> DescribedGroup:
    """Return a group's description by its coordinator.

    Raises:
        ConfigurationError: no answer in time, or the brokers refuse the question.
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
        ConfigurationError: no answer in time, or the brokers refuse the question.
    """
    with closing(GroupDescriber(settings, group_id)) as describer:
        return describer.describe(timeout_ms)[0]


@define(eq=False)
class GroupDescriber:
    """Describes a group again and again, over the same connections until `close`."""

    settings: ConnectionSettings
    group_id: str
    _transport: GroupTransport | None = field(default=None, init=False)
    _until_s: float = field(default=0.0, init=False)  # time limit of all requests of one question
    _refused: int = field(default=ErrorCode.NONE, init=False)  # code of its last answer

    def describe(self, timeout_ms: int) -> tuple[Coordinator, DescribedGroup]:
        """Return the group's coordinator and its description.

        Raises:
            ConfigurationError: no answer in time, or the brokers refuse the question.
        """
        coordinator, described = self._describe(
            DescribeGroupRequest(group_id=self.group_id), timeout_ms
        )
        return coordinator, described

    def describe_consumers(self, timeout_ms: int) -> tuple[Coordinator, ConsumerGroup]:
        """Return the same of a group that the broker assigns; any other one is an error code.

        Raises:
            ConfigurationError: no answer in time, or the brokers refuse the question.
        """
        coordinator, described = self._describe(
            DescribeConsumerGroup(group_id=self.group_id), timeout_ms
        )
        return coordinator, described

    def _describe(self, request: _Describe, timeout_ms: int) -> tuple[Coordinator, Any]:
        if self._transport is None:
            self._transport = GroupTransport(self.settings, lambda _: None)
            self._transport.start()
        self._until_s, self._refused = now_s() + timeout_ms / 1000, int(ErrorCode.NONE)
        try:
            while (described := self._ask_once(self._transport, request)) is None:
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

    def _ask_once(
        self, transport: GroupTransport, request: _Describe
    ) -> tuple[Coordinator, Any] | None:
        find = FindCoordinatorRequest(group_id=self.group_id)
        found = self._ask(transport, find, None)
        if found.coordinator is None:
            self._refuse_for_good(found.error_code)
            return None
        answer = self._ask(transport, request, found.coordinator)
        if isinstance(answer, ConsumerGroup) and answer.error_code in _NOT_ASSIGNED:
            return found.coordinator, answer
        self._refuse_for_good(answer.error_code)
        return (found.coordinator, answer) if answer.error_code == ErrorCode.NONE else None

    def _ask(
        self,
        transport: GroupTransport,
        request: FindCoordinatorRequest | _Describe,
        node: Coordinator | None,
    ) -> Any:  # noqa: ANN401  (the answer to the request)
        left_ms = self._left_ms()
        if left_ms <= 0:
            raise self._refusal("no answer in time")
        answer = transport.ask(Lane.COMMIT, request, node=node, timeout_ms=left_ms)
        if isinstance(answer, TransportFailure):
            if answer.kind is FailureKind.UNSUPPORTED and isinstance(
                request, DescribeConsumerGroup
            ):
                return ConsumerGroup(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
            raise self._refusal(answer.message)
        return answer

    def _refuse_for_good(self, code: int) -> None:
        self._refused = code
        if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise ConfigurationError("GROUP", self.group_id, "a group that this user may DESCRIBE")
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            expected = "a group whose topics this user may DESCRIBE"
            raise ConfigurationError("GROUP", self.group_id, expected)
        if action_for(RequestKind.FIND_COORDINATOR, code) is Action.FAIL:
            raise self._refusal(error_name(code))

    def _left_ms(self) -> int:
        return round(1000 * (self._until_s - now_s()))

    def _refusal(self, reason: str) -> ConfigurationError:
        if self._refused and self._left_ms() <= 0:
            return without_coordinator(self.group_id, self._refused)
        servers = ",".join(host_and_port(*one) for one in self.settings.bootstrap_servers)
        expected = f"brokers that answer ({' '.join(reason.split())})"
        return ConfigurationError("bootstrap.servers", servers, expected)


def without_coordinator(group_id: str, code: int) -> ConfigurationError:
    """Return the error of a group whose brokers answer, but with an error that did not pass."""
    reason = f"{error_name(code)}{usual_cause(code, ': ')}"
    return ConfigurationError("GROUP", group_id, f"a group whose coordinator answers ({reason})")
