"""`Memo`: remember the steps of the core between runs that are nearly the same.

The core is pure: the same session, event and time give the same session and effects. Runs that
differ in one fault take the same steps until the fault, and after it as long as it changes nothing
for a process. `Memo` returns these steps from memory. A session is recognized as an object, so a
step is only found if all steps before it were.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from coopgroup.core.leader import read_members
from coopgroup.core.leader.rounds import lead_round
from coopgroup.core.session import (
    DecisionMade,
    LagsChecked,
    new_session,
    session_deadline_ms,
    step,
)
from coopgroup.simulator.host import process as host

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

_BY_IDENTITY = (DecisionMade, LagsChecked)  # of an effect, and of another memory


@define(eq=False)
class Memo:
    """Results of pure functions.

    Attributes:
        kept: results that stay.
        passing: results that `forget` drops.
        keeps: whether new results stay.
    """

    kept: dict[Hashable, Any] = field(factory=dict)
    passing: dict[Hashable, Any] = field(factory=dict)
    keeps: bool = True

    def forget(self) -> None:
        """Drop the results that do not stay."""
        self.passing.clear()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let the processes of the simulator use it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(host, "new_session", self._new_session)
            patch.setattr(host, "step_session", self._step)
            patch.setattr(host, "session_deadline_ms", self._deadline_ms)
            patch.setattr(host, "read_members", self._read_members)
            patch.setattr(host, "lead_round", self._lead_round)
            yield

    def _find(self, key: Hashable, alive: object, compute: Callable[[], Any]) -> Any:  # noqa: ANN401 - any result
        """Return a result; `alive` keeps objects alive whose identity is part of the key."""
        found = self.kept.get(key) or self.passing.get(key)
        if found is None:
            found = alive, compute()
            (self.kept if self.keeps else self.passing)[key] = found
        return found[1]

    def _new_session(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        key = (arguments[0], repr((arguments[1:], sorted(named.items()))))
        return self._find(key, None, lambda: new_session(*arguments, **named))

    def _step(self, session: Any, event: Any, *, now_ms: int) -> Any:  # noqa: ANN401 - passed on
        key = (id(session), now_ms, id(event) if isinstance(event, _BY_IDENTITY) else event)
        return self._find(key, (session, event), lambda: step(session, event, now_ms=now_ms))

    def _deadline_ms(self, session: Any) -> Any:  # noqa: ANN401 - passed on
        return self._find((id(session),), session, lambda: session_deadline_ms(session))

    def _read_members(self, members: Any, *, index_min: int) -> Any:  # noqa: ANN401 - passed on
        key = (id(members), index_min)
        return self._find(key, members, lambda: read_members(members, index_min=index_min))

    def _lead_round(self, duty: Any, request: Any, metadata: Any, lags: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        def compute() -> DecisionMade:
            return lead_round(duty, request, metadata, lags, **named)

        if lags is not None or metadata is None:
            return compute()
        key = (id(duty), metadata.resources, bytes(metadata.weights or b""))
        return self._find(key, duty, compute)
