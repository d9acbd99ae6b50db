"""`replaced`: a frozen value with other values of some fields, at the cost of one copy.

`attrs.evolve` looks at every field and runs `__init__`, which is well spent where a user's word is
checked. What changes with every event of a member is checked already, and has a dictionary instead
of slots: to copy that takes a fraction of the time.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

__all__ = ["replaced"]

Value = TypeVar("Value")

_new: Final = object.__new__  # looked up once
_fill: Final = object.__setattr__


def replaced(value: Value, **changes: Any) -> Value:  # noqa: ANN401  (of any field)
    """The value with other values of some fields, which nothing checks.

    Args:
        value: frozen, with `slots=False`. Whatever it has cached goes along.
        changes: fields by name.

    Raises:
        TypeError: there is no such field.
    """
    before = value.__dict__
    fields = before | changes
    if len(fields) > len(before):
        unknown = ", ".join(sorted(changes.keys() - before.keys()))
        message = f"{type(value).__name__} has no {unknown}"
        raise TypeError(message)
    made = _new(type(value))
    _fill(made, "__dict__", fields)
    return made
