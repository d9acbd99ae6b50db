"""`Problem`: something in a scenario that cannot be, and what several checks ask for.

Rules of this file: a problem says where in the scenario it is, by the names of the scenario file,
what is there and what would be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coopgroup.simulator.scenario import Shares, Span, Topic

__all__ = [
    "PROCESSES_MAX",
    "RATE_MAX_PER_S",
    "RESOURCES_MAX",
    "Path",
    "Problem",
    "at_least",
    "capacity_problems",
    "dotted",
    "one_topic_problems",
    "rate_problems",
    "span_problems",
    "unknown_topic",
    "weight_problems",
]

RESOURCES_MAX: Final = 1_000_000
"""Most resources that a scenario may have: partitions of all topics together, say."""

PROCESSES_MAX: Final = 10_000
"""Most processes that a scenario may name."""

RATE_MAX_PER_S: Final = 10**9
"""Most records per second of one partition: an offset stays in an int64, however long a run is."""

Path: TypeAlias = tuple[str | int, ...]


@frozen(kw_only=True)
class Problem:
    """Something in a scenario that cannot be.

    Attributes:
        path: where: keys as in the scenario file, places in lists counted from 0.
        value: what stands there.
        expected: what would be right, as the end of the sentence "expected …".
        key: what to call it; "" for the dotted path.
    """

    path: Path
    value: object
    expected: str
    key: str = ""


def dotted(path: Path) -> str:
    """A path as messages write it: `events[2].at_ms`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def at_least(path: Path, value: int, low: int) -> Iterator[Problem]:
    """An integer that is too small."""
    if value < low:
        yield Problem(path=path, value=value, expected=f"an integer from {low} on")


def span_problems(path: Path, span: Span, low: int = 0) -> Iterator[Problem]:
    """A range that begins too low, or ends before it begins."""
    if span.low < low:
        yield Problem(path=path, value=span.low, expected=f"an integer from {low} on")
    if span.high < span.low:
        yield Problem(
            path=path, value=[span.low, span.high], expected="the smaller number before the larger"
        )


def rate_problems(path: Path, rates: tuple[float, ...]) -> Iterator[Problem]:
    """Rates that are none."""
    for rate in rates:
        if not 0 <= rate <= RATE_MAX_PER_S:
            expected = f"a finite number from 0 to {RATE_MAX_PER_S}"
            yield Problem(path=path, value=rate, expected=expected)


def capacity_problems(path: Path, capacity_per_s: float) -> Iterator[Problem]:
    """A capacity that is none."""
    if not capacity_per_s > 0:
        yield Problem(path=path, value=capacity_per_s, expected="a number greater than 0, or inf")


def weight_problems(path: Path, weights: tuple[int, ...]) -> Iterator[Problem]:
    """Weights that are none."""
    for weight in weights:
        yield from at_least(path, weight, 0)


def one_topic_problems(path: Path, topic: Topic) -> Iterator[Problem]:
    """A topic, or what is shared in its place, by itself."""
    if not topic.name:
        yield Problem(path=path, value=topic.name, expected="a name")
    yield from at_least((*path, "partitions"), topic.partitions, 1)
    if len(topic.rate_per_s) != topic.partitions:
        yield Problem(
            path=(*path, "rate_per_s"),
            value=list(topic.rate_per_s),
            expected=f"one number for each of {topic.partitions} partitions",
        )
    yield from rate_problems((*path, "rate_per_s"), topic.rate_per_s)
    if topic.weights and len(topic.weights) != topic.partitions:
        yield Problem(
            path=(*path, "weight"),
            value=list(topic.weights),
            expected=f"one integer for each of {topic.partitions}",
        )
    yield from weight_problems((*path, "weight"), topic.weights)


def unknown_topic(path: Path, topic: str, topics: dict[str, int], shares: Shares) -> Problem:
    """A name that none of what is shared has."""
    known = ", ".join(sorted(topics)) or "that there are: none"
    return Problem(path=path, value=topic, expected=f"one of the {shares} {known}")
