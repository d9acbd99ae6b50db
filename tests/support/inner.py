"""Access to the inside of a group, for moments that no broker produces on demand."""

from __future__ import annotations

from typing import Any


def inner(of: object, *names: str) -> Any:  # noqa: ANN401  (whatever is in there)
    for name in names:
        of = getattr(of, name)
    return of
