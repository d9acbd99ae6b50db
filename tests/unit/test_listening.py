"""Servers listen on addresses of IPv4 and IPv6, and a wrong address is one line."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.listening import is_loopback, is_own_host, listening_socket
from coopgroup.printable import host_and_port
from tests.support.ipv6 import needs_root, with_ipv6_only

WAIT_S = 60.0


def reached(listener: socket.socket, address: str) -> bool:
    """Return whether a client reaches the socket at an address."""
    try:
        with socket.create_connection((address, listener.getsockname()[1]), timeout=WAIT_S):
            return True
    except ConnectionRefusedError:
        return False


@pytest.mark.parametrize(
    ("host", "reachable"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - loopback is what is asked
        ("localhost", "127.0.0.1"),
        pytest.param("::1", "::1", marks=needs_root),
        pytest.param("[::1]", "::1", marks=needs_root),
        pytest.param("::", "::1", marks=needs_root),
        pytest.param("::", "127.0.0.1", marks=needs_root),
        pytest.param("[::]", "::1", marks=needs_root),
    ],
)
def test_server_is_reached_at_its_address(host: str, reachable: str) -> None:
    with closing(listening_socket(host, 0)) as listener:
        assert reached(listener, reachable)


@pytest.mark.parametrize("host", ["::1", "[::1]", "::", "0:0::1"])
@with_ipv6_only
def test_server_is_reached_without_ipv4(host: str) -> None:
    with closing(listening_socket(host, 0)) as listener:
        assert reached(listener, "::1")


@with_ipv6_only
def test_address_of_ipv4_is_refused_without_ipv4() -> None:
    with pytest.raises(ConfigurationError, match=r"^host: got '127.0.0.1', expected an address of"):
        listening_socket("127.0.0.1", 0)


WRONG = ("192.0.2.1", "2001:db8::1", "[192.0.2.1]", "no such host", "::1]", "[::1", "[]", "[[::1]]")
WRONG_TOO = ("::1:8080:::", "127.0.0.1:8080", "[::1]:8080", "", None, 8080, "x" * 70, "a\nb", "é\0")


def test_wrong_host_is_one_line(subtests: pytest.Subtests) -> None:
    hosts: tuple[Any, ...] = (*WRONG, *WRONG_TOO)
    for host in hosts:
        with subtests.test(host=host):
            with pytest.raises(ConfigurationError) as caught:
                listening_socket(host, 0)
            said = str(caught.value)
            assert (caught.value.field, caught.value.value) == ("host", host)
            assert said.startswith(f"host: got {host!r}, expected an address")
            assert "\n" not in said


def test_port_in_use_is_one_line() -> None:
    with closing(listening_socket("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        wanted = f"^port: got {port}, expected a port that is free on 127.0.0.1"
        with pytest.raises(ConfigurationError, match=wanted):
            listening_socket("127.0.0.1", port)


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


@pytest.mark.parametrize("address", ["127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_loopback(address: str) -> None:
    assert is_loopback(address)
    assert not is_loopback("::ffff:10.0.0.1")


def test_address_is_shown_as_it_is_typed() -> None:
    assert host_and_port("::1", 9092) == "[::1]:9092"
    assert host_and_port("broker", 9092) == "broker:9092"
