"""Check the invariants that every run must satisfy. The only input is the telemetry of the run.

The checkers do not use the code under test, and know no policy. A member, leader or policy with a
wrong state therefore cannot hide its error from them. The host itself reports violations that no
record can show. Rules of the built-in policies are checked by the swarm (tests/swarm/checkers).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from coopgroup.core.model import ResourceSet
from coopgroup.simulator.checkers.commits import check_commits
from coopgroup.simulator.checkers.holdings import check_pairs, check_single_owner
from coopgroup.simulator.checkers.members import check_members, check_retained
from coopgroup.simulator.checkers.rest import check_rest
from coopgroup.simulator.world import Violation
from coopgroup.telemetry import Envelope

__all__ = [
    "Expectations",
    "check_commits",
    "check_instants",
    "check_members",
    "check_pairs",
    "check_rest",
    "check_retained",
    "check_run",
    "check_single_owner",
]


@frozen(kw_only=True)
class Expectations:
    """The limits and expectations for one run.

    Attributes:
        owned: resources that exist at the end and have a living subscriber.
        quiet_from_ms: time by which the group must be at rest.
        slack_ms: longest time for a round to begin and end.
        stop_max_ms: the rebalance timeout; a resource that has not stopped by then is lost.
        with_rounds: whether leaders have decided all assignments. Members of KIP-848 make the
            broker decide, which leaves no record of its own.
    """

    owned: ResourceSet
    quiet_from_ms: int
    end_ms: int
    slack_ms: int
    stop_max_ms: int
    is_eager: bool = False
    with_rounds: bool = True


def check_instants(
    telemetry: Sequence[Envelope],
    *,
    stop_max_ms: int,
    is_eager: bool = False,
    with_rounds: bool = True,
) -> Iterator[Violation]:
    """Yield violations of the invariants that hold at every instant of a run."""
    yield from check_single_owner(telemetry)
    yield from check_commits(telemetry)
    if not is_eager:
        yield from check_pairs(telemetry, stop_max_ms=stop_max_ms)
    if with_rounds:
        yield from check_members(telemetry, is_eager=is_eager)
        if not is_eager:
            yield from check_retained(telemetry)


def check_run(telemetry: Sequence[Envelope], expected: Expectations) -> tuple[Violation, ...]:
    """Return all violations of a run that has ended, in order of time."""
    found = [
        *check_rest(
            telemetry, expected.owned, expected.quiet_from_ms, expected.end_ms, expected.slack_ms
        ),
        *check_instants(
            telemetry,
            stop_max_ms=expected.stop_max_ms,
            is_eager=expected.is_eager,
            with_rounds=expected.with_rounds,
        ),
    ]
    return tuple(sorted(found, key=lambda one: one.at_ms))
