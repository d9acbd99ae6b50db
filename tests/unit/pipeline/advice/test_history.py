"""Episodes: grouping of absences, identity of processes, and omitted absences."""

import pytest
from attrs import evolve

from coopgroup.pipeline.advice.history import Absence, Episode, Seen, episodes_of, span_words
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


def test_absences_far_apart_are_episodes_of_their_own() -> None:
    later = evolve(SEEN, gone_ms=1_100_000, how=How.CRASH)
    absence = Absence(at_ms=0, process=1, absent_ms=20_000, how=How.CLOSE)
    assert made(later, SEEN) == (
        Episode(begin_ms=1_000_000, absences=(absence,)),
        Episode(begin_ms=1_100_000, absences=(evolve(absence, how=How.CRASH),)),
    )


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


def test_rounding_makes_nobody_leave_before_it_is_back() -> None:
    again = evolve(SEEN, gone_ms=SEEN.gone_ms + 10_012)
    first = evolve(SEEN, process="q@h")
    late = evolve(SEEN, gone_ms=SEEN.gone_ms + 1_234, absent_ms=8_777)
    (episode,) = made(first, late, again)
    assert [(one.at_ms, one.process, one.absent_ms) for one in episode.absences] == [
        (0, 1, 20_000),
        (1_240, 2, 8_800),
        (10_041, 2, 20_000),
    ]


def test_absence_without_end_is_permanent_only_if_watched_for_long() -> None:
    gone = evolve(SEEN, absent_ms=None)
    unknown = evolve(gone, watched_ms=599_999)
    episodes, left_out = episodes_of([gone, unknown], {}, watched_ms_min=600_000)
    assert [one.absent_ms for episode in episodes for one in episode.absences] == [None]
    assert left_out == 1


def test_durations_that_are_nearly_the_same_are_played_once() -> None:
    spans = [(19_990, 20_000), (20_140, 20_200), (20_240, 20_200), (1_003, 1_000), (600, 600)]
    for absent_ms, rounded_ms in spans:
        (episode,) = made(evolve(SEEN, absent_ms=absent_ms))
        assert episode.absences[0].absent_ms == rounded_ms


def test_joins_are_episodes_in_order_of_time() -> None:
    episodes = made(SEEN, joins={500: 2, 2_000_000: 1})
    assert [(one.begin_ms, one.joined) for one in episodes] == [
        (500, 2),
        (1_000_000, 0),
        (2_000_000, 1),
    ]


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
