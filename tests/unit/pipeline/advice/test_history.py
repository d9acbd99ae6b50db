"""Episodes: grouping of absences, identity of processes, and omitted absences."""

import pytest
from attrs import evolve

from coopgroup.pipeline.advice.history import Episode, Seen, episodes_of, span_words
from coopgroup.simulator.scenario import How

SEEN = Seen(
    process="p@h",
    gone_ms=1_000_000,
    absent_ms=20_000,
    watched_ms=9_000_000,
    how=How.CLOSE,
)


def made(*absences: Seen, joins: dict[int, int] | None = None) -> tuple[Episode, ...]:
    return episodes_of(absences, joins or {}, watched_ms_min=600_000)[0]


def test_process_that_goes_again_is_the_same_and_twins_are_not() -> None:
    """Two threads of one host look alike, but an absent process cannot leave again."""
    again = evolve(SEEN, gone_ms=1_030_000)
    twin = evolve(SEEN, gone_ms=1_005_000)
    (episode,) = made(SEEN, again, twin)
    assert [(one.at_ms, one.process) for one in episode.absences] == [
        (0, 1),
        (5_000, 2),
        (30_000, 1),
    ]


def test_absence_without_end_is_permanent_only_if_watched_for_long() -> None:
    gone = evolve(SEEN, absent_ms=None)
    unknown = evolve(gone, watched_ms=599_999)
    episodes, left_out = episodes_of([gone, unknown], {}, watched_ms_min=600_000)
    assert [one.absent_ms for episode in episodes for one in episode.absences] == [None]
    assert left_out == 1


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (14, "14.0 days"),
        (1, "1.0 days"),
        (0.5, "12.0 hours"),
        (1 / 24, "1.0 hours"),
        (1 / 96, "15 minutes"),
        (1 / 1_440, "1 minute"),
    ],
)
def test_spans_are_said_in_their_own_unit(days: float, words: str) -> None:
    assert span_words(days) == words
