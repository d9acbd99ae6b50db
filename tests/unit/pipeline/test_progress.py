"""Whether the last run of a job can be continued, as far as no table is needed for it."""

from types import SimpleNamespace
from typing import Final, cast

import pytest
from attrs import evolve

from coopgroup.pipeline.progress import UNKNOWN, Progress
from coopgroup.pipeline.tables import Tables

NOW: Final = Progress(
    settings="latest",
    groups=("billing",),
    since_ms=1_000,
    as_of_ms=50,
    read={"commits": 3, "ends": 7},
    ids={"commits": "1f", "ends": "2e"},
)
NO_TABLES: Final = cast("Tables", SimpleNamespace(spark=None, path=str))


@pytest.mark.parametrize("since_ms", [1_000, 2_000])
def test_new_when_no_version_is_new_is_nothing(since_ms: int) -> None:
    now = evolve(NOW, since_ms=since_ms)
    assert now.continues(NOW)
    assert now.new_rows(NO_TABLES, NOW) == {}
    assert now.new_from_ms(NO_TABLES, NOW) is None


def test_moments_after_the_last_end_of_the_history_are_new() -> None:
    assert evolve(NOW, as_of_ms=60).new_from_ms(NO_TABLES, NOW) == 51


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(evolve(NOW, settings="earliest"), id="other settings"),
        pytest.param(evolve(NOW, groups=()), id="other groups"),
        pytest.param(evolve(NOW, since_ms=1_001), id="an earlier begin"),
        pytest.param(evolve(NOW, as_of_ms=0), id="no known end of the history"),
    ],
)
def test_rows_of_other_settings_are_not_continued(last: Progress) -> None:
    assert not NOW.continues(last)


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(evolve(NOW, read={"commits": 4, "ends": 7}), id="a table that began again"),
        pytest.param(
            evolve(NOW, ids={"commits": "0a", "ends": "2e"}), id="a table that began again and grew"
        ),
        pytest.param(evolve(NOW, read={**NOW.read, "members": 1}), id="a table that is gone"),
    ],
)
def test_all_is_new_when_a_table_was_made_again(last: Progress) -> None:
    assert NOW.new_rows(NO_TABLES, last) is None
    assert NOW.new_from_ms(NO_TABLES, last) == UNKNOWN
