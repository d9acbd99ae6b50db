"""Numbers that stand for an absent value.

They have a file of their own, because members use them, and the arrays of a group need NumPy.
"""

from typing import Final

__all__ = ["NOBODY", "NO_GENERATION", "NO_LOSS"]

NOBODY: Final = -1
"""Number of a member: a resource has no owner."""
NO_GENERATION: Final = -1
NO_LOSS: Final = -1
"""Replaces a time: only paced moves wait, and no resource waits for a lost owner."""
