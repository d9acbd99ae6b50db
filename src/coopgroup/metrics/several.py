"""`Several`: more than one telemetry listener for one member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coopgroup.metrics.feed import Probe
from coopgroup.telemetry import Envelope


class Several:
    """Passes each record to all of its listeners, in order.

    A listener that raises keeps the record from no other listener; the first exception is raised
    after all were called.

    Args:
        listeners: callables, also those of this package.
    """

    def __init__(self, *listeners: Callable[[Envelope], object]) -> None:
        self._listeners = listeners

    def watch_member(self, probe: Probe) -> Several:
        """Return the listeners of one member; a consumer calls it when it is made."""
        return Several(*(_of_member(one, probe) for one in self._listeners))

    def __call__(self, envelope: Envelope) -> None:
        """Pass on a record."""
        failure: Exception | None = None
        for listener in self._listeners:
            try:
                listener(envelope)
            except Exception as error:  # noqa: BLE001 -- raised once all have been called
                failure = failure or error
        if failure is not None:
            raise failure


def _of_member(listener: Callable[[Envelope], object], probe: Probe) -> Any:  # noqa: ANN401
    watch = getattr(listener, "watch_member", None)
    return watch(probe) if callable(watch) else listener
