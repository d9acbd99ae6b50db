"""What a test must reach inside of a group for: a moment that no broker brings about on demand."""

from __future__ import annotations

from typing import Any

__all__ = ["inner"]


def inner(of: object, *names: str) -> Any:  # noqa: ANN401  (whatever is in there)
    """A part of a part of something."""
    for name in names:
        of = getattr(of, name)
    return of
