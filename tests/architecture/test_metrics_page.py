"""docs/metrics.md lists the metrics and labels of the table."""

import re

from coopgroup.metrics.events import _CAUSES
from coopgroup.metrics.names import METRICS
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text()
ROW = re.compile(
    r"^\| `(coopgroup_\w+)` \| (\w+)( \(leader\))? \| ([^|]*) \| (.+) \|$", re.MULTILINE
)


def test_page_lists_every_metric_with_its_labels() -> None:
    listed = [
        (name, kind, bool(leader), tuple(re.findall(r"`(\w+)`", labels)))
        for name, kind, leader, labels, _ in ROW.findall(PAGE)
    ]
    assert listed == [
        (one.name, one.kind.value, one.is_of_leader, one.labels) for one in METRICS.values()
    ]


def test_page_tells_what_each_metric_means() -> None:
    said = {name: words for name, *_, words in ROW.findall(PAGE)}
    assert [one.name for one in METRICS.values() if not said[one.name].startswith(one.help)] == []


def test_page_lists_every_cause_of_a_round() -> None:
    listed = re.findall(
        r"^\| `(\w+)` \| [^|]+ \|$", PAGE.split("The causes of rounds")[1], re.MULTILINE
    )
    assert set(listed) == {label for _, label in _CAUSES} | {"other"}
    assert tuple(listed) == METRICS["coopgroup_rebalances_total"].values
