"""`Problem`: an error in a scenario, and checks that several modules share.

A problem contains the path in the scenario file, the value and the expected values.
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
    """An error in a scenario.

    Attributes:
        path: keys as in the scenario file, and list indices counted from 0.
        value: the wrong value.
        expected: description of right values, as the end of the sentence "expected …".
        key: name in the message; "" for the dotted path.
    """

    path: Path
    value: object
    expected: str
    key: str = ""


def dotted(path: Path) -> str:
    """Return a path in the form of messages: `events[2].at_ms`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def at_least(path: Path, value: int, low: int) -> Iterator[Problem]:
    """Yield a problem if an integer is too small."""
    if value < low:
        yield Problem(path=path, value=value, expected=f"an integer from {low} on")


def span_problems(path: Path, span: Span, low: int = 0) -> Iterator[Problem]:
    """Yield a problem if a range begins too low, or ends before it begins."""
    if span.low < low:
        yield Problem(path=path, value=span.low, expected=f"an integer from {low} on")
    if span.high < span.low:
        yield Problem(
            path=path, value=[span.low, span.high], expected="the smaller number before the larger"
        )


def rate_problems(path: Path, rates: tuple[float, ...]) -> Iterator[Problem]:
    """Yield a problem for each invalid rate."""
    for rate in rates:
        if not 0 <= rate <= RATE_MAX_PER_S:
            expected = f"a finite number from 0 to {RATE_MAX_PER_S}"
            yield Problem(path=path, value=rate, expected=expected)


def capacity_problems(path: Path, capacity_per_s: float) -> Iterator[Problem]:
    """Yield a problem if the capacity is invalid."""
    if not capacity_per_s > 0:
        yield Problem(path=path, value=capacity_per_s, expected="a number greater than 0, or inf")


def weight_problems(path: Path, weights: tuple[int, ...]) -> Iterator[Problem]:
    """Yield a problem for each invalid weight."""
    for weight in weights:
        yield from at_least(path, weight, 0)


def one_topic_problems(path: Path, topic: Topic) -> Iterator[Problem]:
    """Yield the problems of a single topic or named resource."""
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
    """Return the problem of an unknown topic or resource name."""
    known = ", ".join(sorted(topics)) or "that there are: none"
    return Problem(path=path, value=topic, expected=f"one of the {shares} {known}")
