"""Leave the group for a process that was killed: what its supervisor needs from this package.

The worker's side is `Supervision`. A member in a supervised process tells the supervisor its id
after each change. The other side is a helper, which the supervisor starts after the death. Run as a
program, this file reads the notes of the dead members. It sends LeaveGroup for each.

Rules of this file: a member never waits for the supervisor, and no failure of the supervisor ends a
membership. The helper trusts its input, because `coopgroup.supervisor` decides which members died.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import stat
import sys
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Any, Final

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.model.group_api import Coordinator, FindCoordinatorRequest, LeaveGroupRequest
from coopgroup.errors import ConfigurationError, one_line, said_by
from coopgroup.kafka.clock import now_s, pause
from coopgroup.kafka.config.connection_settings import read_connection_settings
from coopgroup.kafka.config.keys import CONNECTION_KEYS
from coopgroup.kafka.config.settings import ConsumerSettings
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.kafka.rpc.describing import without_coordinator
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.transport import GroupTransport
from coopgroup.printable import host_and_port
from coopgroup.supervisor import VARIABLE, say
from coopgroup.worker import Worker

_LIMIT_S: Final = 10.0
_TIMEOUT_MS: Final = 5_000
_PAUSE_S: Final = 0.2
_RING_TIMEOUT_S: Final = 2.0
_REASON: Final = "the supervisor of its process saw the process die"
_LEFT: Final = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
_numbers: Final = itertools.count(1)


@define(eq=False)
class Supervision:
    """Tells the supervisor of this process how to leave for a member."""

    _settings: ConsumerSettings
    _descriptor: int
    _inode: str
    _sink: TelemetrySink
    _number: int = field(factory=lambda: next(_numbers), init=False)
    # The id, and the name and password that may have changed.
    _told: tuple[str, tuple[str, str] | None] = field(default=("", None), init=False)

    def tell(self, member_id: str) -> None:
        """Tell the current id of the member, "" for none, unless it is known."""
        credentials = self._settings.connection.credentials
        told = (member_id, None if credentials is None else credentials.newest)
        if told == self._told or not (member_id or self._told[0]):
            return
        member = self._settings.member
        note: dict[str, Any] = {
            "process": os.getpid(),
            "member": self._number,
            "id": member_id,
            "returns": member.instance_id is not None or member.keeps_identity,
            "group": member.group_id,
            "bell": self._settings.bell_topic,
            "connection": self._connection(told[1]),
        }
        if not member_id or note["returns"]:
            del note["connection"]  # no password where none is needed
        try:
            line = json.dumps(note).encode()
            _require_socket(self._descriptor, self._inode)  # the password is for nobody else
            os.write(self._descriptor, line)
        except BlockingIOError:
            return  # the supervisor is slow; the next step of the member tells it
        except OSError as error:
            self._sink.warn("supervisor_unreachable", error=str(error))
        except TypeError:
            why = "the configuration has keys or certificates as objects, not as text or files"
            self._sink.warn("supervisor_cannot_leave", why=why)
        self._told = told

    def _connection(self, credentials: tuple[str, str] | None) -> dict[str, Any]:
        given = self._settings.librdkafka
        found = {
            key: value
            for key, value in given.items()
            if key in CONNECTION_KEYS and not callable(value)
        }
        if credentials is not None:
            found["sasl.username"], found["sasl.password"] = credentials
        return found


def supervision(settings: ConsumerSettings, sink: TelemetrySink) -> Supervision | None:
    """Return how to tell the supervisor of this process; None without a supervisor."""
    descriptor, _, inode = os.environ.get(VARIABLE, "").partition(":")
    if not descriptor.isdigit():
        return None
    try:
        _require_socket(int(descriptor), inode)
    except OSError as error:
        sink.warn("supervisor_unreachable", error=str(error))
        return None
    member = settings.member
    returns = member.instance_id is not None or member.keeps_identity
    has_callback = "oauth_cb" in settings.librdkafka
    if settings.connection.token_source is not None and has_callback and not returns:
        sink.warn("supervisor_cannot_leave", why="oauth_cb gives tokens to this process only")
        return None
    return Supervision(settings, int(descriptor), inode, sink)


def _require_socket(descriptor: int, inode: str) -> None:
    """Refuse another file: a program may have closed the socket, and its number is free then.

    Raises:
        OSError: the number is not the supervisor's socket.
    """
    try:
        found = os.fstat(descriptor)
    except OSError:  # closed
        found = None
    if found is None or not stat.S_ISSOCK(found.st_mode) or str(found.st_ino) != inode:
        raise OSError(f"this process lacks the socket of {VARIABLE}")


# --- the helper ----------------------------------------------------------------------------------


def leave_for(note: dict[str, Any], until_s: float) -> None:
    """Send LeaveGroup for a dead member, and ring for the others.

    Raises:
        ConfigurationError: the coordinator does not answer in time, or refuses.
    """
    settings = read_connection_settings(note["connection"])
    group_id: str = note["group"]
    transport = GroupTransport(settings, lambda _: None)
    transport.start()
    with closing(transport):
        last, code = "no answer in time", int(ErrorCode.NONE)
        while (left_s := until_s - now_s()) > 0:
            timeout_ms = round(1000 * min(left_s, _TIMEOUT_MS / 1000))
            answer = _ask(transport, FindCoordinatorRequest(group_id=group_id), None, timeout_ms)
            if not isinstance(answer, TransportFailure) and answer.coordinator is not None:
                request = LeaveGroupRequest(
                    group_id=group_id,
                    member_id=note["id"],
                    group_instance_id=None,
                    reason=_REASON,
                )
                answer = _ask(transport, request, answer.coordinator, timeout_ms)
                if not isinstance(answer, TransportFailure) and answer.error_code in _LEFT:
                    if answer.error_code == ErrorCode.NONE and note["bell"] is not None:
                        _ring(transport, note["bell"], group_id)
                    return
            if isinstance(answer, TransportFailure):
                last = answer.message
            else:
                code = answer.error_code
            pause(_PAUSE_S)
    if code:
        raise without_coordinator(group_id, code)
    servers = ",".join(host_and_port(*one) for one in settings.bootstrap_servers)
    raise ConfigurationError("bootstrap.servers", servers, f"brokers that answer ({last})")


def _ask(
    transport: GroupTransport,
    request: FindCoordinatorRequest | LeaveGroupRequest,
    node: Coordinator | None,
    timeout_ms: int,
) -> Any:  # noqa: ANN401  (the answer to the request, or a failure)
    outcome: queue.SimpleQueue[Any] = queue.SimpleQueue()
    transport.send(Lane.COMMIT, request, outcome.put, node=node, timeout_ms=timeout_ms)
    return outcome.get()


def _ring(transport: GroupTransport, topic: str, group_id: str) -> None:
    from coopgroup.kafka.membership.bell import TopicBell  # noqa: PLC0415 - only the helper rings

    bell = TopicBell(
        transport=transport,
        topic=topic,
        group_id=group_id,
        heard=lambda: None,
        warn=None,
        timeout_ms=_TIMEOUT_MS,
    )
    bell.start()
    bell.ring()
    bell.finish(_RING_TIMEOUT_S)


def main(lines: Iterable[bytes]) -> int:
    """Leave for all members of the notes, side by side; return the exit status.

    Each member has the whole time: brokers of one that do not answer delay no other.
    """
    until_s = now_s() + _LIMIT_S
    waiting = list(lines)
    failed = list(waiting)

    def leave(line: bytes) -> None:
        who = "a member"
        try:
            note = json.loads(line)
            who = f"group {note['group']} for {note['id']}"
            leave_for(note, until_s)
        except Exception as error:  # noqa: BLE001  (the others are left for)
            is_expected = isinstance(error, ConfigurationError)
            why = said_by(error) if is_expected else one_line(error)
            say(f"cannot leave {who}: {why}")
        else:
            failed.remove(line)
            say(f"left {who}")

    worker = Worker("coopgroup-leaver", threads_max=max(1, len(waiting)))
    for line in waiting:
        worker.submit(partial(leave, line))
    if not worker.close(_LIMIT_S + _RING_TIMEOUT_S):
        say(f"no time is left; {len(failed)} of {len(waiting)} members may not have left")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer))
