"""Files without a name: they end with their descriptor, even if the process is killed.

Linux keeps such a file in memory, so it needs no folder: a container with a read-only root has no
folder for temporary files. Elsewhere the file is made in `TMPDIR`, and loses its name before
anything is written.

The supervisor imports this file, so it imports nothing large.
"""

from __future__ import annotations

import os
import time
from typing import BinaryIO


def nameless_file(content: bytes) -> BinaryIO:
    """Return a new file with a content, to be read from its beginning.

    Raises:
        OSError: the system keeps no files in memory, and `TMPDIR` is no folder to write in.
    """
    if hasattr(os, "memfd_create"):
        file = os.fdopen(os.memfd_create("coopgroup"), "w+b")
    else:
        folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108 - the file is new, and ours alone
        path = f"{folder}/coopgroup-{os.getpid()}-{time.monotonic_ns()}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(path)  # noqa: PTH108 - pathlib is not worth its memory in the supervisor
        file = os.fdopen(descriptor, "w+b")
    file.write(content)
    file.seek(0)
    return file


def path_of(file: BinaryIO) -> str:
    """Return a path by which this process can open the file while its descriptor is open."""
    # A container may lack /dev/fd, which is a link to /proc/self/fd.
    folder = "/proc/self/fd" if hasattr(os, "memfd_create") else "/dev/fd"
    return f"{folder}/{file.fileno()}"
