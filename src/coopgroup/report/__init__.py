"""Report pages: one offline HTML file shows what happened to a group.

    write_history_page(envelopes, "billing.html", title="billing")

The input is the telemetry of real or simulated consumers. Drawing needs the extra `report`.
"""

from coopgroup.report.page import Objection
from coopgroup.report.telemetry_files import Damage, Reading, read_files
from coopgroup.report.writing import (
    require_bokeh,
    write_comparison_page,
    write_history_page,
    write_run_page,
)

__all__ = [
    "Damage",
    "Objection",
    "Reading",
    "read_files",
    "require_bokeh",
    "write_comparison_page",
    "write_history_page",
    "write_run_page",
]
