"""`coopgroup report`: draw the page of a group from its telemetry files.

The page goes to a file. A summary of the input, with unreadable lines, goes to standard error. A
damaged line does not stop the command, because a killed process can leave half a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from coopgroup.printable import printable
from coopgroup.report import Damage, read_files, require_bokeh, write_history_page
from coopgroup.report.wording import counted

__all__ = ["command"]


@click.command("report")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="File to write.",
)
@click.option("--group", help="Group to show; needed if the files are of several groups.")
@click.option("--title", help="Heading of the page; default: name of the group.")
def command(files: Sequence[Path], output: Path, group: str | None, title: str | None) -> None:
    """Draw what happened to a group, from telemetry files of its members.

    The page is one HTML file that opens without a server or a network. Give the files of all
    members: a member knows what it did itself, and only leaders know why.
    """
    require_bokeh()
    reading = read_files(files, group)
    notes = tuple(_damage_notes(reading.damages))
    for note in notes:
        click.echo(f"coopgroup: {printable(note)}", err=True)
    write_history_page(
        reading.envelopes,
        output,
        title=title or _named(envelope.group for envelope in reading.envelopes),
        notes=notes,
    )
    click.echo(
        f"{output}: {counted(len(reading.envelopes), 'record')} from {counted(len(files), 'file')}"
    )


def _damage_notes(damages: Iterable[Damage]) -> Iterator[str]:
    for one in damages:
        yield (
            f"{one.file}: {counted(one.lines, 'line')} left out, first line {one.first_line}: "
            f"{one.reason}"
        )


def _named(groups: Iterable[str]) -> str:
    return f"Group {next(iter(groups)) or 'without a name'}"
