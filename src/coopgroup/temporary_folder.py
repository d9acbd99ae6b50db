"""The folder for temporary files, which a container with a read-only root may lack."""

from __future__ import annotations

import os
import tempfile

from coopgroup.errors import ConfigurationError


def temporary_folder() -> str:
    """Return the folder for temporary files.

    Raises:
        ConfigurationError: no such folder can be written in.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        given = os.environ.get("TMPDIR", "")
        raise ConfigurationError("TMPDIR", given, "a folder to write in") from None
