"""Who worked on which resource of topic t, from a list of intervals."""

from collections.abc import Iterable

from coopgroup.core.model import NOBODY, ResourceSet
from coopgroup.telemetry import Ledger, Spans

Interval = tuple[int, int, int, int]  # resource, owner, begin, end


def ledger_of(
    intervals: Iterable[Interval],
    *,
    until_ms: int,
    resources: int = 3,
    owners: int = 3,
    known_ms: Iterable[int] = (),
) -> Ledger:
    """Return the work on `t` from intervals in any order, and when each resource became known."""
    unknown = ((number, NOBODY, 0, at_ms) for number, at_ms in enumerate(known_ms))
    return Ledger(
        resources=ResourceSet({"t": range(resources)}),
        clients=tuple(f"c-{number}" for number in range(owners)),
        work=Spans.of(intervals).tidy(),
        absent=Spans.of(unknown).tidy(),
        begin_ms=0,
        until_ms=until_ms,
    )
