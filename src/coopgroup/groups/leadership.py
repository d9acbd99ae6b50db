"""`Leadership`: one holder among many processes, and never two.

A leadership is a group that shares a single resource. What keeps two processes from leading at once
is the member's lease: a holder that the group might have given up does not lead any more, by its
own clock and before anybody tells it. There is nothing to clean up, so it goes to another process
as soon as its holder leaves, or as its session ends.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, Self

from coopgroup.assignors.sticky import StickyAssignor
from coopgroup.errors import ConfigurationError
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.group import CooperativeGroup
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.settings import merge_configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopgroup.groups.work import WorkFailure
    from coopgroup.model import Resource

__all__ = ["Leadership"]

# A lease that ends is noticed so soon by whoever waits for it.
_STEP_S: Final = 0.05


class Leadership:
    """One process of a group leads.

    Two forms, which may be mixed. As a context manager: enter, `wait` until this process leads, and
    look at `leads` before whatever only the leader may do. With callbacks: `on_elected` is called
    when it leads from now on, `on_lost` when it does not any more; they run one after the other on
    a thread of the group, and `on_elected` must return for `on_lost` to be called.

    Args:
        configuration: connection keys of `confluent_kafka`, `group.id` and coopgroup's own; what is
            not given has the defaults of a `CooperativeGroup`.
        name: what is led; processes of one group may compete for one name only.
        on_elected: called with the token, see `token`.
        on_lost: called without arguments.
        on_error: called with a `WorkFailure` for what either raises, which is then called again.
        more: further keys, which win over those in `configuration`.

    Raises:
        ConfigurationError: a key is unknown or has a value that it cannot have; the name is none;
            or there is a `group.instance.id`, with which two processes would lead at once.
        TypeError: a callback cannot be called.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any] | None = None,
        /,
        *,
        name: str = "leader",
        on_elected: Callable[[int], object] | None = None,
        on_lost: Callable[[], object] | None = None,
        on_error: Callable[[WorkFailure], object] | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
        """Read the configuration; nothing is joined yet."""
        for callback in (on_elected, on_lost):
            if callback is not None and not callable(callback):
                raise TypeError("on_elected and on_lost expect a callable")
        configuration = merge_configuration(configuration, more)
        if configuration.get("group.instance.id") is not None:
            raise ConfigurationError(
                "group.instance.id",
                configuration["group.instance.id"],
                "none: a static id gives its place to another process at once, with the same token",
            )
        self._resource = (name, 0)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._is_closed = False
        self._group = CooperativeGroup(
            configuration,
            catalogue=Catalogue.of([self._resource]),
            start=self._elected,
            stop=self._lost,
            on_error=on_error,
            assignor=StickyAssignor(),
        )

    def __enter__(self) -> Self:
        """Compete for the leadership, in the background."""
        self._group.join()
        return self

    def __exit__(self, *_: object) -> None:
        """Resign, if this process leads, and leave the group."""
        self.close()

    def join(self) -> None:
        """Compete for the leadership, in the background.

        Raises:
            RuntimeError: it has joined before, or is closed.
        """
        self._group.join()

    def close(self) -> None:
        """Resign, if this process leads, and leave the group.

        Raises:
            RuntimeError: called from a callback.
        """
        self._group.close()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def leads(self) -> bool:
        """Whether this process leads at this very moment, by the clock.

        It is False as soon as another process might lead. What it does after it has looked may
        still come late, if the process is paused in between: see `token`.
        """
        return self._group.holds(self._resource)

    @property
    def token(self) -> int | None:
        """A number that grows from leader to leader; None while this process does not lead.

        Give it along with whatever the leader writes, and have the other side refuse a smaller one
        than it has seen: so nothing that an earlier leader sent late does harm (a fencing token).
        See `CooperativeGroup.token` for when it begins anew.
        """
        token = self._group.token(self._resource)
        return token if self.leads else None

    @property
    def failure(self) -> str | None:
        """Why the group refused this process for good; None while it did not."""
        return self._group.failure

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until this process leads.

        Args:
            timeout_s: how long, in seconds; None for as long as it takes.

        Returns:
            The token; None if the time is over, it is closed, or the group refused this process for
            good.
        """
        tokens = list[int]()

        def leads() -> bool:
            token = self.token
            tokens.extend(() if token is None else (token,))
            return bool(tokens)

        self._wait_for(leads, timeout_s)
        return tokens[0] if tokens else None

    def wait_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until this process does not lead; whether that came in time."""
        self._wait_for(lambda: not self.leads, timeout_s)
        return not self.leads

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        with self._changed:
            while not condition():
                left_s = _STEP_S if deadline_s is None else min(_STEP_S, deadline_s - now_s())
                if left_s <= 0 or self._is_closed or self.failure is not None:
                    return
                self._changed.wait(left_s)

    def _elected(self, resource: Resource) -> None:
        # Not `token`: the lease may be over by the clock, and yet be renewed before it is lost.
        token = self._group.granted_token(resource)
        with self._changed:
            self._changed.notify_all()
        if self._on_elected is not None and token is not None:
            self._on_elected(token)

    def _lost(self, resource: Resource) -> None:  # noqa: ARG002 - there is only one
        with self._changed:
            self._changed.notify_all()
        if self._on_lost is not None:
            self._on_lost()
