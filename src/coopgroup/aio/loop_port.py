"""The way from the polling thread to the application's event loop.

A consumer belongs to one event loop at a time. When that loop is closed, the next loop that uses
the consumer takes over, so a consumer may stay open between two calls of `asyncio.run`.

`aside` awaits a call that blocks, on another thread. Only the start of a consumer and look-ups need
this, such as `committed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import define, field

from coopgroup.worker import URGENT, Worker


@define(eq=False)
class LoopPort:
    """Calls functions on the application's loop, from any thread."""

    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)

    def bind(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, which from now on is the application's loop.

        Raises:
            RuntimeError: another loop that is still open uses the consumer, or no loop runs.
        """
        running = asyncio.get_running_loop()
        if self.loop is not running:
            if self.loop is not None and not self.loop.is_closed():
                raise RuntimeError(
                    "the consumer is used by another event loop, which is not closed"
                )
            self.loop = running
        return running

    def call(self, function: Callable[..., object], *arguments: Any) -> bool:  # noqa: ANN401
        """Call a function on the loop soon; return False if there is no open loop."""
        loop = self.loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True


T = TypeVar("T")

_worker: Final = Worker("coopgroup-aio-look-up")


async def aside(
    port: LoopPort, call: Callable[[], T], discard: Callable[[T], object] | None = None
) -> T:
    """Return the result of a blocking call, or raise its exception.

    Args:
        port: the loop of the caller.
        call: the call. It goes on if the caller is cancelled.
        discard: gets the result if the caller was cancelled, on either thread.
    """
    answer: asyncio.Future[T] = port.bind().create_future()
    loop = answer.get_loop()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():  # cancelled
            if error is None and discard is not None:
                discard(result)  # type: ignore[arg-type]  # a result, because there is no error
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]  # as above

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = call()
        except BaseException as raised:  # noqa: BLE001 -- the caller raises it
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed
            if error is None and discard is not None:
                discard(result)  # type: ignore[arg-type]  # as above

    # A look-up may take 30 s. No other call waits for it.
    _worker.submit(run, urgency=URGENT)
    return await answer
