"""`job_lock`: only one process at a time runs a job on a folder of tables.

Jobs with the same name write the same batches, so two such jobs would overwrite each other's files.
A running job holds a lock of the operating system on `FOLDER/locks/NAME`. The kernel drops the
lock with the process, so a crash leaves no lock behind. Jobs with other names and readers need no
lock: a batch becomes visible when it is complete, and a snapshot job does not overwrite the newest
snapshots (see `tables`).

Only local folders can be locked, and only if their file system has locks. Some network file
systems have none. There, and in a store such as s3a://, the user must start a job only once.
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
    """Hold the lock of the jobs of a folder, or refuse if another process holds one.

    Args:
        folder: path or URL of the tables; a remote one is not locked.
        jobs: names.

    Yields:
        The reason if the file system of a local folder has no locks; else `None`.

    Raises:
        PipelineError: another process runs one of the jobs.
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
    """Return the path of a local folder, `None` for a remote one.

    Args:
        folder: path or URL.
    """
    if "://" not in folder and not folder.startswith("file:"):
        return Path(folder)
    parts = urlsplit(folder)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
