"""The way from the polling thread to the application's event loop.

A consumer belongs to one event loop at a time. When that loop is closed, the next loop that uses
the consumer takes over, so a consumer may stay open between two calls of `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from attrs import define, field

__all__ = ["LoopPort"]


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
