"""Writes the table of all metrics into `metrics.md`, from `coopgroup/metrics/names.py`.

Run as `python docs/make_metrics_table.py`; a test fails while the page is not fresh.
"""

from pathlib import Path

from coopgroup.metrics.names import METRICS, Metric

PAGE = Path(__file__).parent / "metrics.md"


def row(metric: Metric) -> str:
    """Return the row of a metric, in Markdown."""
    kind = f"{metric.kind.value} (leader)" if metric.is_of_leader else metric.kind.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {kind} | {labels} | {metric.help} |"


def made(text: str) -> str:
    """Return the page with a fresh table."""
    before, begin, rest = text.partition("<!-- metrics:begin -->")
    _, end, after = rest.partition("<!-- metrics:end -->")
    head = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    table = "\n".join([*head, *map(row, METRICS.values())])
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
