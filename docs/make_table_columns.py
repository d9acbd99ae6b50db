"""Writes the columns of the pipeline's episodes into `pipeline.md`.

Run as `python docs/make_table_columns.py`; a test fails while the page is not fresh. The text of a
column is the comment beside it in `coopgroup/pipeline/schemas.py`, which has one line for each.
This program reads the file, so it needs no Spark.
"""

import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "pipeline.md"
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


def page(text: str) -> str:
    """Return the page with fresh columns."""
    before, begin, rest = text.partition("<!-- columns:begin -->")
    _, end, after = rest.partition("<!-- columns:end -->")
    return f"{before}{begin}\n\n{columns()}\n\n{end}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
