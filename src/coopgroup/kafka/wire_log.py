"""What kafka-python logs about our connections: for those who look for it, not for everybody.

kafka-python logs every end of a connection as an error, our own regular close included, and each
failed attempt to connect. What matters of that reaches the application as a result or in
telemetry. So its lines about our connections, and only those, are kept back unless its logger is
set to DEBUG. No logger's level or handler is touched, and an application's own use of kafka-python
logs as ever.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["THREAD_PREFIX", "keep_quiet_about_connections"]

THREAD_PREFIX: Final = "coopgroup-transport-"
"""Begins the names of the threads whose connections are ours."""

_LOGGERS: Final = ("kafka.net.connection", "kafka.net.transport")


def keep_quiet_about_connections() -> None:
    """Keep back lines about our connections; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_wanted)


def _is_wanted(record: logging.LogRecord) -> bool:
    if not (record.threadName or "").startswith(THREAD_PREFIX):
        return True
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
