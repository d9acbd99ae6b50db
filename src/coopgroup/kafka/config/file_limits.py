"""`FileLimits`: the settings of a telemetry file."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class FileLimits:
    """Limits of a telemetry file.

    Attributes:
        max_bytes: size at which the file is rotated, in bytes; 0 for never.
    """

    max_bytes: int = 100 * 1024 * 1024
    backups: int = 4
