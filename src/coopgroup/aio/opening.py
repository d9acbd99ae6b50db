"""Open a consumer: make its parts beside the loop, then its polling thread.

Rule of this file: a part that is opened while its start is cancelled is closed again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

from attrs import define

from coopgroup.aio.aside import aside
from coopgroup.aio.callbacks import GivenCallbacks, LoopCallbacks
from coopgroup.aio.hand_out import ConsumerStoppedError, HandOut
from coopgroup.aio.loop_port import LoopPort
from coopgroup.aio.polling import Polling
from coopgroup.core.assignors.base import Assignor
from coopgroup.core.policies.base import Policy
from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.parts import ConsumerParts

__all__ = ["Opening"]


@define(eq=False, kw_only=True)
class Opening:
    """All that a consumer needs to open."""

    port: LoopPort
    settings: ConsumerSettings
    assignor: Assignor | None
    policy: Policy | None
    errors: deque[BaseException]
    given: weakref.ref[GivenCallbacks]
    on_end: Callable[[BaseException | None], None]

    async def open(
        self, owner: Callable[[], object | None], is_closed: Callable[[], bool]
    ) -> Polling:
        """Return the polling thread, which is not started yet.

        Raises:
            ConsumerStoppedError: the consumer was closed or collected meanwhile.
        """
        parts = await aside(self.port, lambda: self._build(owner), _close)
        if is_closed():
            await aside(self.port, lambda: _close(parts))
            raise ConsumerStoppedError
        hand_out = HandOut(
            parts.driver,
            parts.fetching,
            self.port,
            self.errors,
            is_fetching_here="oauth_cb" not in self.settings.librdkafka,
            decoder=parts.decoder,
        )
        callbacks = LoopCallbacks(self.given, self.port, hand_out, parts.listener)
        return Polling(parts, hand_out, callbacks, self.on_end)

    def _build(self, owner: Callable[[], object | None]) -> ConsumerParts:
        consumer = owner()
        if consumer is None:
            raise ConsumerStoppedError
        parts = ConsumerParts.build(consumer, self.settings, self.assignor, self.policy)
        parts.listener.consumer = None  # the polling thread must not keep the consumer alive
        parts.start()
        return parts


def _close(parts: ConsumerParts) -> None:
    parts.stop()
    parts.close()
