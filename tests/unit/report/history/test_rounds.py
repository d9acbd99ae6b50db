"""Decisions of a leader and their reasons, in words."""

import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.report.history.names import named
from coopgroup.report.history.rounds import RoundRow, round_rows
from coopgroup.telemetry import RoundRefused, WithoutRoom
from tests.unit.report.histories import Story

TWO = ResourceSet({"orders": [0, 1]})
THREE, FOUR = ResourceSet({"orders": [3]}), ResourceSet({"orders": [4]})


def told(story: Story) -> list[RoundRow]:
    return list(round_rows(*named(story.envelopes)))


def test_members_that_come_and_go_are_the_reason_of_a_round() -> None:
    story = Story()
    story.lead(0, ["a", *(f"c-{number}" for number in range(1, 13))])
    story.lead(1, ["a", "b"], granted=THREE)
    story.lead(2, ["a", "b"])
    assert told(story)[1].sentences == (
        "New: b-id.",
        "Gone: 12 members (c-1-id, c-2-id, c-3-id, c-4-id, c-5-id, …).",
        "1 (orders 3) was free: granted.",
    )
    assert told(story)[2].sentences == (
        "The same members as before.",
        "Every member keeps what it has.",
    )


def test_protocol_of_another_client_is_named_and_ours_is_not() -> None:
    story = Story()
    story.lead(0, ["a"], protocol="cooperative-sticky")
    story.lead(1, ["a"], protocol="coopgroup")
    mixed, ours = (" ".join(row.sentences) for row in told(story))
    assert "The group spoke cooperative-sticky, a protocol of Kafka's own clients." in mixed
    assert "spoke" not in ours


@pytest.mark.parametrize(
    ("decided", "sentences"),
    [
        (
            {"revoked": TWO, "waiting": TWO | THREE, "follow_up": True},
            (
                "2 (orders 0-1) leave their owner by the target: the owner stops first.",
                "1 (orders 3) waits until another member has released it.",
                "Another round follows as soon as they have stopped.",
            ),
        ),
        (
            {"revoked": TWO | THREE, "gone": THREE | FOUR, "follow_up": True},
            (
                "1 (orders 3) no longer exists, or no member subscribes to it: its owner stops it.",
                "2 (orders 0-1) leave their owner by the target: the owner stops first.",
                "Another round follows as soon as they have stopped.",
            ),
        ),
        (
            {"revoked": TWO, "gone": TWO},
            (
                (
                    "2 (orders 0-1) no longer exist, or no member subscribes to them: "
                    "their owner stops them."
                ),
            ),
        ),
        (
            {"lost": TWO, "rejoin_in_ms": 30_000},
            (
                "2 (orders 0-1) were lost with their owner and wait for it to come back.",
                "At latest in 30 s what is still lost is given away.",
            ),
        ),
        (
            {"rejoin_in_ms": 500},
            ("Every member keeps what it has.", "At latest in 0.5 s comes the next round."),
        ),
        (
            {"policy": "incremental", "rejoin_in_ms": 1_500},
            ("Every member keeps what it has.", "At latest in 1.5 s the next moves follow."),
        ),
        (
            {"contested": THREE},
            ("1 (orders 3) was claimed twice in one generation: granted to nobody in this round.",),
        ),
        (
            {"granted": TWO, "created": TWO},
            ("2 (orders 0-1) were never owned before: granted at once.",),
        ),
    ],
)
def test_decision_is_said_with_its_reason(
    decided: dict[str, object], sentences: tuple[str, ...]
) -> None:
    story = Story()
    story.lead(0, ["a"], **decided)
    (row,) = told(story)
    assert row.sentences[1:] == sentences


def test_owner_that_a_new_leader_does_not_know_is_not_denied() -> None:
    """After the death of a leader with its work, the new one takes what nobody claims as new."""
    story = Story()
    story.work(0, "a", TWO)
    story.lead(9, ["b"], granted=TWO | THREE, created=TWO | THREE)
    story.lead(10, ["b"], gone=TWO)
    story.lead(11, ["b"], granted=TWO, created=TWO)
    rows = told(story)
    assert rows[0].sentences[1:] == (
        "1 (orders 3) was never owned before: granted at once.",
        "2 (orders 0-1) had an owner that this leader does not know: granted at once.",
    )
    assert "2 (orders 0-1) were never owned before: granted at once." in rows[2].sentences


def test_resources_without_room_are_named_with_the_reasons() -> None:
    story = Story()
    story.lead(0, ["a"])
    reasons = ("all 2 that fit are full", "it fits no member")
    story.write(0, "a", WithoutRoom(resources=TWO, reasons=reasons))
    story.lead(1, ["a"])
    led, after = told(story)
    assert led.sentences[-1] == (
        "2 (orders 0-1) have no room: all 2 that fit are full; it fits no member."
    )
    assert "room" not in " ".join(after.sentences)


def test_refused_round_is_a_row_of_its_own() -> None:
    story = Story()
    story.lead(0, ["a"])
    story.write(1, "a", RoundRefused(violations=("two owners", "no answer for b")))
    story.lead(2, ["a"])
    _, refused, after = told(story)
    assert refused.refused
    assert refused.sentences == ("Refused, so nothing moved: two owners; no answer for b.",)
    assert after.sentences[0] == "The same members as before."
