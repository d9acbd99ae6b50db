"""What single requests of a run may meet with, by Kafka's name of the request."""

from typing import Final

__all__ = ["CODES", "LATE_MS"]

CODES: Final = dict.fromkeys(
    ("JoinGroup", "SyncGroup", "Heartbeat"), (-1, 14, 15, 16, 22, 25, 27)
) | {"OffsetCommit": (14, 15, 16, 22, 25, 27)}
"""Error codes that a request may get and that a member must recover from."""
LATE_MS: Final = dict.fromkeys(("JoinGroup", "SyncGroup"), (10, 40)) | dict.fromkeys(
    ("Heartbeat", "OffsetCommit"), (10, 150, 700)
)
"""Times by which a request may be late, in ms."""
