"""Tables of one cluster are not continued with another one."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from coopgroup.pipeline.errors import PipelineError
from coopgroup.pipeline.sources import Source, check_cluster, claim_source
from coopgroup.pipeline.tables import Tables

SOURCE = Source(cluster="c1", topic="offsets", topic_id="t1")


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"cluster": "c2"}, "of cluster c1, and these brokers are cluster c2"),
    ({"topic_id": "t2"}, r"an earlier topic offsets \(id t1, now t2\)"),
    ({"topic": "other"}, "of topic offsets, not of other"),
    ({"groups": ("a",)}, "has the history of all groups: leave out --group"),
)


def test_another_source_is_refused(tables: Tables) -> None:
    check_cluster(tables, "history", "c2")  # nothing is known yet
    for _ in range(2):
        claim_source(tables, "history", SOURCE)
    check_cluster(tables, "history", "c1")
    for change, said in REFUSED:
        with pytest.raises(PipelineError, match=said) as raised:
            claim_source(tables, "history", evolve(SOURCE, **change))
        assert "\n" not in str(raised.value)
    with pytest.raises(PipelineError, match=REFUSED[0][1]):
        check_cluster(tables, "history", "c2")
    # Brokers without ids are not refused.
    claim_source(tables, "history", evolve(SOURCE, cluster="", topic_id=""))


def test_later_runs_read_the_groups_of_the_first(tables: Tables) -> None:
    """Earlier records of another group were skipped, and are not read again."""
    first = evolve(SOURCE, groups=("a", "b"))
    for source in (first, SOURCE, first):
        assert claim_source(tables, "history", source) == ("a", "b")
    with pytest.raises(PipelineError, match="has the history of group a, b: leave out --group"):
        claim_source(tables, "history", evolve(SOURCE, groups=("a", "c")))
