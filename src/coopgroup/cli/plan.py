"""`coopgroup plan`: what a leader would do, without a broker.

Each input line gets exactly one output line, in the same order and flushed immediately. So a caller
can put the `state` of an answer into the next line. The answer to an unusable line is its error.
Lines are independent of each other.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import click

from coopgroup.cli.choices import parse_choice, row_of
from coopgroup.cli.formats.plan_input import Defaults, PlanLine, parse_line, read_line
from coopgroup.cli.formats.plan_output import line_bytes, refused_row, round_row
from coopgroup.core.leader import decide_round
from coopgroup.errors import ConfigurationError, InvariantViolationError
from coopgroup.simulator.scenario.checks import check_choice

__all__ = ["answer_lines", "command"]

_EXIT_REFUSED_LINE: Final = 2


@click.command("plan")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--assignor",
    default="sticky",
    show_default=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="Assignor for lines without one.",
)
@click.option(
    "--policy",
    default="simple",
    show_default=True,
    metavar="NAME[:KEY=VALUE,...]",
    help="Policy for lines without one.",
)
def command(file: BinaryIO, assignor: str, policy: str) -> int:
    """Answer what a leader would do, one JSON object a line."""
    # An unknown name is an error of the command, not of each line.
    defaults = Defaults(assignor=_row("--assignor", assignor), policy=_row("--policy", policy))
    if file.isatty():
        click.echo("coopgroup: type or paste one JSON object a line; Ctrl-D ends", err=True)
    return answer_lines(file, sys.stdout.buffer, defaults)


def _row(option: str, text: str) -> dict[str, object]:
    choice = parse_choice(option, text)
    check_choice(option, choice)
    return row_of(choice)


def answer_lines(lines: Iterable[bytes], answers: BinaryIO, defaults: Defaults) -> int:
    """Answer every line.

    Returns:
        The exit status: 2 if a line was refused, else 0.

    Raises:
        InvariantViolationError: the leader's safety check refused a round, which is a bug; raised
            after all lines are answered.
    """
    refused_lines = 0
    refused_rounds = 0
    for line in lines:
        with _no_collection():
            answer, line_refused, round_refused = _answer(line, defaults)
        answers.write(answer)
        answers.flush()
        refused_lines += line_refused
        refused_rounds += round_refused
    if refused_rounds:
        raise InvariantViolationError(
            f"{refused_rounds} rounds were refused by the leader's safety check; see their events"
        )
    return _EXIT_REFUSED_LINE if refused_lines else 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector: a line creates no reference cycles.

    A large line creates millions of objects that live until it is answered. Scanning them
    repeatedly took half of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _answer(line: bytes, defaults: Defaults) -> tuple[bytes, bool, bool]:
    """Return the answer, whether the line was refused, and whether the round was refused."""
    echo: dict[str, Any] = {}
    try:
        request = _read(line, defaults, echo)
    except ConfigurationError as error:
        return line_bytes(echo | refused_row(error)), True, False
    decided = decide_round(
        request.claims,
        request.metadata,
        request.lags,
        assignor=request.assignor,
        policy=request.policy,
        context=request.context,
    )
    return line_bytes(echo | round_row(decided, request.context.now_ms)), False, decided.refused


def _read(line: bytes, defaults: Defaults, echo: dict[str, Any]) -> PlanLine:
    """Read a line; store its id in `echo` as soon as it is known."""
    fields, problem = parse_line(line)
    if isinstance(fields.get("id"), str):
        echo["id"] = fields["id"]
    if problem is not None:
        raise problem
    return read_line(fields, defaults)
