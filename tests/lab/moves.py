"""Where the time of a move goes, from the telemetry of all members.

A move begins when a process subscribes or closes, and ends when the application of the last gaining
member has its first record of a partition that it gained. Its steps follow each other, and each
ends when the last member that takes part has done it:

- **hear**: the other members learn of the round, by the bell or by a heartbeat. With a new process,
  this includes its connections.
- **join**: the coordinator has all joins, and answers. A cooperative move has a second round.
- **decide**: the leader decides.
- **sync**: the members have their assignments.
- **stop**: the old owners have stopped and committed what moves.
- **start**: the application of the new owner is told.
- **fetch**: it has the first record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from attrs import frozen

from coopgroup.telemetry import (
    AssignmentReceived,
    Envelope,
    ResourcesStarted,
    RoundDecided,
    StateChanged,
)

STEPS: Final = ("hear", "join", "decide", "sync", "stop", "start", "fetch")
_SECOND: Final = "2nd "
_COLOURS: Final = {
    "hear": "#e07a1f",
    "join": "#1f6f8b",
    "decide": "#7a4b9d",
    "sync": "#3c8d40",
    "stop": "#b03a48",
    "start": "#8a8f98",
    "fetch": "#d9b400",
}
_WIDTH, _LEFT, _BAR, _ROW = 860, 170, 26, 46


@frozen
class Step:
    """One step, as the time from the end of the step before; `name` may begin with "2nd "."""

    name: str
    ms: float


def steps_of(
    envelopes: Iterable[Envelope], began_ms: float, first_record_ms: Mapping[str, float]
) -> tuple[Step, ...]:
    """Return the steps of a move.

    Args:
        envelopes: the telemetry of all members.
        began_ms: when the process subscribed or closed.
        first_record_ms: when each gaining member, by its id, had its first record of what it
            gained.

    Raises:
        ValueError: no member gained anything.
    """
    since = sorted((one for one in envelopes if one.at_ms >= began_ms), key=lambda one: one.at_ms)
    gains = [one for one in since if isinstance(one.record, AssignmentReceived)]
    gaining = [one for one in gains if one.record.gained]  # type: ignore[union-attr]
    if not gaining:
        raise ValueError("no member gained anything")
    first, last = gains[0].generation, gaining[-1].generation
    moments = [("hear", _last(since, _hears))]
    for prefix, generation in (("", first), (_SECOND, last))[: 1 if first == last else 2]:
        of_round = [one for one in since if one.generation == generation]
        if prefix:
            moments.append(("stop", _last(since, _has_stopped)))
        moments += [
            (f"{prefix}join", _last(of_round, _has_joined)),
            (f"{prefix}decide", _last(of_round, _is(RoundDecided))),
            (f"{prefix}sync", _last(of_round, _is(AssignmentReceived))),
        ]
    names = {one.member for one in gaining}
    started = [one for one in since if one.generation == last and one.member in names]
    moments.append(("start", _last(started, _is(ResourcesStarted))))
    moments.append(("fetch", max((first_record_ms[name] for name in names), default=0.0)))
    steps, before_ms = [], began_ms
    for name, at_ms in moments:
        steps.append(Step(name, max(0.0, at_ms - before_ms)))
        before_ms = max(before_ms, at_ms)
    return tuple(steps)


def _last(envelopes: Iterable[Envelope], counts: Callable[[Envelope], bool]) -> float:
    return max((one.at_ms for one in envelopes if counts(one)), default=0.0)


def _is(kind: type) -> Callable[[Envelope], bool]:
    return lambda one: isinstance(one.record, kind)


def _hears(one: Envelope) -> bool:
    record = one.record
    return isinstance(record, StateChanged) and (record.before, record.after) == (
        "stable",
        "joining",
    )


def _has_joined(one: Envelope) -> bool:
    return isinstance(one.record, StateChanged) and one.record.cause == "joined"


def _has_stopped(one: Envelope) -> bool:
    record = one.record
    return isinstance(record, StateChanged) and (record.before, record.after) == (
        "revoking",
        "joining",
    )


def picture(rows: Sequence[tuple[str, Sequence[Step]]]) -> str:
    """Draw moves as bars in SVG: a row for each, a colour for each step."""
    longest_ms = max(sum(step.ms for step in steps) for _, steps in rows)
    scale = (_WIDTH - _LEFT - 70) / longest_ms
    lines = []
    for number, (title, steps) in enumerate(rows):
        y, x = 40 + number * _ROW, float(_LEFT)
        lines.append(_text(_LEFT - 10, y + 17, title, anchor="end"))
        for step in steps:
            width = step.ms * scale
            colour = _COLOURS[step.name.removeprefix(_SECOND)]
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}">'
                f"<title>{step.name}: {step.ms:.0f} ms</title></rect>"
            )
            x += width
        lines.append(_text(x + 6, y + 17, f"{sum(step.ms for step in steps):,.0f} ms"))
    for number, name in enumerate(STEPS):
        x = _LEFT + number * 90
        lines.append(
            f'<rect x="{x}" y="10" width="12" height="12" fill="{_COLOURS[name]}"/>'
            f"{_text(x + 17, 20, name)}"
        )
    height = 40 + len(rows) * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}"><rect width="100%" height="100%" fill="white"/>'
        + "".join(lines)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" '
        f'style="font: 12px sans-serif; fill: #333">{text}</text>'
    )
