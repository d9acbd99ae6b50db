"""Where a consumer's telemetry goes: structured log events, and a file if one is named.

Events are logged through structlog onto the standard logger "coopgroup", so an application that
configures nothing sees warnings only. The file gets one JSON object a line (`telemetry.codec`).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import attrs
import structlog
from attrs import define, field

from coopgroup.errors import ConfigurationError
from coopgroup.model import ResourceSet
from coopgroup.telemetry import (
    CommitFailed,
    Envelope,
    MembershipLost,
    Record,
    RequestRefused,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    to_json,
)

__all__ = ["TelemetrySink"]

_WARNINGS: Final = (MembershipLost, CommitFailed, RoundRefused, SubscriptionUnreadable)
_DEBUG: Final = (StateChanged, RequestRefused)


@define(eq=False)
class TelemetrySink:
    """Writes records, from any thread.

    Attributes:
        group_id: the group, bound to every event.
        file_path: file to append to, None for none.
        listener: gets every envelope, on the thread that wrote it; None for nobody.
    """

    group_id: str
    file_path: str | None = None
    listener: Callable[[Envelope], None] | None = None
    _log: Any = field(init=False)
    _file: IO[str] | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        """Open the file.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        logger = structlog.wrap_logger(logging.getLogger("coopgroup"))
        self._log = logger.bind(group=self.group_id)
        if self.file_path is None:
            return
        try:
            self._file = Path(self.file_path).open(  # noqa: SIM115  (closed by close())
                "a", encoding="utf-8", buffering=1
            )
        except OSError as cause:
            raise ConfigurationError(
                "coopgroup.telemetry.file", self.file_path, f"a file to write ({cause.strerror})"
            ) from None

    def write(self, record: Record, *, member_id: str, generation: int) -> None:
        """Write one record, with the time of day and who wrote it."""
        envelope = Envelope(
            at_ms=time.time_ns() // 1_000_000,
            group=self.group_id,
            member=member_id,
            generation=generation,
            record=record,
        )
        self._write_log(envelope)
        if self.listener is not None:
            self.listener(envelope)
        if self._file is not None:
            line = json.dumps(to_json(envelope), separators=(",", ":"))
            with self._lock:
                if self._file is not None:
                    self._append(self._file, line)

    def _append(self, file: IO[str], line: str) -> None:
        """Write a line; a file that cannot be written must not end the group's thread."""
        try:
            file.write(line + "\n")
        except OSError as error:
            self._file = None
            self.warn("telemetry_file_given_up", path=self.file_path, error=str(error))

    def warn(self, event: str, **fields: object) -> None:
        """Log something that is no record of the group: an exception of a callback, say."""
        self._log.warning(event, **fields)

    def close(self) -> None:
        """Close the file; later records are logged only."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write_log(self, envelope: Envelope) -> None:
        record = envelope.record
        if isinstance(record, _WARNINGS):
            level = logging.WARNING
        else:
            level = logging.DEBUG if isinstance(record, _DEBUG) else logging.INFO
        if not logging.getLogger("coopgroup").isEnabledFor(level):
            return
        fields = {one.name: _short(getattr(record, one.name)) for one in attrs.fields(type(record))}
        self._log.log(
            level,
            to_json(envelope)["kind"],
            member=envelope.member,
            generation=envelope.generation,
            **fields,
        )


def _short(value: object) -> object:
    """Counts instead of whole sets: a log line is for people."""
    return len(value) if isinstance(value, ResourceSet) else value
