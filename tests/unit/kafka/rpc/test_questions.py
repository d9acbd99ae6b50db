"""The settings of a consumer group that the answers of KIP-848 do not tell."""

from typing import Any

import pytest
from kafka.protocol.admin.configs import DescribeConfigsResponse

from coopgroup.kafka.rpc.questions import FindGroupTimeouts, GroupTimeouts

NAMES = ["consumer.session.timeout.ms", "consumer.assignment.interval.ms"]
QUESTION = FindGroupTimeouts(group_id="g")


def test_question_names_the_group_and_two_settings() -> None:
    (group,) = QUESTION.message().resources
    assert (group.resource_type, group.resource_name) == (32, "g")
    assert group.configuration_keys == NAMES


@pytest.mark.parametrize(
    ("code", "values", "answer"),
    [
        (0, {NAMES[0]: "45000", NAMES[1]: "1000"}, (45_000, 1_000)),
        (0, {NAMES[0]: "30000"}, (30_000, None)),
        (0, {NAMES[0]: None}, (None, None)),
        (30, {}, (None, None)),
    ],
    ids=["both", "before Kafka 4.3", "hidden", "refused"],
)
def test_answer_has_what_the_broker_tells(
    code: int, values: dict[str, str | None], answer: tuple[int | None, int | None]
) -> None:
    kind: Any = DescribeConfigsResponse.DescribeConfigsResult
    configs = [
        kind.DescribeConfigsResourceResult(name=name, value=value) for name, value in values.items()
    ]
    response: Any = DescribeConfigsResponse(
        results=[kind(error_code=code, resource_type=32, resource_name="g", configs=configs)]
    )
    session_ms, interval_ms = answer
    assert QUESTION.read(response) == GroupTimeouts(
        error_code=code, session_ms=session_ms, assignment_interval_ms=interval_ms
    )
