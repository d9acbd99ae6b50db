"""Show names that others choose, and addresses: clients, hosts, groups, topics, metadata.

A name with control characters could clear a terminal, or forge a line of the output.
"""

from __future__ import annotations

import json

__all__ = ["host_and_port", "printable", "printable_json"]


def printable(text: str) -> str:
    """Return a text with the replacement character for each character that does not print."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)


def printable_json(text: str) -> str:
    """Return JSON of the same meaning, with an escape for each character that does not print."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def host_and_port(host: str, port: int) -> str:
    """Return an address as `bootstrap.servers` and browsers take it: IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
