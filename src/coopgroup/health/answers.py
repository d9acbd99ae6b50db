"""The answers to probes, from the health of all members of a process: pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from attrs import frozen

from coopgroup.kafka.health.value import Health, HealthLimits

_OK: Final = 200
_UNAVAILABLE: Final = 503


@frozen
class Answer:
    """An HTTP answer: status, type of the content, content."""

    status: int
    kind: str
    content: bytes


def live(members: Iterable[Health], limits: HealthLimits) -> Answer:
    """Return 200 if no member is stuck, else 503 with the problems of each member."""
    found = [_told(one, one.problems(limits)) for one in members]
    return _answer(found, is_good=not any(one["problems"] for one in found))


def ready(members: Iterable[Health]) -> Answer:
    """Return 200 if all members are in their groups, else 503; partitions are not required."""
    known = list(members)
    found = [_told(one, () if one.is_ready else ("not in the group",)) for one in known]
    return _answer(found, is_good=all(one.is_ready for one in known))


def _answer(found: list[dict[str, Any]], *, is_good: bool) -> Answer:
    content = json.dumps({"ok": is_good, "members": found}, indent=1).encode() + b"\n"
    return Answer(_OK if is_good else _UNAVAILABLE, "application/json", content)


def _told(health: Health, problems: tuple[str, ...]) -> dict[str, Any]:
    return {
        "group": health.group_id,
        "client_id": health.client_id,
        "member_id": health.member_id,
        "state": health.state,
        "generation": health.generation,
        "partitions": len(health.owned),
        "lease_s": round(health.lease_s, 3) if math.isfinite(health.lease_s) else None,
        "since_poll_s": round(health.since_poll_s, 3),
        "problems": list(problems),
        "group_problems": list(health.group_problems()),
    }
