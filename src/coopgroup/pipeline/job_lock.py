"""`job_lock`: who writes tables of a folder does it alone.

Jobs of one name write the same batches, so that two of them at once would write over each other.
A job holds a lock of the operating system on `FOLDER/locks/NAME` while it runs; the kernel drops
the lock with the process, however that ends, so there is none to be cleared away. Jobs of other
names and readers need no lock: a batch is seen when it is complete, and of a snapshot the places of
the newest ones are left alone (see `tables`).

Only folders of this machine can be locked, and only where their file system knows locks, which some
that are mounted from elsewhere do not. There, and in a store such as s3a://, whoever writes sees to
it that a job is started once.
"""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from coopgroup.errors import ConfigurationError
from coopgroup.pipeline.errors import PipelineError

__all__ = ["job_lock", "local_folder"]

_LOCKS: Final = "locks"
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


@contextmanager
def job_lock(folder: str, *jobs: str) -> Iterator[str | None]:
    """Be the only one who runs jobs on a folder, or say that somebody else does.

    Args:
        folder: path or URL of the tables; one that is not of this machine is not locked.
        jobs: names.

    Yields:
        Why there is no lock, if the file system of a folder of this machine has none; else None.

    Raises:
        PipelineError: another process runs one of them.
        ConfigurationError: the folder cannot be written.
    """
    local = local_folder(folder)
    unlocked = None
    with ExitStack() as held:
        if local is not None:
            for job in sorted(jobs):
                unlocked = held.enter_context(_locked(local / _LOCKS, folder, job)) or unlocked
        yield unlocked


@contextmanager
def _locked(locks: Path, folder: str, job: str) -> Iterator[str | None]:
    try:
        locks.mkdir(parents=True, exist_ok=True)
        file = (locks / job).open("w")
    except OSError as error:
        raise ConfigurationError(
            "--tables", folder, f"a folder to write in ({error.strerror})"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked = None
        except BlockingIOError:
            raise PipelineError(
                f"{folder} is in use: another {job} job writes there; wait until it ends, or take"
                " another folder"
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise PipelineError(f"{folder} cannot be locked: {error.strerror}") from None
            unlocked = error.strerror
        yield unlocked


def local_folder(folder: str) -> Path | None:
    """The folder if it is one of this machine, else None.

    Args:
        folder: path or URL.
    """
    if "://" not in folder and not folder.startswith("file:"):
        return Path(folder)
    parts = urlsplit(folder)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
