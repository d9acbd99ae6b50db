"""The columns of the pipeline's episodes, and the metrics.

The text of a column is the comment beside it in `coopgroup/pipeline/schemas.py`, which has one line
for each. This program reads the file, so it needs no Spark. The metrics are those of
`coopgroup/metrics/names.py`.
"""

import re

from coopgroup.metrics.names import METRICS, Metric
from docs.sections import DOCS

SCHEMAS = DOCS.parent / "src" / "coopgroup" / "pipeline" / "schemas.py"
TABLES = ("rebalances", "outages", "absences", "skew")

_TABLE = re.compile(
    r'^[A-Z]+: Final = Table\(\n    name="(\w+)",\n(.*?)^\)', re.DOTALL | re.MULTILINE
)
_COLUMN = re.compile(r"^        (\w+)=_?(\w+?)(?:Type\(\))?,  # (.+)$", re.MULTILINE)


def columns() -> str:
    """Return a table for each episode, in Markdown."""
    tables = dict(_TABLE.findall(SCHEMAS.read_text()))
    parts = []
    for name in TABLES:
        rows = _COLUMN.findall(tables[name])
        lines = [f"| `{name}` | type | content |", "|---|---|---|"]
        lines += [f"| `{column}` | {kind.lower()} | {text} |" for column, kind, text in rows]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def metrics() -> str:
    """Return a table of all metrics, in Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_row, METRICS.values())])


def _row(metric: Metric) -> str:
    kind = f"{metric.kind.value} (leader)" if metric.is_of_leader else metric.kind.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {kind} | {labels} | {metric.help} |"
