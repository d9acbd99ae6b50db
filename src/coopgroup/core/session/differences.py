"""Report the records of a round, and each difference of a member in policy or assignor only once.

Members of a rolling change restart one by one, and each restart is a round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coopgroup.core.member.effects import Report
from coopgroup.core.model.replacing import replaced
from coopgroup.core.telemetry.records import PolicyOrAssignorDiffers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopgroup.core.session.state import Session
    from coopgroup.core.telemetry.records import Record


def told_once(session: Session, records: Sequence[Record]) -> tuple[Session, tuple[Report, ...]]:
    """Return the reports of a leader's round, and the session that knows the differences in it."""
    known = session.differences
    found = {one.difference for one in records if isinstance(one, PolicyOrAssignorDiffers)}
    reports = tuple(
        Report(record=one)
        for one in records
        if not (isinstance(one, PolicyOrAssignorDiffers) and one.difference in known)
    )
    return session if found == known else replaced(session, differences=frozenset(found)), reports
