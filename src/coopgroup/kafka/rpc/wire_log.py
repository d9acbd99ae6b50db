"""Filter kafka-python's log lines about coopgroup's connections.

kafka-python logs every end of a connection as an error, even a regular close, and each failed
attempt to connect. The application gets the relevant events as results or in telemetry. So the
lines about coopgroup's connections are suppressed unless kafka-python's logger is set to DEBUG. No
logger's level or handler is changed, and an application's own use of kafka-python logs as usual.

At DEBUG, kafka-python logs the bytes and the messages of SASL, with passwords and tokens. In lines
about coopgroup's connections, bytes are replaced by their number and such messages by their name.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["THREAD_PREFIX", "keep_quiet_about_connections"]

THREAD_PREFIX: Final = "coopgroup-transport-"
"""Prefix of the names of threads that run coopgroup's own connections."""

# Name prefix of coopgroup's threads, some of which speak to a broker.
_OWN_THREADS: Final = "coopgroup-"
_LOGGERS: Final = ("kafka.net.connection", "kafka.net.transport")
_LOGGERS_OF_BYTES: Final = ("kafka.protocol.parser", *_LOGGERS)
# SaslHandshake only names the mechanism.
_SECRET_MESSAGES: Final = ("SaslAuthenticate", "SaslBytes")


def keep_quiet_about_connections() -> None:
    """Suppress lines about coopgroup's connections, and secrets; repeated calls change nothing."""
    for name in _LOGGERS_OF_BYTES:
        logging.getLogger(name).addFilter(_without_secrets)
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    if not (record.threadName or "").startswith(THREAD_PREFIX):
        return True
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _without_secrets(record: logging.LogRecord) -> bool:
    if (record.threadName or "").startswith(_OWN_THREADS) and isinstance(record.args, tuple):
        record.args = tuple(_shown(one) for one in record.args)
    return True


def _shown(argument: object) -> object:
    """Return an argument of a log line, without a possible password or token."""
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"({len(argument)} bytes)"
    name = type(argument).__name__
    return f"{name}(not shown)" if name.startswith(_SECRET_MESSAGES) else argument
