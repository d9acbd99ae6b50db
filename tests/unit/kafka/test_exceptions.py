"""A permanent refusal by the group says which setting is wrong, and what would be right."""

import pytest

from coopgroup.core.member import ErrorCode, MemberConfig
from coopgroup.core.member.error_actions import error_name
from coopgroup.kafka.exceptions import refusal

MEMBER = MemberConfig(group_id="billing", instance_id="pod-1", session_timeout_ms=100)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (
            ErrorCode.INVALID_SESSION_TIMEOUT,
            (
                "session.timeout.ms: got 100, expected a value that the brokers allow: from "
                "group.min.session.timeout.ms (6000 by default) to group.max.session.timeout.ms"
            ),
        ),
        (
            ErrorCode.FENCED_INSTANCE_ID,
            "group.instance.id: got 'pod-1', expected an id that no other process uses",
        ),
        (
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "group.id: got 'billing', expected a group on which this user has the right Read",
        ),
        (
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            (
                'offer their protocol beside ours, such as "coopgroup.protocols": '
                '"coopgroup,range"; `coopgroup group migrate --check billing` prints the next step'
            ),
        ),
    ],
)
def test_refusal_by_the_group_has_its_remedy(code: ErrorCode, remedy: str) -> None:
    said = f"JoinGroup answered {error_name(code)}"
    error = refusal(code, said, MEMBER).args[0]
    assert (error.str(), error.fatal()) == (f"{said}: {remedy}", True)


def test_refusal_without_a_remedy_has_its_text_alone() -> None:
    assert refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, "full", MEMBER).args[0].str() == "full"
