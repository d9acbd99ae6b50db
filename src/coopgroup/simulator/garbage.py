"""No search for garbage while a run goes on.

A run keeps most of what it makes, and what it drops is in no cycle: only its parts know each other,
all of them up to its end. Python's search for cycles looks at everything again and again meanwhile,
which takes an eighth of the time of a large run and finds nothing.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["searched_afterwards"]


@contextmanager
def searched_afterwards() -> Iterator[None]:
    """Look for cycles at the end, once, among what was made meanwhile.

    Where somebody has switched that off already, it stays off.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(0)
