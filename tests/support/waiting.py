"""Wait for a condition, with a time limit that a busy machine does not reach."""

import time
from collections.abc import Callable
from typing import Final

WAIT_S_MAX: Final = 60.0
_PAUSE_S: Final = 0.005


def wait_for(
    condition: Callable[[], object],
    what: str = "the awaited state",
    timeout_s: float = WAIT_S_MAX,
    poll: Callable[[], object] | None = None,
) -> None:
    """Wait until a condition holds.

    Args:
        condition: is asked again and again.
        what: the condition in words, for the failure.
        timeout_s: fails after this time, in seconds.
        poll: runs between two questions; None for a short pause.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {timeout_s:g} s"
        if poll is None:
            time.sleep(_PAUSE_S)
        else:
            poll()
