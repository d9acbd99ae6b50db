"""Whether the last run of a job can be continued, as far as Delta's log is not needed for it."""

from types import SimpleNamespace
from typing import Final, cast

import pytest
from attrs import evolve

from coopgroup.pipeline.basis import ANEW, Basis
from coopgroup.pipeline.folders import Folders
from coopgroup.pipeline.tables import Tables

NOW: Final = Basis(
    settings="latest",
    groups=("billing",),
    since_ms=1_000,
    versions={"commits": 3, "ends": 7},
    ids={"commits": "1f", "ends": "2e"},
)
NO_TABLES: Final = cast("Tables", SimpleNamespace(spark=None, path=str))


def test_new_from_when_no_version_is_new_is_none() -> None:
    assert NOW.new_from_ms(NO_TABLES, NOW.to_json()) is None


def test_new_from_when_the_scope_begins_later_is_none() -> None:
    assert evolve(NOW, since_ms=2_000).new_from_ms(NO_TABLES, NOW.to_json()) is None


@pytest.mark.parametrize(
    "last",
    [
        pytest.param("", id="nothing recorded"),
        pytest.param(evolve(NOW, settings="earliest").to_json(), id="other settings"),
        pytest.param(evolve(NOW, groups=()).to_json(), id="other groups"),
        pytest.param(evolve(NOW, since_ms=1_001).to_json(), id="an earlier begin"),
        pytest.param(
            evolve(NOW, versions={"commits": 4, "ends": 7}).to_json(), id="a table that began again"
        ),
        pytest.param(
            evolve(NOW, ids={"commits": "0a", "ends": "2e"}).to_json(),
            id="a table that began again and grew",
        ),
        pytest.param(
            evolve(NOW, versions={"commits": 3, "ends": -1_000}).to_json(), id="a thousand versions"
        ),
    ],
)
def test_new_from_when_the_last_run_cannot_be_continued_is_anew(last: str) -> None:
    assert NOW.new_from_ms(NO_TABLES, last) == ANEW
    assert NOW.new_groups(NO_TABLES, last) is None


def test_new_groups_when_no_version_is_new_are_none_of_the_groups() -> None:
    assert NOW.new_groups(NO_TABLES, NOW.to_json()) == ()


def test_new_groups_when_the_scope_begins_later_are_all_groups() -> None:
    assert evolve(NOW, since_ms=2_000).new_groups(NO_TABLES, NOW.to_json()) is None


def test_new_groups_and_days_when_a_part_of_the_log_is_deleted_are_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Folders, "exists", lambda *_: False)
    last = evolve(NOW, versions={"commits": 2, "ends": 7}).to_json()
    assert NOW.new_from_ms(NO_TABLES, last) == ANEW
    assert NOW.new_groups(NO_TABLES, last) is None
