"""Names of this machine in a `Host` header."""

from __future__ import annotations

import pytest

from coopgroup.health import is_own_host

OWN = ("localhost", "LocalHost:80", "127.0.0.1", "127.1.2.3:8080", "[::1]:80", "[::1]", "[::1]:")
FOREIGN = (
    *("", "example.com", "localhost.example.com", "10.0.0.1", "[::2]", "0.0.0.1"),
    *("[::1].evil.example", "[::1]:80.evil", "x[::1]", "[[::1]]", "[::1", "::1", "localhost:80:80"),
)


@pytest.mark.parametrize("host", OWN)
def test_loopback_names_are_own(host: str) -> None:
    assert is_own_host(host)


@pytest.mark.parametrize("host", FOREIGN)
def test_all_others_are_foreign(host: str) -> None:
    assert not is_own_host(host)
