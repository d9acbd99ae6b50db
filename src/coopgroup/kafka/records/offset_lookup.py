"""Look up committed offsets of a group at its coordinator.

librdkafka asks once and gives up at NOT_COORDINATOR (librdkafka#5586), and its AdminClient crashes
there (librdkafka#5040, #4605). So librdkafka is not used to ask a coordinator. An `OffsetLookup`
asks over the group's own transport. It follows the coordinator, and asks again until each partition
has its answer or is dropped.

Without a committed offset, a partition begins at an end of its log (`auto.offset.reset`).
`log_edges` finds the offset of that end, so that it can be committed before the first record.

Rules of this file: no call waits. `advance` sends a request. Its answer arrives on the transport's
thread and is kept for `found`; then `changed` is called. Each partition has its own question, so a
partition that a transaction blocks does not hold up other partitions. Only `read_offsets` waits, on
the caller's thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, cast

from attrs import define, field

from coopgroup.core.member import ErrorCode
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import Action, RequestKind, action_for, error_name
from coopgroup.core.model.group_api import (
    Coordinator,
    FindCoordinatorAnswer,
    FindCoordinatorRequest,
)
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import kafka_error, kafka_exception
from coopgroup.kafka.membership.group_events import CODE_OF_FAILURE
from coopgroup.kafka.records.log_edges import Edges, LogEdges, Partition
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import CommittedOffset, FetchOffsetsAnswer, FetchOffsetsRequest
from coopgroup.kafka.rpc.transport import GroupTransport

# The pace of the member's own requests (`MemberConfig.retry_backoff_ms`).
_BACKOFF_S: Final = 0.1
_BACKOFF_S_MAX: Final = 1.0
# Rights may be granted later. Until then each try only adds noise to the broker's log.
_REFUSED_BACKOFF_S: Final = 10.0
_NO_COMMIT: Final = CommittedOffset(-1)
# The coordinator may have moved: find it, then ask there. A wrong password does not end a question:
# the member itself decides whether it ends the membership.
_SEEK: Final = frozenset(
    {
        ErrorCode.NO_ANSWER,
        ErrorCode.UNAUTHENTICATED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The coordinator is right but has no answer yet.
_RETRY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class EdgeOffset(NamedTuple):
    """An end of a partition's log, in the form of a `CommittedOffset`.

    Attributes:
        is_given: whether the application asked for this end; otherwise `auto.offset.reset` did.
    """

    offset: int
    is_given: bool = False
    leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@define(eq=False)
class _Question:
    """A partition whose committed offset is wanted.

    Attributes:
        edge: the wanted end of the log; None for the committed offset.
        is_given: whether the application asked for this end.
        asked: number of the request in progress for it; None without one.
        retry_at_s: earliest time of the next request.
        holds: number of commits in progress that hold it back (`OffsetLookup.hold`).
    """

    since_s: float
    edge: int | None = None
    is_given: bool = False
    asked: int | None = None
    retry_at_s: float = 0.0
    attempts: int = 0
    holds: int = 0
    is_reported: bool = False


@define(eq=False)
class OffsetLookup:
    """Asks for committed offsets until it has them; all methods may be called from any thread.

    Attributes:
        timeout_ms: time limit of one request. A timeout closes the connection, so this is not the
            time that a caller is willing to wait.
        changed: called if there is a new answer or if `advance` has another time; without a
            lock, on the transport's thread.
        persists: whether to ask again after the coordinator refused a partition.
        edges: finds the ends of logs; None if they are not wanted.
        reset_of: returns the end of the log where a partition without a commit begins; None to
            report that it has no commit.
    """

    transport: GroupTransport
    group_id: str
    require_stable: bool
    timeout_ms: int
    changed: Callable[[], None]
    known_coordinator: Callable[[], Coordinator | None] = lambda: None
    persists: bool = False
    edges: LogEdges | None = None
    reset_of: Callable[[Partition], int | None] = lambda _: None
    reason: str = field(default="no answer yet", init=False)
    refusal: int = field(default=0, init=False)
    _questions: dict[Partition, _Question] = field(factory=dict, init=False)
    _found: dict[Partition, CommittedOffset | EdgeOffset] = field(factory=dict, init=False)
    _coordinator: Coordinator | None = field(default=None, init=False)
    _told: Coordinator | None = field(default=None, init=False)  # last value of `known_coordinator`
    _requests: int = field(default=0, init=False)
    # number of the FindCoordinator request in progress
    _finding: int | None = field(default=None, init=False)
    _find_at_s: float = field(default=0.0, init=False)
    _find_attempts: int = field(default=0, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    @property
    def is_idle(self) -> bool:
        """Return whether no offset is wanted and none waits to be taken."""
        return not self._questions and not self._found

    # --- what is wanted --------------------------------------------------------------------------

    def ask(self, partitions: Iterable[Partition]) -> None:
        """Ask for offsets from now on; earlier questions and answers no longer count."""
        with self._lock:
            for one in partitions:
                self._ask(one)
        self.advance()

    def want(self, partitions: Iterable[Partition]) -> None:
        """Ask for the offsets that are neither asked for nor found."""
        self.ask([one for one in partitions if not self._knows(one)])

    def want_edges(self, edges: Edges) -> None:
        """Ask for ends of logs that are neither asked for nor found, whatever is committed."""
        with self._lock:
            for one, edge in edges.items():
                if not self._knows(one):
                    question = self._ask(one)
                    question.edge, question.is_given = edge, True
        self.advance()

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Stop asking for these offsets, and forget the found ones."""
        with self._lock:
            for one in partitions:
                self._questions.pop(one, None)
                self._found.pop(one, None)

    def drop_all(self) -> None:
        """Stop asking, and forget all found offsets."""
        self.drop([*self._questions, *self._found])

    def hold(self, partitions: Iterable[Partition]) -> tuple[Partition, ...]:
        """Hold questions back during a commit, because an answer might be outdated; return them."""
        with self._lock:
            held = tuple(one for one in partitions if self._knows(one) and not self._is_given(one))
            for one in held:
                before = self._questions.get(one)
                self._ask(one).holds = 1 + (0 if before is None else before.holds)
        return held

    def release(self, partitions: Iterable[Partition]) -> None:
        """Ask for partitions again after their commit has ended."""
        with self._lock:
            for one in partitions:
                question = self._questions.get(one)
                if question is not None:
                    question.holds = max(0, question.holds - 1)
        self.advance()

    def found(
        self, partitions: Iterable[Partition]
    ) -> dict[Partition, CommittedOffset | EdgeOffset]:
        """Return the found offsets of these partitions, which stay until `forget`."""
        with self._lock:
            return {one: self._found[one] for one in partitions if one in self._found}

    def forget(self, found: Mapping[Partition, CommittedOffset | EdgeOffset]) -> None:
        """Forget found offsets; later answers for the same partitions stay."""
        with self._lock:
            for key, one in found.items():
                if self._found.get(key) is one:
                    del self._found[key]

    def overdue(self, limit_s: float) -> list[Partition]:
        """Return the partitions without an answer for `limit_s`, each only once."""
        now = now_s()
        with self._lock:
            late = [
                one
                for one, question in self._questions.items()
                if not question.is_reported and now - question.since_s >= limit_s
            ]
            for one in late:
                self._questions[one].is_reported = True
        return late

    def next_overdue_at_s(self, limit_s: float) -> float:
        """Return the time at which `overdue` has a partition to name; infinite if never."""
        with self._lock:
            fresh = (one.since_s for one in self._questions.values() if not one.is_reported)
            return min(fresh, default=math.inf) + limit_s

    def _knows(self, one: Partition) -> bool:
        return one in self._questions or one in self._found

    def _is_given(self, one: Partition) -> bool:
        question, found = self._questions.get(one), self._found.get(one)
        return (question is not None and question.is_given) or (
            isinstance(found, EdgeOffset) and found.is_given
        )

    def _ask(self, one: Partition) -> _Question:
        self._found.pop(one, None)
        question = self._questions[one] = _Question(now_s())
        return question

    # --- requests --------------------------------------------------------------------------------

    def advance(self) -> float:
        """Send the due requests; return the time of the next call, infinite without one."""
        if not self._questions:
            return math.inf
        try:
            with self._lock:
                self._follow_member()
                request = self._next_request(now_s())
                number, edges = self._next_edges()
            if request is not None:
                self._send(*request)
            if edges and self.edges is not None:
                self.edges.find(
                    edges,
                    partial(self._is_asked, number),
                    partial(self._hear_edges, number),
                    self._hear_no_edge,
                )
        except BaseException:
            self._ask_again()
            raise
        with self._lock:
            return self._due_at_s()

    def _ask_again(self) -> None:
        """Forget the requests in progress after a signal's exception.

        A question that counts as asked, but was never sent, would never get its answer. Answers to
        the earlier requests no longer count.
        """
        with self._lock:
            self._finding = None
            for question in self._questions.values():
                question.asked = None
        self.changed()

    def _follow_member(self) -> None:
        """Change to the member's coordinator if the member has found another one.

        Questions that wait at a frozen broker are asked again there. A value that the member has
        reported before is ignored: this look-up may have found the new coordinator before the
        member did.
        """
        told = self.known_coordinator()
        if told is None or told == self._told:
            return
        self._told = told
        if told != self._coordinator:
            self._coordinator, self._finding = told, None
            for question in self._questions.values():
                if question.edge is None:
                    question.asked, question.retry_at_s = None, 0.0

    def _next_edges(self) -> tuple[int, Edges]:
        """Return the ends of logs to ask for, and the number of that request."""
        due = {
            key: one.edge
            for key, one in sorted(self._questions.items())
            if one.edge is not None and one.asked is None and not one.holds
        }
        if due:
            self._requests += 1
            for key in due:
                self._questions[key].asked = self._requests
        return self._requests, due

    def _is_asked(self, number: int, key: Partition) -> bool:
        question = self._questions.get(key)
        return question is not None and question.asked == number

    def _next_request(
        self, now: float
    ) -> tuple[int, FindCoordinatorRequest | FetchOffsetsRequest, Coordinator | None] | None:
        due = sorted(
            key
            for key, one in self._questions.items()
            if one.edge is None and one.asked is None and not one.holds and one.retry_at_s <= now
        )
        if not due:
            return None
        if self._coordinator is None:
            if self._finding is not None or now < self._find_at_s:
                return None
            self._requests += 1
            self._finding = self._requests
            return self._requests, FindCoordinatorRequest(group_id=self.group_id), None
        self._requests += 1
        for key in due:
            self._questions[key].asked = self._requests
        request = FetchOffsetsRequest(
            group_id=self.group_id, partitions=tuple(due), require_stable=self.require_stable
        )
        return self._requests, request, self._coordinator

    def _due_at_s(self) -> float:
        ready = (
            one.retry_at_s
            for one in self._questions.values()
            if one.edge is None and one.asked is None and not one.holds
        )
        at_s = min(ready, default=math.inf)
        if self._coordinator is not None:
            return at_s
        return math.inf if self._finding is not None else max(at_s, self._find_at_s)

    def _send(
        self,
        number: int,
        request: FindCoordinatorRequest | FetchOffsetsRequest,
        node: Coordinator | None,
    ) -> None:
        hear = self._hear_coordinator if node is None else self._hear_offsets
        self.transport.send(
            Lane.COMMIT, request, partial(hear, number), node=node, timeout_ms=self.timeout_ms
        )

    # --- answers, on the transport's thread ------------------------------------------------------

    def _hear_coordinator(
        self, number: int, answer: FindCoordinatorAnswer | TransportFailure
    ) -> None:
        with self._lock:
            if self._finding != number:
                return
            self._finding = None
            if isinstance(answer, FindCoordinatorAnswer) and answer.coordinator is not None:
                self._coordinator, self._find_attempts = answer.coordinator, 0
            else:
                self._hear_no_coordinator(answer)
        self.advance()
        self.changed()

    def _hear_no_coordinator(self, answer: FindCoordinatorAnswer | TransportFailure) -> None:
        code = self._hear_failure(answer)
        seeks = code in _SEEK
        if not seeks and action_for(RequestKind.FIND_COORDINATOR, code) is Action.FAIL:
            self._refuse_all(code, self._questions)
            return
        self._find_at_s = now_s() + _backoff_s(self._find_attempts + 1)
        self._find_attempts += 1

    def _hear_offsets(self, number: int, answer: FetchOffsetsAnswer | TransportFailure) -> None:
        with self._lock:
            asked = [key for key, one in self._questions.items() if one.asked == number]
            if not asked:
                return
            for key in asked:
                self._questions[key].asked = None
            if isinstance(answer, FetchOffsetsAnswer) and not answer.error_code:
                for key in asked:
                    self._hear_offset(key, answer.offsets.get(key, _NO_COMMIT))
            else:
                self._hear_no_offsets(self._hear_failure(answer), asked)
        self.advance()
        self.changed()

    def _hear_edges(self, number: int, found: Mapping[Partition, int]) -> None:
        with self._lock:
            for key, offset in found.items():
                if self._is_asked(number, key):
                    is_given = self._questions.pop(key).is_given
                    self._found[key] = EdgeOffset(offset, is_given)
        self.changed()

    def _hear_no_edge(self, reason: str) -> None:
        self.reason = reason

    def _hear_no_offsets(self, code: int, asked: list[Partition]) -> None:
        if code == ErrorCode.GROUP_ID_NOT_FOUND:  # a group without members and commits
            for key in asked:
                self._hear_offset(key, _NO_COMMIT)
        elif code in _SEEK:
            self._coordinator = None
            self._put_off(asked, at_once=True)
        elif code in _RETRY:
            self._put_off(asked)
        else:
            self._refuse_all(code, asked)

    def _hear_offset(self, key: Partition, found: CommittedOffset) -> None:
        code = found.error_code
        if not code:
            edge = self.reset_of(key) if found.offset < 0 else None
            if edge is not None:
                self._questions[key].edge = edge
                return
            del self._questions[key]
            self._found[key] = found
            return
        self.reason = error_name(code)
        if code in _RETRY or code in _SEEK:
            if code in _SEEK:
                self._coordinator = None
            self._put_off([key])
        else:
            self._refuse(key, code)

    def _hear_failure(
        self, answer: FindCoordinatorAnswer | FetchOffsetsAnswer | TransportFailure
    ) -> int:
        if isinstance(answer, TransportFailure):
            self.reason = answer.message
            return CODE_OF_FAILURE[answer.kind]
        self.reason = error_name(answer.error_code)
        return answer.error_code

    def _put_off(self, keys: Iterable[Partition], *, at_once: bool = False) -> None:
        """Ask again later; the first time immediately if the coordinator must be found first."""
        now = now_s()
        for key in keys:
            question = self._questions[key]
            question.retry_at_s = now + _backoff_s(question.attempts + (0 if at_once else 1))
            question.attempts += 1

    def _refuse_all(self, code: int, keys: Iterable[Partition]) -> None:
        self.refusal = code
        for key in tuple(keys):
            self._refuse(key, code)

    def _refuse(self, key: Partition, code: int) -> None:
        self._found[key] = CommittedOffset(-1, error_code=code)
        if self.persists:
            self._questions[key].retry_at_s = now_s() + _REFUSED_BACKOFF_S
        else:
            del self._questions[key]


def _backoff_s(attempts: int) -> float:
    return 0.0 if attempts == 0 else min(_BACKOFF_S * 2.0 ** min(attempts - 1, 10), _BACKOFF_S_MAX)


def read_offsets(
    transport: GroupTransport,
    group_id: str,
    partitions: Iterable[Partition],
    *,
    timeout_s: float,
    request_timeout_ms: int,
    require_stable: bool = False,
    coordinator: Coordinator | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Mapping[Partition, CommittedOffset]:
    """Read committed offsets, and wait for them on the caller's thread.

    Raises:
        KafkaException: the coordinator refuses to answer for the group.
        TimeoutError: no answer in time, or the caller has lost interest.
    """
    wanted = set(partitions)
    heard = threading.Event()
    lookup = OffsetLookup(
        transport,
        group_id,
        require_stable,
        request_timeout_ms,
        heard.set,
        lambda: coordinator,
    )
    deadline_s = now_s() + timeout_s
    try:
        lookup.ask(wanted)
        while True:
            due_at_s = lookup.advance()
            found = lookup.found(wanted)
            if lookup.refusal:
                failed = kafka_error(lookup.refusal)
                raise kafka_exception(
                    failed.code(), f"Failed to get committed offsets: {failed.str()}"
                )
            if len(found) == len(wanted):
                return cast("Mapping[Partition, CommittedOffset]", found)  # there is no `reset_of`
            now = now_s()
            if now >= deadline_s or is_over():
                raise TimeoutError(f"no committed offsets of group {group_id}: {lookup.reason}")
            heard.wait(max(0.0, min(due_at_s, deadline_s, now + _LOOK_S) - now))
            heard.clear()
    finally:
        lookup.drop_all()  # otherwise a later answer would send the next request


# Maximum delay of a caller that has lost interest.
_LOOK_S: Final = 0.05
