"""Which `Host` headers name this machine: the remedy against DNS rebinding.

A server on a loopback address has this machine's users only. But a foreign web page reaches it in
their browser under a name that resolves to this address. The header `Host` then has that name.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_LOOPBACK_NAMES: Final = ("localhost", "ip6-localhost")
_HOST: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^\[\]:]*))(?::\d*)?", re.ASCII)


def is_own_host(header: str) -> bool:
    """Return whether a `Host` header names this machine: localhost or a loopback address."""
    found = _HOST.fullmatch(header)
    return found is not None and is_loopback(found[1] or found[2] or "")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is one of the loopback interface."""
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
