"""What a Python worker of Spark does before a task, so that little stands between two tasks.

Between two tasks PySpark lets every importer look again at what there is to import, and collects
garbage. Those of archives read the table of contents anew, once for each package of PySpark's own
archive, and the collector looks at every object of all that was ever imported. Together that takes
a worker a tenth of a second or more, which is half a cell of a sweep.
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
    """Run a task in a worker that has little to do before the next one.

    Args:
        play: the task.
        batches: its input.
    """
    _forget_archives()
    _keep_modules()
    return play(batches)


def _forget_archives() -> None:
    """Drop the importers of archives; Python makes one again if there is something to import."""
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]


@cache
def _keep_modules() -> None:
    """Take what is loaded out of the garbage collector's sight, once in the life of a process."""
    gc.collect()
    gc.freeze()
