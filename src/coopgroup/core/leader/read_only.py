"""Read-only arrays: bugs of an assignor or a policy cannot change the data of the safety check."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from coopgroup.core.model import GroupSnapshot

__all__ = ["read_only", "read_only_group"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Make an array read-only, and return it."""
    array.flags.writeable = False
    return array


def read_only_group(group: GroupSnapshot) -> GroupSnapshot:
    """Make all arrays of a group read-only, and return the group."""
    for field in attrs.fields(type(group)):
        value = getattr(group, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return group
