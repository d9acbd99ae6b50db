"""A leadership without a broker: what its group grants is granted by the test."""

from __future__ import annotations

from typing import Any

import pytest

from coopgroup import Leadership
from coopgroup.errors import ConfigurationError

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def test_static_id_is_refused() -> None:
    """Two processes with one such id would lead with the same token (KIP-345)."""
    expected, static = "same token", dict[str, Any]({"group.instance.id": "w1"})
    with pytest.raises(ConfigurationError, match=expected):
        Leadership({**SETTINGS, **static})
    with pytest.raises(ConfigurationError, match=expected):
        Leadership(SETTINGS, **static)
