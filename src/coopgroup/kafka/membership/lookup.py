"""Look up topics, partitions and lags in the cluster, for the leader and the subscription.

Rules of this file: each look-up is bounded in time and runs on the caller's thread. Heartbeats must
not depend on that thread. librdkafka asks brokers for metadata and end offsets. Committed offsets
come from the group coordinator over separate connections (`offset_lookup`). The member's own
connections are not used, because thousands of offsets would hold up its heartbeats.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any, Final

import numpy as np
from attrs import define, field
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group import Float64Array
from coopgroup.core.model.lags import Lags
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.config.connection_settings import ConnectionSettings
from coopgroup.kafka.config.shown_values import shown_configuration
from coopgroup.kafka.records.offset_lookup import read_offsets
from coopgroup.kafka.records.partitions import first_offset, is_topic_name
from coopgroup.kafka.rpc.transport import GroupTransport

# How long a look-up without an answer may delay `close`.
_CLOSE_CHECK_S: Final = 0.05
# A known topic counts as deleted after this time without an answer that contains it.
_VANISHED_AFTER_S: Final = 2.0
# Time until racks are asked for again after no controller answered: that may have been an outage.
_DESCRIBE_AGAIN_S: Final = 600.0
# Minimum time between the look-ups that measure arrivals. The rounds of one rebalance are too
# close.
_ARRIVALS_OVER_S: Final = 5.0
# Errors about a single topic: it does not exist, or its name is refused.
_ABOUT_TOPIC: Final = frozenset(
    {
        "POLICY_VIOLATION",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PART",
    }
)
# Look-ups in a row without an answer until the next one gets a new client. librdkafka's client may
# have lost all brokers, and then it never connects again (`fetching`). The number doubles with
# each new client without an answer: a client that needs long to connect must not be replaced first.
_FAILURES_MAX: Final = 2
_PATIENCE_MAX: Final = 64
# librdkafka's time and memory grow with the square of the names in one request.
_DESCRIBED_AT_ONCE: Final = 1_000


@define(eq=False)
class _Memory:
    """The last known state of each topic, and since when known topics are missing.

    A broker with outdated metadata knows fewer topics than exist. Without this memory, all members
    would lose all partitions of such a topic.
    """

    _found: dict[str, tuple[int, ...]] = field(factory=dict, init=False)
    _missing_since_s: dict[str, float] = field(factory=dict, init=False)

    @property
    def is_in_doubt(self) -> bool:
        return not self._found.keys().isdisjoint(self._missing_since_s)

    def confirmed(
        self,
        wanted: Iterable[str],
        found: Mapping[str, Sequence[int]],
        unclear: Mapping[str, BaseException],
    ) -> Mapping[str, tuple[int, ...]]:
        """Return the existing topics: the found topics, and topics missing only briefly.

        Raises:
            BaseException: the error of a topic that may exist and was never found. If such a topic
                counted as missing, its owners would lose it.
        """
        for name, error in unclear.items():
            if name not in self._found:
                raise error
        now, wanted = now_s(), set(wanted)
        for known in (self._found, self._missing_since_s):
            for name in known.keys() - wanted:
                known.pop(name)
        for name in wanted:
            if name in found:
                self._found[name] = tuple(found[name])
                self._missing_since_s.pop(name, None)
            elif name in unclear:
                self._missing_since_s[name] = now
            elif now - self._missing_since_s.setdefault(name, now) >= _VANISHED_AFTER_S:
                self._found.pop(name, None)
        return self._found

    def confirmed_names(self, found: Iterable[str]) -> tuple[str, ...]:
        """Return the names of all existing topics, ascending, confirmed as in `confirmed`."""
        names = dict.fromkeys(found, ())
        return tuple(sorted(self.confirmed({*self._found, *names}, names, {})))


@define(eq=False)
class ClusterLookup:
    """Looks up the cluster through its own clients, created at first use.

    Attributes:
        offset_reset: "latest", "earliest" or "error": decides the lag of a partition without a
            commit.
        on_open: called when a look-up has made a client.
    """

    configuration: Mapping[str, Any] = field(repr=shown_configuration)
    group_id: str
    offset_reset: str
    timeout_ms: int
    connection: ConnectionSettings
    on_open: Callable[[], None] = field(default=lambda: None, init=False)
    _used_at_s: float = field(default=0.0, init=False)
    _transport: GroupTransport | None = field(default=None, init=False)
    _admin: AdminClient | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _closed: bool = field(default=False, init=False)
    _topics: _Memory = field(factory=_Memory, init=False)  # used by `metadata`
    _names: _Memory = field(factory=_Memory, init=False)  # used by `topic_names`
    _describe_from_s: float = field(default=0.0, init=False)
    _failures: int = field(default=0, init=False)
    _patience: int = field(default=_FAILURES_MAX, init=False)
    # Time and end offsets of an earlier look-up, and the records per second since the look-up
    # before.
    _end_offsets: tuple[float, Mapping[tuple[str, int], int]] | None = field(
        default=None, init=False
    )
    _arrivals: Mapping[tuple[str, int], float] | None = field(default=None, init=False)

    def close(self) -> None:
        """Make pending and future look-ups fail immediately.

        The admin client is freed with the last look-up that uses it, even while this object is
        referenced.
        """
        self._closed = True
        with self._lock:
            self._admin = None
            transport = self._transport
        if transport is not None:
            transport.close()

    def give_back(self, unused_s: float) -> bool:
        """Free the clients and their threads unless a look-up may still use them.

        Args:
            unused_s: how long no look-up has begun, in seconds; at least twice its time-out counts.

        Returns:
            Whether there is no client any more.
        """
        unused_s = max(unused_s, 2 * self.timeout_ms / 1000)
        with self._lock:
            if now_s() - self._used_at_s < unused_s:
                return False
            self._admin = None  # it ends with the last look-up that uses it
            transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        return True

    @property
    def is_in_doubt(self) -> bool:
        """Return whether a topic seems to have vanished; only another look-up can confirm it."""
        with self._lock:
            return self._topics.is_in_doubt or self._names.is_in_doubt

    def topic_names(self) -> tuple[str, ...]:
        """Return the names of all existing and readable topics, ascending.

        A topic that has just vanished stays in the list for a short time (`is_in_doubt`).

        Raises:
            KafkaException: the cluster did not answer in time.
        """
        existing = self._existing()
        readable = [name for name, topic in existing.items() if topic.error is None]
        with self._lock:
            return self._names.confirmed_names(readable)

    def forget_names(self) -> None:
        """Forget the topics of `topic_names`: the subscription has no patterns now."""
        with self._lock:
            self._names = _Memory()

    def metadata(self, topics: Iterable[str]) -> TopicMetadata:
        """Return the partitions of the given topics with the racks of their replicas.

        Topics that do not exist, or may not be described, have no partitions. A topic that has just
        vanished keeps its partitions for a short time (`is_in_doubt`). Each member of the group
        chooses names, so no name may fail the look-up of other names. Invalid names are not looked
        up.

        Raises:
            KafkaException: the cluster did not answer in time.
            TimeoutError: the same.
        """
        wanted = sorted(topic for topic in topics if is_topic_name(topic))
        if not wanted:
            return TopicMetadata(resources=ResourceSet())
        if now_s() < self._describe_from_s:
            return self._listed(wanted)
        described: dict[str, Any] = {}
        unclear: dict[str, BaseException] = {}
        plausible = self._plausible(wanted)
        for start in range(0, len(plausible), _DESCRIBED_AT_ONCE):
            names = plausible[start : start + _DESCRIBED_AT_ONCE]
            futures = self._client().describe_topics(
                TopicCollection(names), request_timeout=self.timeout_ms / 1000
            )
            self._wait(futures.values())
            for name in names:
                error = futures[name].exception()
                if error is None:
                    described[name] = futures[name].result().partitions
                elif _is_without_controller(error):
                    self._describe_from_s = now_s() + _DESCRIBE_AGAIN_S
                    return self._listed(wanted)
                elif not _is_of_broker(error):
                    self._note_answer(is_there=False)
                    raise error
                elif not _is_about_topic(error):
                    unclear[name] = error
        self._note_answer(is_there=True)
        resources = self._confirmed(
            wanted,
            {name: [one.id for one in partitions] for name, partitions in described.items()},
            unclear,
        )
        racks = {
            name: {
                one.id: tuple(node.rack for node in one.replicas if node.rack) for one in partitions
            }
            for name, partitions in described.items()
        }
        known = any(names for by_index in racks.values() for names in by_index.values())
        return TopicMetadata(resources=resources, racks=racks if known else None)

    def _plausible(self, wanted: list[str]) -> list[str]:
        """Return the names to describe: all names, or only the existing names of a long list.

        A member may subscribe to 100,000 names that do not exist. librdkafka needs seconds for
        20,000 names in one request, while the round of the whole group waits.
        """
        if len(wanted) <= _DESCRIBED_AT_ONCE:
            return wanted
        existing = self._existing()
        return [name for name in wanted if name in existing]

    def _listed(self, wanted: Iterable[str]) -> TopicMetadata:
        """Return the partitions without racks, from an answer that any broker gives."""
        existing = self._existing()
        found = {name: existing[name] for name in wanted if name in existing}
        return TopicMetadata(
            resources=self._confirmed(
                wanted,
                {name: sorted(one.partitions) for name, one in found.items() if one.error is None},
                {},
            )
        )

    def _confirmed(
        self,
        wanted: Iterable[str],
        found: Mapping[str, Sequence[int]],
        unclear: Mapping[str, BaseException],
    ) -> ResourceSet:
        with self._lock:
            return ResourceSet(self._topics.confirmed(wanted, found, unclear))

    def lags(self, resources: ResourceSet) -> Lags:
        """Return the lag of each partition for the group, by the rules of the lag-aware proposal.

        The lag is the end offset minus the committed offset. Without a commit that the log still
        has (`first_offset`), the lag is 0 if `auto.offset.reset` is latest, else all existing
        records (end minus beginning). A partition whose offsets cannot be looked up counts as 0.
        The arrival rate is the growth of the end offsets since an earlier look-up; it is unknown at
        the first one.

        Raises:
            KafkaException: the cluster did not answer in time.
            TimeoutError: the same.
        """
        committed = self._committed(resources)
        end_offsets = self._offsets(resources, OffsetSpec.latest())
        # Partitions that were read to their end need no more; these are most of them.
        asked = ResourceSet.from_pairs(
            one for one in resources if committed.get(one, -1) != end_offsets.get(one)
        )
        begins = self._offsets(asked, OffsetSpec.earliest())
        beyond = ResourceSet.from_pairs(
            one for one in asked if committed.get(one, -1) > end_offsets.get(one, -1)
        )
        # A reader of transactions that are not over may have committed beyond the last stable one.
        whole = self._offsets(beyond, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        values = np.zeros(len(resources), dtype=np.int64)
        for place, resource in enumerate(resources):
            end = end_offsets.get(resource)
            if end is not None and resource in asked:
                known = committed.get(resource, -1)
                if not end < known <= whole.get(resource, end):
                    begin = begins.get(resource, known if known >= 0 else end)
                    values[place] = end - first_offset(known, begin, end, self.offset_reset)
        return Lags(
            resources=resources,
            values=values,
            arrivals_per_s=self._arrivals_of(resources, end_offsets),
        )

    def log_ranges(self, resources: ResourceSet) -> dict[tuple[str, int], tuple[int, int]]:
        """Return begin and end of each partition's log, as far as brokers answer.

        Raises:
            KafkaException: the cluster did not answer in time.
            TimeoutError: the same.
        """
        begins = self._offsets(resources, OffsetSpec.earliest())
        ends = self._offsets(resources, OffsetSpec.latest())
        return {one: (begins[one], ends[one]) for one in resources if one in begins and one in ends}

    def _arrivals_of(
        self, resources: ResourceSet, end_offsets: Mapping[tuple[str, int], int]
    ) -> Float64Array | None:
        """Return the records per second that arrive in each: float64 (N,); None if unknown."""
        now = now_s()
        with self._lock:
            if self._end_offsets is None:
                self._end_offsets = now, end_offsets
            elif now - self._end_offsets[0] >= _ARRIVALS_OVER_S:
                since_s, before = self._end_offsets
                self._arrivals = {
                    one: max(0, end - before[one]) / (now - since_s)
                    for one, end in end_offsets.items()
                    if one in before
                }
                self._end_offsets = now, end_offsets
            arrivals = self._arrivals
        if arrivals is None:
            return None
        return np.array([arrivals.get(one, 0.0) for one in resources], dtype=np.float64)

    def _client(self) -> AdminClient:
        with self._lock:
            if self._closed:
                raise TimeoutError("the look-up was closed")
            is_new = self._admin is None
            if self._admin is None:
                self._admin = AdminClient(dict(self.configuration))
            admin, self._used_at_s = self._admin, now_s()
        if is_new:
            self.on_open()
        if self.connection.credentials is not None:
            self.connection.credentials.give(admin)
        # Release the lock first: this runs the application's log handlers, which may close the
        # consumer.
        if "logger" in self.configuration:
            admin.poll(0)  # serves log lines, which would pile up otherwise
        return admin

    def _existing(self) -> Mapping[str, Any]:
        try:
            metadata = self._client().list_topics(timeout=self.timeout_ms / 1000)
        except KafkaException as error:
            self._note_answer(is_there=_is_of_broker(error))
            raise
        self._note_answer(is_there=True)
        return metadata.topics

    def _note_answer(self, *, is_there: bool) -> None:
        """Note whether a broker answered a look-up; drop a client that gets no answers.

        The client ends with the last look-up that uses it.
        """
        with self._lock:
            if is_there:
                self._failures, self._patience = 0, _FAILURES_MAX
                return
            self._failures += 1
            if self._failures >= self._patience:
                self._failures = 0
                self._patience = min(2 * self._patience, _PATIENCE_MAX)
                self._admin = None

    def _committed(self, resources: ResourceSet) -> dict[tuple[str, int], int]:
        found = read_offsets(
            self._connections(),
            self.group_id,
            resources,
            timeout_s=self.timeout_ms / 1000,
            request_timeout_ms=self.timeout_ms,
            is_over=lambda: self._closed,
        )
        return {key: one.offset for key, one in found.items() if not one.error_code}

    def _connections(self) -> GroupTransport:
        with self._lock:
            if self._closed:
                raise TimeoutError("the look-up was closed")
            is_new = self._transport is None
            if self._transport is None:
                self._transport = GroupTransport(self.connection, lambda _: None)
                self._transport.start()
            transport, self._used_at_s = self._transport, now_s()
        if is_new:
            self.on_open()
        return transport

    def _offsets(
        self,
        resources: ResourceSet,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:
        if not resources:
            return {}
        futures = self._client().list_offsets(
            {TopicPartition(topic, index): spec for topic, index in resources},
            isolation_level=isolation,
            request_timeout=self.timeout_ms / 1000,
        )
        self._wait(futures.values())
        return {
            (one.topic, one.partition): future.result().offset
            for one, future in futures.items()
            if future.exception() is None
        }

    def _wait(self, futures: Iterable[Future[Any]]) -> None:
        late = set(futures)
        count = len(late)
        deadline = now_s() + self.timeout_ms / 1000 + 1.0  # librdkafka's own timeout comes first
        while late and not self._closed and now_s() < deadline:
            late = wait_for(late, timeout=_CLOSE_CHECK_S).not_done
        if late:
            raise TimeoutError(f"{len(late)} of {count} look-ups without an answer")


def _is_of_broker(error: BaseException) -> bool:
    """Return whether a broker answered with this error; librdkafka's own codes are below -1."""
    return isinstance(error, KafkaException) and error.args[0].code() >= KafkaError.UNKNOWN


def _is_about_topic(error: BaseException) -> bool:
    """Return whether an error says that the topic does not exist or is not ours to read."""
    if not isinstance(error, KafkaException):
        return False
    return error.args[0].name() in _ABOUT_TOPIC


def _is_without_controller(error: BaseException) -> bool:
    """Return whether librdkafka timed out waiting for a controller; its mock broker has none."""
    if not isinstance(error, KafkaException):
        return False
    return error.args[0].name() == "_TIMED_OUT" and "controller" in error.args[0].str()
