"""What kafka-python logs about our connections: for those who look for it, not for everybody.

kafka-python logs every end of a connection as an error, our own regular close included, and each
failed attempt to connect. What matters of that reaches the application as a result or in
telemetry. So its lines about our connections, and only those, are kept back unless its logger is
set to DEBUG. No logger's level or handler is touched, and an application's own use of kafka-python
logs as ever.

At DEBUG, kafka-python logs the bytes and the messages of SASL, with passwords and tokens in them.
In lines about our connections, bytes are replaced by their number and such messages by their name.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["THREAD_PREFIX", "keep_quiet_about_connections"]

THREAD_PREFIX: Final = "coopgroup-transport-"
"""Begins the names of the threads whose connections are ours."""

# Whatever thread of ours speaks to a broker.
_OWN_THREADS: Final = "coopgroup-"
_LOGGERS: Final = ("kafka.net.connection", "kafka.net.transport")
_LOGGERS_OF_BYTES: Final = ("kafka.protocol.parser", *_LOGGERS)
# SaslHandshake only names the mechanism.
_SECRET_MESSAGES: Final = ("SaslAuthenticate", "SaslBytes")


def keep_quiet_about_connections() -> None:
    """Keep back lines about our connections, and secrets; calling it again changes nothing."""
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
    """An argument of a log line, without what may be a password or a token."""
    if isinstance(argument, bytes | bytearray | memoryview):
        return f"({len(argument)} bytes)"
    name = type(argument).__name__
    return f"{name}(not shown)" if name.startswith(_SECRET_MESSAGES) else argument
