"""Write an output line of `coopgroup plan`.

The format is fixed (docs: plan). Lists ascend and keys are sorted, so equal rounds give equal bytes
under any hash seed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from coopgroup.core.leader import RoundDecision, member_assignments
from coopgroup.core.policies.state import state_to_json
from coopgroup.protocol import Assignment
from coopgroup.telemetry import Envelope, Record, to_json

__all__ = ["line_bytes", "refused_row", "round_row"]

_ENVELOPE_NOISE: Final = ("schema", "group", "client", "member", "generation")


def round_row(decided: RoundDecision, now_ms: int) -> dict[str, Any]:
    """Return the decision of a leader in the fixed format."""
    group, plan = decided.group, decided.plan
    take = group.resources.take
    targets = zip(group.member_ids, group.by_member(plan.target), strict=True)
    told = zip(group.member_ids, member_assignments(decided), strict=True)
    row = {
        "target": {member: resources.to_dict() for member, resources in targets},
        "members": {member: _member_row(assignment) for member, assignment in told},
        "lost": take(plan.lost).to_dict(),
        "created": take(plan.created).to_dict(),
        "waiting": take(plan.waiting).to_dict(),
        "state": state_to_json(decided.state),
        "events": [_event_row(record, now_ms) for record in decided.records],
    }
    if (
        plan.waiting_for_members is not None and plan.waiting_for_members.any()
    ):  # only possible while a group forms
        row["held"] = take(plan.waiting_for_members).to_dict()
    return row


def refused_row(error: Exception) -> dict[str, Any]:
    """Return the reason for refusing a line, in one sentence."""
    return {"error": " ".join(str(error).split())}


def line_bytes(row: dict[str, Any]) -> bytes:
    """Return a row as a line of ASCII with its line end."""
    return (json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n").encode("ascii")


def _member_row(assignment: Assignment) -> dict[str, Any]:
    revoked, warmups = assignment.revoked, assignment.warmups
    return ({} if warmups is None else {"warmups": warmups.to_dict()}) | {
        "assigned": assignment.assigned.to_dict(),
        "revoked": None if revoked is None else revoked.to_dict(),
        "scheduled_rebalance_timeout_ms": assignment.scheduled_rebalance_timeout_ms,
    }


def _event_row(record: Record, now_ms: int) -> dict[str, Any]:
    row = to_json(Envelope(at_ms=now_ms, group="", member="", generation=-1, record=record))
    return {name: value for name, value in row.items() if name not in _ENVELOPE_NOISE}
