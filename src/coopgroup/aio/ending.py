"""The end of a consumer: the polling thread reports it, and the tasks that close wait for it.

Rule of this file: a cancelled task still waits. Otherwise `asyncio.run` would end the loop while
the consumer gives up its partitions.
"""

from __future__ import annotations

import asyncio

from attrs import define, field

from coopgroup.aio.loop_port import LoopPort

__all__ = ["Ending"]


@define(eq=False)
class Ending:
    """Whether a consumer has ended, and how.

    Attributes:
        is_over: whether the polling thread has closed the consumer.
    """

    port: LoopPort
    is_over: bool = field(default=False, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _waiting: set[asyncio.Future[None]] = field(factory=set, init=False)

    def report(self, failure: BaseException | None) -> None:
        """Report the end, with the exception of the close or None; on the polling thread."""
        self._failure, self.is_over = failure, True
        self.port.call(self._wake)

    def take_failure(self) -> BaseException | None:
        """Return the exception of the close, only once."""
        failure, self._failure = self._failure, None
        return failure

    async def wait(self) -> asyncio.CancelledError | None:
        """Wait for the end, also if the task is cancelled; return the last cancellation."""
        loop = asyncio.get_running_loop()
        cancelled: asyncio.CancelledError | None = None
        while not self.is_over:
            waiting: asyncio.Future[None] = loop.create_future()
            self._waiting.add(waiting)
            try:
                if not self.is_over:  # it may have ended before it could see this future
                    await waiting
            except asyncio.CancelledError as error:
                cancelled = error
            finally:
                self._waiting.discard(waiting)
        return cancelled

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
