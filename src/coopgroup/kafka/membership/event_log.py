"""What coopgroup logs: events with fields, by structlog.

If the application has configured structlog, an event goes into its pipeline, with its fields as
they are. Otherwise it goes to the standard logger "coopgroup", so an application that configures
nothing sees the warnings. There the message is the event with its fields in words, and the log
record has the fields as attributes. Nothing is configured here.

structlog imports rich, and takes almost as long as NumPy. So the first event that is heard imports
it. The thread of the group may log it. A child that the application forks meanwhile would inherit
the lock of a half imported module, and hang at its own first event. So a fork waits for the import.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from structlog.typing import EventDict

_NAME: Final = "coopgroup"
_LOGGER: Final = logging.getLogger(_NAME)
_METHODS: Final = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning"}
# The name of the event begins the message, and the member id tells more than the client id.
_NOT_TOLD: Final = ("event", "client")
# `logging` refuses fields of these names, because a log record has them already.
_TAKEN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_CALLERS: Final = 5  # from the logger to the caller of `log`: three calls of structlog, and `log`
_importing: Final = threading.RLock()
os.register_at_fork(
    before=_importing.acquire,
    after_in_parent=_importing.release,
    after_in_child=_importing.release,
)


def is_heard(level: int) -> bool:
    """Return whether an event of this level goes anywhere."""
    return _has_pipeline() or _LOGGER.isEnabledFor(level)


def log(
    level: int, event: str, context: Mapping[str, object], fields: Mapping[str, object]
) -> None:
    """Log an event.

    Args:
        level: `logging.DEBUG`, `INFO` or `WARNING`.
        event: its name.
        context: whose event it is: `group`, `client` and `member`.
        fields: the other fields.
    """
    if not is_heard(level):
        return
    with _importing:
        import structlog  # noqa: PLC0415 - see above

    if _has_pipeline():
        logger = structlog.get_logger(_NAME)
    else:
        logger = structlog.wrap_logger(_LOGGER, [_as_log_record], structlog.stdlib.BoundLogger)
    getattr(logger.bind(**context), _METHODS[level])(event, **fields)


def _has_pipeline() -> bool:
    """Return whether the application has configured structlog, for which it had to import it."""
    if "structlog" not in sys.modules:
        return False
    import structlog  # noqa: PLC0415 - another thread may still be importing it

    return structlog.is_configured()


def _as_log_record(
    _logger: object, _method: str, event: EventDict
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the arguments for the standard logger; structlog calls this last."""
    told = (f"{name}={_told(value)}" for name, value in event.items() if name not in _NOT_TOLD)
    extra = {f"{name}_" if name in _TAKEN else name: value for name, value in event.items()}
    return ("%s %s", event["event"], " ".join(told)), {"extra": extra, "stacklevel": _CALLERS}


def _told(value: object) -> str:
    """Return a value as text; quoted if it has blanks, so that fields can be told apart."""
    text = str(value)
    return repr(text) if not text or any(map(str.isspace, text)) else text
