"""Errors of the group's own connections, for the application's `error_cb`.

librdkafka is not a member of the group, so it does not see these errors. They are reported with
librdkafka's codes: a coordinator that does not answer is `_TRANSPORT`, a refused login is
`_AUTHENTICATION`. Refusals that belong to a rebalance are not errors: the member handles them.

Rule of this file: `error_cb` runs on the application's thread, in `poll`, as with librdkafka.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaError

from coopgroup.core.member import ErrorCode
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.clock import now_s
from coopgroup.telemetry import Record, RequestRefused

__all__ = ["GroupErrors"]

_CODES: Final = {
    ErrorCode.NO_ANSWER.name: KafkaError._TRANSPORT,
    ErrorCode.UNAUTHENTICATED.name: KafkaError._AUTHENTICATION,
    ErrorCode.UNSUPPORTED_BY_BROKER.name: KafkaError._UNSUPPORTED_FEATURE,
}
# librdkafka suppresses a repeated error for the same time.
_AGAIN_S: Final = 30.0


@define(eq=False)
class GroupErrors:
    """Reports the errors of one consumer's group."""

    error_cb: Callable[[KafkaError], Any]
    inbox: ApplicationInbox
    _told_at_s: dict[str, float] = field(factory=dict, init=False)

    def hear(self, record: Record) -> None:
        """Report a refused request, on the group's thread; ignore all other records."""
        if not isinstance(record, RequestRefused):
            return
        code = _CODES.get(record.error)
        now = now_s()
        if code is None or now < self._told_at_s.get(record.error, -math.inf) + _AGAIN_S:
            return
        self._told_at_s[record.error] = now
        words = f"GroupCoordinator: {record.request} failed: {record.error} ({record.action})"
        error_cb, error = self.error_cb, KafkaError(code, words)
        self.inbox.call_soon(lambda: error_cb(error))
