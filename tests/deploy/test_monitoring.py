"""The dashboard and the alerts ask only for metrics and labels that exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import promql_parser
import pytest
from prometheus_client import CollectorRegistry

from coopgroup.metrics import METRICS, Kind, PrometheusMetrics
from coopgroup.metrics.names import COMMON_LABELS
from deploy.monitoring import make, picture
from tests.architecture.tree import ROOT
from tests.support.prometheus import needs_prometheus, program

DESCRIPTION = make.read_description()
PANELS = [panel for row in DESCRIPTION["rows"] for panel in row["panels"]]
PANEL_QUERIES = [one["query"] for panel in PANELS for one in panel["queries"]]
DROPPED = "coopgroup_dropped_telemetry_total"
PAGE = (ROOT / "docs" / "operations.md").read_text()


def _promql(query: str) -> str:
    """Return a query as Prometheus would get it from Grafana."""
    filled = query.replace("SELECT", make.SELECT).replace("$__rate_interval", "1m")
    return filled.replace("$group", ".*").replace("$client_id", ".*")


def _series(name: str) -> tuple[str, set[str]]:
    """Return the metric of a series, and all labels of the series."""
    for suffix in ("_bucket", "_sum", "_count"):
        metric = METRICS.get(name.removesuffix(suffix))
        if name.endswith(suffix) and metric is not None and metric.kind is Kind.HISTOGRAM:
            le = {"le"} if suffix == "_bucket" else set()
            return metric.name, {*COMMON_LABELS, *metric.labels, *le}
    metric = METRICS[name]
    return name, set() if name == DROPPED else {*COMMON_LABELS, *metric.labels}


def _check(node: Any) -> set[str]:  # noqa: ANN401, PLR0911  (a node without annotations)
    """Check the labels of a query, and return those of its result."""
    match type(node).__name__:
        case "VectorSelector":
            _, labels = _series(node.name)
            asked = {one.name for one in node.matchers.matchers}
            assert asked <= labels, f"{node.name} has no label {asked - labels}"
            return labels
        case "MatrixSelector":
            return _check(node.vector_selector)
        case "ParenExpr" | "SubqueryExpr":
            return _check(node.expr)
        case "AggregateExpr":
            labels = _check(node.expr)
            kept = set(node.modifier.labels) if node.modifier is not None else set()
            assert kept <= labels, f"{node}: no label {kept - labels}"
            return kept
        case "Call":
            return set().union(*(_check(one) for one in node.args))
        case "BinaryExpr":
            return _check(node.lhs) | _check(node.rhs)
        case "NumberLiteral":
            return set()
        case other:
            raise AssertionError(f"a query of a new kind: {other}")


def test_query_for_what_does_not_exist_is_found() -> None:
    """This test could not fail otherwise."""
    with pytest.raises(KeyError):
        _check(promql_parser.parse("coopgroup_partitions"))
    with pytest.raises(AssertionError, match="no label"):
        _check(promql_parser.parse("sum by (cause) (coopgroup_members)"))
    with pytest.raises(AssertionError, match="no label"):
        _check(promql_parser.parse('coopgroup_members{topic="t"}'))


def test_legend_names_labels_of_the_result(subtests: pytest.Subtests) -> None:
    for one in PANELS:
        with subtests.test(one["title"]):
            for query in one["queries"]:
                labels = _check(promql_parser.parse(_promql(query["query"])))
                assert set(re.findall(r"{{(\w+)}}", query["legend"])) <= labels


def test_alert_names_labels_of_its_query_and_has_a_section(subtests: pytest.Subtests) -> None:
    for one in DESCRIPTION["alerts"]:
        with subtests.test(one["name"]):
            labels = _check(promql_parser.parse(_promql(one["query"])))
            assert set(re.findall(r"\$labels\.(\w+)", one["summary"])) <= labels
            assert f"\n### {one['name']}\n" in PAGE


def test_every_metric_has_a_help_line_and_a_panel() -> None:
    """Panels are in deploy/monitoring/description.toml."""
    text = PrometheusMetrics(registry=CollectorRegistry()).text()
    assert set(re.findall(r"^# HELP (\w+) ", text, re.MULTILINE)) >= METRICS.keys()
    shown = {
        _series(name)[0] for query in PANEL_QUERIES for name in re.findall(r"coopgroup_\w+", query)
    }
    assert METRICS.keys() == shown


def test_files_are_those_of_the_description() -> None:
    for path, made in (
        (make.DASHBOARD, make.dashboard(DESCRIPTION)),
        (make.ALERTS, make.alert_rules(DESCRIPTION)),
    ):
        assert json.loads(path.read_text()) == made, f"{path.name} is old: run make generated"


# For each alert: series for promtool, each with its values at every minute, and the minute at which
# the alert fires.
FIRING: dict[str, tuple[dict[str, str], int]] = {
    "CoopgroupMemberStuck": ({'coopgroup_problems{group="g"}': "0 1x10"}, 4),
    "CoopgroupPartitionsUnowned": ({'coopgroup_unowned_partitions{group="g"}': "0 3x20"}, 12),
    "CoopgroupRebalanceDoesNotEnd": ({'coopgroup_rebalancing_seconds{group="g"}': "0+60x20"}, 8),
    "CoopgroupLeaseRunsOut": ({'coopgroup_lease_remaining_seconds{group="g"}': "40 2x10"}, 3),
    "CoopgroupPartitionsLost": (
        {'coopgroup_lost_partitions_total{group="g",reason="lease_expired"}': "0 0 4x10"},
        3,
    ),
    "CoopgroupFlapping": ({'coopgroup_rebalances_total{group="g",cause="lost"}': "0+4x40"}, 30),
    "CoopgroupRoundsFail": (
        {'coopgroup_failed_rebalances_total{group="g",reason="no_answer"}': "0+2x40"},
        20,
    ),
    "CoopgroupCommitsFail": (
        {
            'coopgroup_commits_total{group="g",outcome="failed"}': "0+2x40",
            'coopgroup_commits_total{group="g",outcome="committed"}': "0+10x40",
        },
        20,
    ),
    "CoopgroupTooFewMembers": (
        {'coopgroup_members_wanted{group="g"}': "5x40", 'coopgroup_members{group="g"}': "4x40"},
        17,
    ),
    "CoopgroupTelemetryDropped": ({"coopgroup_dropped_telemetry_total": "0 0 9x10"}, 3),
}
# A group that works: nothing fires.
QUIET = {
    'coopgroup_problems{group="g"}': "0x40",
    'coopgroup_unowned_partitions{group="g"}': "3x5 0x35",
    'coopgroup_rebalancing_seconds{group="g"}': "0 60 0x38",
    'coopgroup_lease_remaining_seconds{group="g"}': "40x40",
    'coopgroup_lost_partitions_total{group="g",reason="lease_expired"}': "7x40",
    'coopgroup_rebalances_total{group="g",cause="other_member"}': "0+1x20 20x20",
    'coopgroup_failed_rebalances_total{group="g",reason="no_answer"}': "0 1 2x38",
    'coopgroup_commits_total{group="g",outcome="failed"}': "0 1x39",
    'coopgroup_commits_total{group="g",outcome="committed"}': "0+100x40",
    'coopgroup_members_wanted{group="g"}': "4x40",
    'coopgroup_members{group="g"}': "4x40",
    "coopgroup_dropped_telemetry_total": "0x40",
}


@needs_prometheus
def test_each_alert_fires_alone_when_it_should(tmp_path: Path) -> None:
    """By `promtool test rules`; each case has a group of its own."""
    cases = [*((QUIET, minute, set[str]()) for minute in (1, 10, 25, 39))]
    cases += [(series, minute, {name}) for name, (series, minute) in FIRING.items()]
    cases += [(series, 0, set()) for series, _ in FIRING.values()]
    file = tmp_path / "rules_test.json"
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [
                        {"labels": f'{{alertname="{name}"}}', "value": 1} for name in names
                    ],
                }
            ],
        }
        for series, minute, names in cases
    ]
    file.write_text(
        json.dumps({"rule_files": [str(make.ALERTS)], "evaluation_interval": "1m", "tests": tests})
    )
    assert {rule["name"] for rule in DESCRIPTION["alerts"]} == FIRING.keys()
    for command in (("check", "rules", make.ALERTS), ("test", "rules", file)):
        done = subprocess.run(
            [str(program("promtool")), *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_picture_has_a_line_for_each_series_and_no_markup_of_names() -> None:
    rise, flat = [(0.0, 0.0), (2.0, 4.0)], [(0.0, 2.0), (2.0, 2.0), (8.0, 2.0), (10.0, 2.0)]
    text = picture.drawn([("Why?", [("Rounds", [("<b>", rise), ("b", flat)])])], 0.0, 10.0)
    root = ET.fromstring(text)  # noqa: S314  (our own)
    lines = [one.attrib["points"] for one in root.iter() if one.tag.endswith("polyline")]
    assert lines == ["44,144.0 100,30.0", "44,87.0 100,87.0", "266,87.0 322,87.0"]
    assert [one.text for one in root.iter() if one.tag.endswith("text")] == [
        *("Why?", "Rounds", "4", "0", "<b>", "b")
    ]


def test_panels_do_not_overlap() -> None:
    places: set[tuple[int, int]] = set()
    for panel in make.dashboard(DESCRIPTION)["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
