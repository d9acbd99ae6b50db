"""`coopgroup plan`: what a leader would do, without a broker.

Each input line gets exactly one output line, in the same order and flushed at once, so a caller
can feed the `state` of one answer into the next line; a line that cannot be used is answered with
its error. Nothing is kept from line to line.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from coopgroup.assignors.registry import create_assignor
from coopgroup.cli.plan_input import Defaults, parse_line, read_line
from coopgroup.cli.plan_output import line_bytes, refused_row, round_row
from coopgroup.errors import ConfigurationError, InvariantViolationError
from coopgroup.leader import decide_round
from coopgroup.policies.registry import create_policy

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["answer_lines", "command"]

_EXIT_REFUSED_LINE: Final = 2


@click.command("plan")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--assignor",
    default="sticky",
    show_default=True,
    metavar="NAME",
    help="Assignor of lines that name none.",
)
@click.option(
    "--policy",
    default="simple",
    show_default=True,
    metavar="NAME",
    help="Policy of lines that name none.",
)
def command(file: BinaryIO, assignor: str, policy: str) -> int:
    """Answer what a leader would do, one JSON object a line."""
    create_assignor(assignor, {})  # an unknown name is a mistake of the command, not of each line
    create_policy(policy, {})
    try:
        return answer_lines(file, sys.stdout.buffer, Defaults(assignor=assignor, policy=policy))
    except BrokenPipeError:
        # Who reads the answers has gone; Python would complain again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def answer_lines(lines: Iterable[bytes], answers: BinaryIO, defaults: Defaults) -> int:
    """Answer every line.

    Args:
        lines: input lines; an empty one is a line too, and is answered with an error, so that
            answers stay in step with lines.
        answers: written to and flushed line by line.
        defaults: what holds where a line names no assignor or policy.

    Returns:
        The exit status: 2 when a line was refused, else 0.

    Raises:
        InvariantViolationError: a round was refused by the leader's own safety check, which is a
            bug; raised when every line is answered.
    """
    refused_lines = 0
    refused_rounds = 0
    for line in lines:
        row, refused = _answer(line, defaults)
        answers.write(line_bytes(row))
        answers.flush()
        refused_lines += "error" in row
        refused_rounds += refused
    if refused_rounds:
        raise InvariantViolationError(
            f"{refused_rounds} rounds were refused by the leader's safety check; see their events"
        )
    return _EXIT_REFUSED_LINE if refused_lines else 0


def _answer(line: bytes, defaults: Defaults) -> tuple[dict[str, Any], bool]:
    """The answer to a line, and whether the leader had to refuse the round."""
    echo: dict[str, Any] = {}
    try:
        fields, problem = parse_line(line)
        if isinstance(fields.get("id"), str):
            echo["id"] = fields["id"]
        if problem is not None:
            raise problem
        request = read_line(fields, defaults)
    except ConfigurationError as error:
        return echo | refused_row(error), False
    decided = decide_round(
        request.claims,
        request.metadata,
        request.lags,
        assignor=request.assignor,
        policy=request.policy,
        context=request.context,
    )
    return echo | round_row(decided, request.context.now_ms), decided.refused
