"""Write a consumer's telemetry: log events, and a file or a topic if configured.

Records are logged as events (`event_log`). The file gets one JSON object per line
(`telemetry_file`), and the topic one JSON object per record (`telemetry_topic`).

A member tells its topic of telemetry from time to time how it is. Records tell what changed. A
lease and the time since the last poll change all the time, and only the member knows them.
`coopgroup watch` shows them. Reports are made on the transport's thread, and read published values.
So a report costs neither `poll` nor the group's thread anything.

Rule of this file: no lock is held while the application's code runs (a listener or a log handler).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
from attrs import define, field

from coopgroup.core.member import Member
from coopgroup.core.member.transitions import AT_WORK, MemberState
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.event_log import is_heard, log
from coopgroup.kafka.rpc.outcomes import HandshakeError
from coopgroup.telemetry import (
    AssigningMoved,
    AssignmentRefused,
    AssignmentUnreadable,
    ClaimRefused,
    CommitFailed,
    Envelope,
    MemberReported,
    MembershipLost,
    PolicyOrAssignorDiffers,
    Record,
    RequestRefused,
    RequestRetried,
    RoundRefused,
    StateChanged,
    SubscriptionUnreadable,
    UserDataUnreadable,
    WithoutRoom,
    WorkFailed,
    to_json,
)

if TYPE_CHECKING:
    from coopgroup.kafka.membership.telemetry_file import TelemetryFile
    from coopgroup.kafka.membership.telemetry_topic import TelemetryTopic
    from coopgroup.kafka.rpc.transport import GroupTransport

_WARNINGS: Final = (
    AssigningMoved,
    AssignmentRefused,
    AssignmentUnreadable,
    ClaimRefused,
    MembershipLost,
    CommitFailed,
    PolicyOrAssignorDiffers,
    RequestRetried,
    RoundRefused,
    SubscriptionUnreadable,
    UserDataUnreadable,
    WithoutRoom,
    WorkFailed,
)
_DEBUG: Final = (StateChanged, RequestRefused)

# Time between two reports. They are 2.7 MB a day for each member.
REPORT_MS: Final = 10_000
# How long a closing member waits for the broker of the topic.
_FINISH_S: Final = 1.0


Report: TypeAlias = Callable[[], tuple[Member, MemberReported]]
"""Returns the member after its last step, and how it is."""


@define(eq=False)
class TelemetrySink:
    """Writes records, from any thread.

    Attributes:
        listener: called with every envelope, on the writing thread; None for none. Its exceptions
            are logged.
        client_id: name of the client, for records and the log.
        hear: a part of the consumer that gets every record; it neither waits nor raises.
    """

    group_id: str
    file_path: str | None = None
    listener: Callable[[Envelope], object] | None = None
    client_id: str = ""
    hear: Callable[[Record], object] | None = field(default=None, init=False)
    _topic: TelemetryTopic | None = field(default=None, init=False)
    _file: TelemetryFile | None = field(default=None, init=False)
    # The last known member id; empty before the coordinator has given one.
    _member_id: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        if self.file_path is None:
            return
        from coopgroup.kafka.membership.telemetry_file import TelemetryFile  # noqa: PLC0415 - an option

        try:
            self._file = TelemetryFile(Path(self.file_path), self.warn)
        except OSError as cause:
            raise ConfigurationError(
                "coopgroup.telemetry.file",
                self.file_path,
                f"a file to write ({cause.strerror})",
            ) from None

    def watch(self, probe: object) -> None:
        """Let the listener read this member, if it has a method `watch_member`.

        The result of that method, a listener for this member, takes its place.

        Args:
            probe: reads this member.
        """
        watch = getattr(self.listener, "watch_member", None)
        if callable(watch):
            self.listener = watch(probe)

    def open_topic(self, topic: str, transport: GroupTransport, timeout_ms: int) -> None:
        """Write later records to a topic, too; the transport may start later."""
        from coopgroup.kafka.membership.telemetry_topic import TelemetryTopic  # noqa: PLC0415 - an option

        self._topic = TelemetryTopic(
            transport=transport,
            topic=topic,
            group_id=self.group_id,
            warn=self.warn,
            timeout_ms=timeout_ms,
        )

    def start_reports(self, report: Report) -> None:
        """Add a report of the member to the topic, if there is one, after each interval."""
        if self._topic is not None:
            later = partial(self._report, self._topic, report)
            self._topic.transport.later(REPORT_MS / 1000, later)

    def _report(self, topic: TelemetryTopic, report: Report) -> None:
        try:
            member, record = report()
            # A report that waits is out of date when it arrives.
            if member.state in AT_WORK | {MemberState.LOSING} and not topic.is_behind:
                topic.put(self._envelope(record, member.member_id, member.claim_generation))
        finally:  # without a report, others would take the member for gone
            self.start_reports(report)

    def finish_topic(self) -> None:
        """Send the waiting records to the topic, for a bounded time; it gets no later records."""
        if self._topic is not None:
            self._topic.finish(_FINISH_S)

    def write(self, record: Record, *, member_id: str, generation: int) -> None:
        """Write one record, with the time of day and its member."""
        envelope = self._envelope(record, member_id, generation)
        self._member_id = member_id
        if self.hear is not None:
            self.hear(record)
        self._write_log(envelope)
        if self.listener is not None:
            self._tell(self.listener, envelope)
        if self._file is not None:
            self._file.put(envelope)
        if self._topic is not None:
            self._topic.put(envelope)

    def _envelope(self, record: Record, member_id: str, generation: int) -> Envelope:
        return Envelope(
            at_ms=time.time_ns() // 1_000_000,
            group=self.group_id,
            member=member_id,
            generation=generation,
            record=record,
            client=self.client_id,
        )

    def _tell(self, listener: Callable[[Envelope], object], envelope: Envelope) -> None:
        try:
            listener(envelope)
        except Exception as error:  # noqa: BLE001 -- see above
            self.warn("telemetry_listener_failed", error=repr(error))

    def warn(self, event: str, *, is_over: bool = False, **fields: object) -> None:
        """Log an event that is not a record of the group, such as an exception of a callback.

        This never raises: a log that cannot be written must cost neither member nor round.

        Args:
            event: its name.
            is_over: whether it says that a trouble has ended, which is no warning.
            fields: its fields.
        """
        with suppress(Exception):
            self._log(logging.INFO if is_over else logging.WARNING, event, **fields)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the records so far are in the file; return whether they are."""
        return self._file is None or self._file.flush(timeout_s)

    def warn_of(self, error: BaseException) -> None:
        """Log an exception that reached the group's host, as `warn` does."""
        if isinstance(error, HandshakeError):
            self.warn("handshake_failed", error=str(error))
        else:
            self.warn("internal_error", error=repr(error))

    def close(self) -> None:
        """Write the waiting records, and close the file; later records are logged only."""
        if self._file is not None:
            self._file.close()

    def _write_log(self, envelope: Envelope) -> None:
        record = envelope.record
        level = _level(record)
        if not is_heard(level):
            return
        fields = {one.name: _short(getattr(record, one.name)) for one in attrs.fields(type(record))}
        if isinstance(record, WorkFailed):  # it is of one resource, and a reader must know which
            fields["resources"] = record.resources.to_dict()
        with suppress(Exception):  # as in `warn`
            self._log(level, to_json(envelope)["kind"], generation=envelope.generation, **fields)

    def _log(self, level: int, event: str, **fields: object) -> None:
        context = {"group": self.group_id, "client": self.client_id, "member": self._member_id}
        log(level, event, context, fields)


def _level(record: Record) -> int:
    if isinstance(record, RequestRetried) and record.is_over:
        return logging.INFO
    if isinstance(record, _WARNINGS):
        return logging.WARNING
    return logging.DEBUG if isinstance(record, _DEBUG) else logging.INFO


def _short(value: object) -> object:
    return len(value) if isinstance(value, ResourceSet) else value
