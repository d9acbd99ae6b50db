"""Preparation of a Spark Python worker before a task, so that little time passes between tasks.

Between two tasks PySpark invalidates every importer, and collects garbage. The importers of
archives then read their table of contents again, once for each package of PySpark's own archive.
The collector visits the objects of all imported modules. Together this takes a worker a tenth of a
second or more, which is half a cell of a sweep.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TypeVar
from zipimport import zipimporter

__all__ = ["settled"]

_Batch = TypeVar("_Batch")


def settled(
    play: Callable[[Iterable[_Batch]], Iterator[_Batch]], batches: Iterable[_Batch]
) -> Iterator[_Batch]:
    """Run a task in a worker, and shorten the pause before the next task.

    Args:
        play: the task.
        batches: its input.
    """
    _forget_archives()
    _keep_modules()
    return play(batches)


def _forget_archives() -> None:
    """Drop the importers of archives; Python creates them again for an import."""
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


@cache
def _keep_modules() -> None:
    """Hide the loaded objects from the garbage collector, once per process."""
    gc.collect()
    gc.freeze()
