"""Stories of members that leave, and of the identities under which they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.spark.frames import commit
from tests.spark.stories import State, Story

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["AWAY", "RETURNS"]

_PEOPLE = {
    "a1": "a1@a@h1",
    "a2": "a2@a@h1",
    "a3": "a3@a@h2",
    "b1": "b1@b@h1",
    "b2": "b2@b@h1",
    "c1": "c1@c@h3",
    "c2": "c2@x@h3",
    "s1": "s1@s@h1/i",
    "s2": "s2@s@h9/i",
    "k": "k@k@h7",
}


def _presence(*told: tuple[int, int, str], commits: Sequence[dict[str, Any]] = ()) -> Story:
    """Return a story of states: time, generation and members; the first one holds a partition."""
    states = [
        State(
            at_ms=at_ms,
            generation=generation,
            held={_PEOPLE[name]: [0] * (not place) for place, name in enumerate(present.split())},
        )
        for at_ms, generation, present in told
    ]
    return Story(states=states, commits=commits, limits={"session_timeout_ms": 10})


RETURNS: dict[str, tuple[list[tuple[int, int, str]], list[tuple[Any, ...]]]] = {
    "the same client on the same host": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a2 k")],
        [("a1", "client_and_host", "a2", 150)],
    ),
    "the same client on another host": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a3 k")],
        [("a1", "client", "a3", 150)],
    ),
    "another client on the same host": (
        [(100, 1, "c1 k"), (110, 2, "k"), (150, 3, "c2 k")],
        [("c1", "host", "c2", 150)],
    ),
    "the same static id on another host": (
        [(100, 1, "s1 k"), (110, 2, "k"), (150, 3, "s2 k")],
        [("s1", "static_id", "s2", 150)],
    ),
    "a static member within a generation": (
        [(100, 1, "s1 k"), (130, 1, "s2 k")],
        [("s1", "static_id", "s2", 130)],
    ),
    "never": (
        [(100, 1, "a1 k"), (110, 2, "k")],
        [("a1", "never", None, None)],
    ),
    "somebody else came": (
        [(100, 1, "a1 k"), (110, 2, "k"), (150, 3, "k s1")],
        [("a1", "never", None, None)],
    ),
    "who comes for the first time is no return": (
        [(100, 1, "k"), (110, 2, "a1 k"), (120, 3, "k"), (130, 4, "a2 k")],
        [("a1", "client_and_host", "a2", 130)],
    ),
    "two names at once, each its own": (
        [(100, 1, "a1 b1 k"), (110, 2, "k"), (120, 3, "b2 k"), (130, 4, "a2 b2 k")],
        [("a1", "client_and_host", "a2", 130), ("b1", "client_and_host", "b2", 120)],
    ),
    "replaced within one round": (
        [(100, 1, "a1 k"), (150, 2, "a2 k")],
        [("a1", "client_and_host", "a2", 150)],
    ),
    "twice in a row, in order": (
        [(100, 1, "a1 k"), (110, 2, "k"), (120, 3, "a2 k"), (130, 4, "k"), (140, 5, "a3 k")],
        [("a1", "client_and_host", "a2", 120), ("a2", "client", "a3", 140)],
    ),
    "everybody": (
        [(100, 1, "a1"), (110, 2, ""), (120, 3, "a2")],
        [("a1", "client_and_host", "a2", 120)],
    ),
}


_SEEN = (commit(15, 1), commit(104, 2), commit(999, 3, written_ms=1_000))
AWAY = {
    **{name: _presence(*told) for name, (told, _) in RETURNS.items()},
    "worked": _presence(
        (100, 1, "a1 k"), (110, 2, "k"), (150, 3, "a2 k"), (300, 4, "a2 k"), commits=_SEEN
    ),
    "no commits": _presence((100, 1, "k a1"), (110, 2, "k"), (150, 3, "k a2")),
    # Signs that the member lived between its last commit and the round without it.
    "quiet": _presence((100, 1, "a1 k"), (2_000, 2, "k"), (2_005, 3, "a2 k"), commits=_SEEN),
    "unknown rounds": _presence((100, 1, "a1 k"), (2_000, 9, "k"), commits=_SEEN),
}
