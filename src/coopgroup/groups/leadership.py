"""`Leadership`: one holder among many processes, and never two.

A leadership is a group that shares a single resource. The member's lease prevents two leaders at
the same time. A holder that the group might have dropped stops leading by its own clock, before any
message arrives. There is nothing to clean up. So the leadership moves to another process as soon as
its holder leaves or its session ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from coopgroup.core.assignors.sticky.assignor import StickyAssignor
from coopgroup.core.model import Resource
from coopgroup.errors import ConfigurationError, Decline, StartFailed
from coopgroup.groups.callbacks import WorkFailure
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.group import CooperativeGroup
from coopgroup.groups.peers import Peer
from coopgroup.kafka.config.settings import merge_configuration
from coopgroup.kafka.forked import is_of_parent, keep_to_process
from coopgroup.kafka.health.value import Health
from coopgroup.kafka.plugins import AssignorChoice, PolicyChoice


class Leadership:
    """One process of a group leads.

    There are two forms, which may be mixed. As a context manager: enter, `wait` until this process
    leads, and check `leads` before each action that is only for the leader. With callbacks:
    `on_elected` is called when this process begins to lead, `on_lost` when it no longer leads. They
    run sequentially on a thread of the group, and `on_elected` must return before `on_lost` is
    called.

    Args:
        configuration: connection keys of `confluent_kafka`, `group.id` and coopgroup's own. Other
            keys have the defaults of a `CooperativeGroup`.
        name: name of the leadership; processes of one group may compete for one name only.
        on_elected: called with the token, see `token`. If it raises `Decline` or `StartFailed`,
            another process leads.
        on_lost: called without arguments.
        on_error: called with a `WorkFailure` for an exception of either callback, which is then
            called again.
        policy: decides when the leadership moves, as for a `CooperativeGroup`.
        assignor: decides where it goes, in the same forms; the default is `StickyAssignor()`.
        more: further keys, which take precedence over those in `configuration`.

    Raises:
        ConfigurationError: a key is unknown or has an invalid value, the name, the policy or the
            assignor is invalid, or there is a `group.instance.id`. With a `group.instance.id`, two
            processes would lead at the same time.
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
        policy: PolicyChoice | None = None,
        assignor: AssignorChoice | None = None,
        **more: Any,  # noqa: ANN401  (values of configuration keys)
    ) -> None:
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
        if assignor is None:
            assignor = configuration.get("coopgroup.assignor", StickyAssignor())
        self._resource = (name, 0)
        self._on_elected = on_elected
        self._on_lost = on_lost
        self._is_closed = False
        self._group = CooperativeGroup(
            configuration,
            catalogue=Catalogue.of([self._resource]),
            start=self._elected,
            stop=self._lost,
            on_error=on_error,
            policy=policy,
            assignor=assignor,
        )

    def __enter__(self) -> Self:
        self.join()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def join(self) -> None:
        """Compete for the leadership, in the background.

        Raises:
            RuntimeError: the group was joined before, or is closed.
        """
        keep_to_process(self, "_group")
        self._group.join()

    def close(self) -> None:
        """Resign, if this process leads, and leave the group.

        Raises:
            RuntimeError: called from a callback.
        """
        if is_of_parent(self._group):
            return
        self._group.close()
        self._is_closed = True

    @property
    def leads(self) -> bool:
        """Return whether this process leads at this moment, by the clock.

        It is False as soon as another process might lead. An action after the check may still come
        late if the process is paused in between: see `token`.
        """
        return self._group.holds(self._resource)

    @property
    def token(self) -> int | None:
        """Return a number that grows from leader to leader; None if this process does not lead.

        Send the token with each write of the leader, and make the receiver refuse a smaller token
        than it has seen. Then late writes of an earlier leader do no harm (a fencing token). See
        `CooperativeGroup.token` for when tokens begin anew.
        """
        token = self._group.token(self._resource)
        return token if self.leads else None

    @property
    def leader(self) -> Peer | None:
        """Ask the group coordinator which process leads; None if no process leads at this moment.

        Other processes than the leader learn its `client_id` and `host` here. The answer can be
        out of date when it arrives: check `leads` before an action.

        Raises:
            ConfigurationError: no broker answers in time, or the brokers refuse the question.
        """
        found = (one for one in self._group.members() if self._resource in (one.resources or ()))
        return next(found, None)

    @property
    def failure(self) -> str | None:
        """Return why the group permanently refused this process; None if it did not."""
        return self._group.failure

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use this name and password from now on; see `CooperativeGroup.set_sasl_credentials`.

        Raises:
            TypeError: an argument is not a string.
            ValueError: a string contains NUL.
        """
        self._group.set_sasl_credentials(username, password)

    def health(self) -> Health:
        """Return the state of this member; see `coopgroup.health`."""
        return self._group.health()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until this process leads.

        Args:
            timeout_s: how long to wait, in seconds; None waits without limit.

        Returns:
            The token; None after the timeout, after `close`, or if the group permanently refused
            this process.
        """
        tokens = list[int]()

        def leads() -> bool:
            token = self.token
            tokens.extend(() if token is None else (token,))
            return bool(tokens)

        self._wait_for(leads, timeout_s)
        return tokens[0] if tokens else None

    def wait_lost(self, timeout_s: float | None = None) -> bool:
        """Wait until this process does not lead; return whether this came in time."""
        self._wait_for(lambda: not self.leads, timeout_s)
        return not self.leads

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None) -> None:
        self._group._work.wait_for(  # noqa: SLF001  (of this package)
            lambda: condition() or self._is_closed or self.failure is not None, timeout_s
        )

    def _elected(self, resource: Resource) -> None:
        # Not `token`: the lease may have run out by the clock, and still be renewed before it is
        # lost.
        token = self._group.granted_token(resource)
        if self._on_elected is not None and token is not None:
            try:
                self._on_elected(token)
            except StartFailed as error:  # nobody could restart it here
                raise Decline(str(error)) from error

    def _lost(self, resource: Resource) -> None:  # noqa: ARG002 - there is only one
        if self._on_lost is not None:
            self._on_lost()
