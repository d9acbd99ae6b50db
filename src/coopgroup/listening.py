"""The address of an HTTP server: a socket to listen on, and the names of this machine.

Probes and the live page listen in the same way, on addresses of IPv4 and of IPv6.

A server on a loopback address has this machine's users only. But a foreign web page could reach it
in their browser under a name that resolves to this address (DNS rebinding). The header `Host` then
has that name, so such a server accepts only names of this machine.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from typing import Any, Final

from coopgroup.errors import ConfigurationError

_LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost")
_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?", re.ASCII)
_NEEDED: Final = "an address of this machine, such as 127.0.0.1, or :: for all"
# Errors of the address, not of the port.
_NO_ADDRESS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL)


def listening_socket(host: str, port: int, *, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens on an address; `::` means all, also those of IPv4.

    Args:
        host: an address or a name of this machine; an address of IPv6 may be in brackets.
        port: TCP port; 0 for any free port.
        backlog: number of connections that may wait; None for the default of the system.

    Raises:
        ConfigurationError: the host is no address of this machine, or the port is not free.
    """
    reason: OSError | None = None
    for family, address in _addresses(host, port):
        is_all = family is socket.AF_INET6 and ipaddress.ip_address(address[0]).is_unspecified
        try:
            return socket.create_server(
                address,
                family=family,
                backlog=backlog,
                dualstack_ipv6=is_all and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            reason = reason or error
    code = 0 if reason is None else reason.errno or 0
    said = os.strerror(code).lower()
    if code in _NO_ADDRESS:
        raise ConfigurationError("host", host, f"{_NEEDED}: {said}")
    raise ConfigurationError("port", port, f"a port that is free on {host}: {said}")


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the addresses of a host, those of IPv4 first: clients try 127.0.0.1 for localhost."""
    bare = host
    if isinstance(host, str) and host[:1] == "[" and host[-1:] == "]" and ":" in host:
        bare = host[1:-1]
    try:
        if not bare or not isinstance(bare, str):
            raise ConfigurationError("host", host, _NEEDED)
        found = socket.getaddrinfo(bare, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError("host", host, f"{_NEEDED}: {error.strerror}") from None
    except UnicodeError:
        raise ConfigurationError("host", host, _NEEDED) from None
    return sorted(
        ((family, address) for family, _, _, _, address in found),
        key=lambda one: one[0] is not socket.AF_INET,
    )


def is_own_host(header: str) -> bool:
    """Return whether a `Host` header names this machine: localhost or a loopback address."""
    found = _HOST.fullmatch(header)
    return found is not None and is_loopback(found[1] or found[2] or "")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is one of the loopback interface."""
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
