"""Whether the last run of a job can be continued, as far as Delta's log is not needed for it."""

from types import SimpleNamespace
from typing import Final, cast

import pytest
from attrs import evolve

from coopgroup.pipeline.basis import ANEW, Basis
from coopgroup.pipeline.tables import Tables

LAG: Final = Basis(settings="latest", groups=(), since_ms=0, lost_version=7)
NOW: Final = Basis(
    settings="latest",
    groups=("billing",),
    since_ms=1_000,
    versions={"commits": 3, "lag": 7},
    ids={"commits": "1f", "lag": "2e"},
    makers={"lag": LAG},
)
NO_TABLES: Final = cast("Tables", SimpleNamespace(spark=None, path=str))


def with_lag(lag: Basis | None, version: int = 6) -> Basis:
    makers = {} if lag is None else {"lag": lag}
    return evolve(NOW, versions={"commits": 3, "lag": version}, makers=makers)


def test_a_basis_is_read_from_its_text_also_without_later_fields() -> None:
    assert Basis.from_json(NOW.to_json()) == NOW
    known = '"settings": "latest", "groups": ["billing"], "since_ms": 1000'
    earlier = Basis(settings="latest", groups=("billing",), since_ms=1_000)
    assert Basis.from_json(f"{{{known}}}") == earlier
    assert Basis.from_json(f'{{{known}, "unknown": 1}}') == earlier


@pytest.mark.parametrize("since_ms", [1_000, 2_000])
def test_new_when_no_version_is_new_is_nothing(since_ms: int) -> None:
    now = evolve(NOW, since_ms=since_ms)
    assert now.new_from_ms(NO_TABLES, NOW) is None
    assert now.new_rows(NO_TABLES, NOW) == {}


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(None, id="nothing recorded"),
        pytest.param(evolve(NOW, settings="earliest"), id="other settings"),
        pytest.param(evolve(NOW, groups=()), id="other groups"),
        pytest.param(evolve(NOW, since_ms=1_001), id="an earlier begin"),
        pytest.param(evolve(NOW, versions={"commits": 4, "lag": 7}), id="a table that began again"),
        pytest.param(
            evolve(NOW, ids={"commits": "0a", "lag": "2e"}), id="a table that began again and grew"
        ),
        pytest.param(with_lag(None), id="lag of an unknown job"),
        pytest.param(with_lag(evolve(LAG, settings="earliest")), id="lag with other settings"),
        pytest.param(with_lag(evolve(LAG, groups=("a",))), id="lag of other groups"),
        pytest.param(with_lag(LAG), id="lag that has lost rows"),
    ],
)
def test_new_when_the_last_run_cannot_be_continued_is_all(last: Basis | None) -> None:
    assert NOW.new_from_ms(NO_TABLES, last) == ANEW
    assert NOW.new_rows(NO_TABLES, last) is None


def test_new_when_lag_forgot_rows_of_the_scope_is_all() -> None:
    later = evolve(NOW, makers={"lag": evolve(LAG, since_ms=1_001, lost_version=0)})
    assert later.new_rows(NO_TABLES, with_lag(evolve(LAG, lost_version=0))) is None
