"""`coopgroup pipeline optimize`: upkeep of a folder of tables."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from attrs import asdict

from coopgroup.cli.pipeline.options import Place, since_of, tables_options
from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.spark.session import in_one_line
from coopgroup.report.wording import counted

if TYPE_CHECKING:
    from coopgroup.pipeline.upkeep import Compaction

_RETENTION_HOURS: Final = 168
_SAFE_HOURS: Final = 24
_BYTES_PER_MB: Final = 1_000_000


@click.command("optimize")
@tables_options
@click.option(
    "--retention-hours",
    type=click.IntRange(min=0),
    default=_RETENTION_HOURS,
    show_default=True,
    help="Keep replaced files for so long. A reader that reads for longer fails.",
)
@click.option("--force", is_flag=True, help=f"Allow a retention below {_SAFE_HOURS} hours.")
@click.option(
    "--keep",
    "kept",
    multiple=True,
    metavar="TABLE=TIME",
    help="Delete older rows of a raw table, such as commits=90d; may be repeated. What still holds"
    " stays: the last commit of each partition, the last state of each group.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a table.")
def optimize(
    *,
    retention_hours: int,
    force: bool,
    kept: Sequence[str],
    as_json: bool,
    place: Place,
) -> None:
    """Join small files of the tables, and delete replaced files and old rows.

    Other jobs may run meanwhile.
    """
    if retention_hours < _SAFE_HOURS and not force:
        raise ConfigurationError(
            "--retention-hours",
            retention_hours,
            f"at least {_SAFE_HOURS}, so that running readers keep their files, or --force",
        )
    place.require_folder()
    from coopgroup.pipeline import upkeep  # noqa: PLC0415 - needs the extra

    begins = _begins_of(kept)
    tables = place.tables()
    with in_one_line():
        for name, begin_ms in begins.items():
            upkeep.forget(tables, name, begin_ms)
        for one in upkeep.optimize(tables, retention_hours):
            click.echo(json.dumps(asdict(one)) if as_json else _line(one))


def _begins_of(kept: Sequence[str]) -> dict[str, int]:
    """Return the begin of each table of `--keep`.

    Raises:
        ConfigurationError: it is no raw table, or no past time.
    """
    from coopgroup.pipeline.schemas import TABLES  # noqa: PLC0415 - needs the extra

    raw = sorted(name for name, table in TABLES.items() if not table.is_derived)
    found = {}
    for text in kept:
        name, _, begin = text.partition("=")
        if name not in raw:
            raise ConfigurationError("--keep", text, f"TABLE=TIME with one of {', '.join(raw)}")
        found[name] = since_of(begin, time.time_ns() // 1_000_000, "--keep")
    return found


def _line(one: Compaction) -> str:
    return (
        f"{one.table}: {counted(one.files_before, 'file')} before, {one.files_after} after, "
        f"{one.size_bytes / _BYTES_PER_MB:,.1f} MB"
    )
