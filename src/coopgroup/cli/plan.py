"""`coopgroup plan`: what a leader would do, without a broker.

Each input line gets exactly one output line, in the same order and flushed immediately. So a caller
can put the `state` of an answer into the next line. The answer to an unusable line is its error.
Lines are independent of each other.

The format is fixed (docs: simulator). Lists ascend and keys are sorted, so equal rounds give equal
bytes under any hash seed.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import click

from coopgroup.cli.choices import parse_choice, row_of
from coopgroup.cli.plan_input import Defaults, PlanLine, parse_line, read_line
from coopgroup.core.leader import RoundDecision, decide_round, member_assignments
from coopgroup.core.model import resolve_claims
from coopgroup.core.policies.memory import state_to_json
from coopgroup.core.policies.policy import Policy
from coopgroup.errors import ConfigurationError, InvariantViolationError, said_by
from coopgroup.protocol import Assignment
from coopgroup.reading import wrong
from coopgroup.simulator.scenario.checks import check_choice
from coopgroup.telemetry import Envelope, Record, to_json

_EXIT_REFUSED_LINE: Final = 2
_ENVELOPE_NOISE: Final = ("schema", "group", "client", "member", "generation")


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
        return _line_bytes(echo | _refused_row(error)), True, False
    known = request.metadata
    decided = decide_round(
        resolve_claims(request.claims, known.resources, known.racks, known.weights),
        request.lags,
        assignor=request.assignor,
        policy=request.policy,
        context=request.context,
    )
    try:
        row = _round_row(decided, request.context.now_ms) | _memory_row(decided, request.policy)
    except ConfigurationError as error:
        return _line_bytes(echo | _refused_row(error)), True, decided.refused
    return _line_bytes(echo | row), False, decided.refused


def _read(line: bytes, defaults: Defaults, echo: dict[str, Any]) -> PlanLine:
    """Read a line; store its id in `echo` as soon as it is known."""
    fields, problem = parse_line(line)
    if isinstance(fields.get("id"), str):
        echo["id"] = fields["id"]
    if problem is not None:
        raise problem
    return read_line(fields, defaults)


def _round_row(decided: RoundDecision, now_ms: int) -> dict[str, Any]:
    """Return the decision of a leader in the fixed format."""
    group, plan = decided.group, decided.plan
    take = group.resources.take
    targets = zip(group.member_ids, group.by_member(plan.target), strict=True)
    told = zip(group.member_ids, member_assignments(decided), strict=True)
    row = {
        "target": {member: resources.to_dict() for member, resources in targets},
        "members": {member: _member_row(assignment) for member, assignment in told},
        "lost": take(plan.lost).to_dict(),
        "created": take(plan.created).to_dict(),
        "waiting": take(plan.waiting).to_dict(),
        "state": state_to_json(decided.state),
        "events": [_event_row(record, now_ms) for record in decided.records],
    }
    if (
        plan.waiting_for_members is not None and plan.waiting_for_members.any()
    ):  # only possible while a group forms
        row["held"] = take(plan.waiting_for_members).to_dict()
    return row


def _memory_row(decided: RoundDecision, policy: Policy) -> dict[str, Any]:
    """Return the policy's own memory, as `_with_memory` of the input reads it; {} for none."""
    memory = decided.state.memory
    if memory is None:
        return {}
    try:
        value = getattr(policy, "memory_to_json", lambda value: value)(memory)
        if json.loads(json.dumps(value, allow_nan=False)) == value:
            return {"memory": value}
    except Exception:  # noqa: BLE001, S110 - of a user's policy
        pass
    expected = "a JSON value, or methods memory_to_json and memory_from_json of the policy"
    raise wrong("memory", memory, expected)


def _refused_row(error: Exception) -> dict[str, Any]:
    """Return the reason for refusing a line, in one sentence."""
    return {"error": said_by(error)}


def _line_bytes(row: dict[str, Any]) -> bytes:
    """Return a row as a line of ASCII with its line end."""
    return (json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n").encode("ascii")


def _member_row(assignment: Assignment) -> dict[str, Any]:
    revoked, warmups = assignment.revoked, assignment.warmups
    return ({"warmups": warmups.to_dict()} if warmups else {}) | {
        "assigned": assignment.assigned.to_dict(),
        "revoked": None if revoked is None else revoked.to_dict(),
        "scheduled_rebalance_timeout_ms": assignment.rejoin_in_ms or 0,
    }


def _event_row(record: Record, now_ms: int) -> dict[str, Any]:
    row = to_json(Envelope(at_ms=now_ms, group="", member="", generation=-1, record=record))
    return {name: value for name, value in row.items() if name not in _ENVELOPE_NOISE}
