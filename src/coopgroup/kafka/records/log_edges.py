"""Look up where the logs of partitions begin and end, at the leaders of these partitions.

librdkafka can resolve `auto.offset.reset` itself, but it reports the offset only with the first
record. So the offset could not be committed earlier. If an idle partition moved, its next owner
would skip the records that arrived during the move. Therefore coopgroup resolves the offset, and
librdkafka gets a number.

Rules of this file: no call waits. Everything after `find` is done on the transport's thread. A
partition is asked for until it has its answer or is given up. Its leader may have moved, or the
broker that was asked may not know the topic yet. No partition waits for another partition's leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from attrs import define, field

from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import error_name
from coopgroup.core.model.group_api import Coordinator
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import FindLogOffsets, FindTopics, FoundTopic, LogOffset
from coopgroup.kafka.rpc.transport import GroupTransport

Partition: TypeAlias = tuple[str, int]
Edges: TypeAlias = Mapping[Partition, int]
"""-1 (OFFSET_END) or -2 (OFFSET_BEGINNING) by partition, as in librdkafka and in ListOffsets."""

_BACKOFF_S: Final = 0.1
_BACKOFF_S_MAX: Final = 1.0
_NAMES_MAX: Final = 1_000  # names of one request, which heartbeats may wait for


@define(eq=False)
class LogEdges:
    """Finds begins and ends of logs for one consumer; any thread may ask.

    Attributes:
        timeout_ms: time limit of one request.
        reads_committed: whether a log ends before its first open transaction.
    """

    transport: GroupTransport
    timeout_ms: int
    reads_committed: bool

    def find(
        self,
        wanted: Edges,
        is_wanted: Callable[[Partition], bool],
        on_found: Callable[[Mapping[Partition, int]], object],
        on_failure: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Look up edges and return immediately.

        Args:
            wanted: the edge of each partition.
            is_wanted: whether a partition is still to be asked for.
            on_found: called with the offsets of some partitions, each once.
            on_failure: called with the reason before each repetition.
        """
        names = sorted({topic for topic, _ in wanted})
        for start in range(0, len(names), _NAMES_MAX):
            part = frozenset(names[start : start + _NAMES_MAX])
            _Search(
                self,
                {key: edge for key, edge in wanted.items() if key[0] in part},
                is_wanted,
                on_found,
                on_failure,
            ).ask()


@define(eq=False)
class _Search:
    """Partitions that are asked for together."""

    edges: LogEdges
    wanted: Edges
    is_wanted: Callable[[Partition], bool]
    on_found: Callable[[Mapping[Partition, int]], object]
    on_failure: Callable[[str], None]
    attempts: int = field(default=0)

    def ask(self) -> None:
        self.wanted = {key: edge for key, edge in self.wanted.items() if self.is_wanted(key)}
        if self.wanted:
            names = tuple(sorted({topic for topic, _ in self.wanted}))
            self._send(FindTopics(names=names), None, self._hear_topics)

    def _hear_topics(self, answer: Mapping[str, FoundTopic] | TransportFailure) -> None:
        if isinstance(answer, TransportFailure):
            self._ask_again(self.wanted, answer.message)
            return
        by_leader: dict[Coordinator, dict[Partition, int]] = defaultdict(dict)
        homeless: dict[Partition, int] = {}
        for key, edge in self.wanted.items():
            found = answer.get(key[0])
            leader = None if found is None else found.leaders.get(key[1])
            (homeless if leader is None else by_leader[leader])[key] = edge
        for leader, part in by_leader.items():
            request = FindLogOffsets(timestamps=part, reads_committed=self.edges.reads_committed)
            self._send(request, leader, partial(self._hear_offsets, part))
        if homeless:
            codes = {found.error_code for found in answer.values() if found.error_code}
            self._ask_again(homeless, error_name(min(codes)) if codes else "no leader")

    def _hear_offsets(
        self, asked: Edges, answer: Mapping[Partition, LogOffset] | TransportFailure
    ) -> None:
        if isinstance(answer, TransportFailure):
            self._ask_again(asked, answer.message)
            return
        found = {
            key: answer[key].offset
            for key in asked
            if key in answer and not answer[key].error_code and answer[key].offset >= 0
        }
        if found:
            self.on_found(found)
        left = {key: edge for key, edge in asked.items() if key not in found}
        if left:
            codes = {answer[key].error_code for key in left if key in answer}
            self._ask_again(left, error_name(min(codes)) if codes else "no answer")

    def _ask_again(self, wanted: Edges, reason: str) -> None:
        self.on_failure(reason)
        again = _Search(
            self.edges, wanted, self.is_wanted, self.on_found, self.on_failure, self.attempts + 1
        )
        pause_s = min(_BACKOFF_S * 2.0 ** min(self.attempts, 10), _BACKOFF_S_MAX)
        self.edges.transport.later(pause_s, again.ask)

    def _send(
        self,
        request: FindTopics | FindLogOffsets,
        node: Coordinator | None,
        on_answer: Callable[..., None],
    ) -> None:
        self.edges.transport.send(
            Lane.COMMIT, request, on_answer, node=node, timeout_ms=self.edges.timeout_ms
        )
