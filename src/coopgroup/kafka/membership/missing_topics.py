"""Report subscribed topics that do not exist, or may not be read: otherwise a typo means silence.

Each member asks for its own names, with one small request of its own connections. librdkafka's
consumers do so too, and each tells its application. A broker may not know a new topic yet, so a
topic counts as missing only after a second answer, a little later.

The same answers tell which partitions a topic has at the first look (`first_look`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from attrs import define, field
from confluent_kafka import KafkaError, Message

from coopgroup.core.member.effects import Lane
from coopgroup.kafka.callbacks.application_inbox import ApplicationInbox
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.membership.first_look import FirstLook
from coopgroup.kafka.records.fetching import Fetching
from coopgroup.kafka.rpc.outcomes import TransportFailure
from coopgroup.kafka.rpc.questions import FindTopics, FoundTopic
from coopgroup.kafka.rpc.transport import GroupTransport

# Error codes of a topic that this member gets no records from.
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
_NAMES_MAX: Final = 1_000  # names of one request, which heartbeats may wait for
_CONFIRM_S: Final = 1.0
_RETRY_S: Final = 5.0


@define(eq=False)
class MissingTopics:
    """The missing topics of one member; after `look`, all work is done on the transport's thread.

    Attributes:
        warn: logs a warning: name of the event, and its fields.
    """

    transport: GroupTransport
    inbox: ApplicationInbox
    fetching: Fetching
    warn: Callable[..., None]
    timeout_ms: int
    first_look: FirstLook
    _names: frozenset[str] = field(default=frozenset(), init=False)
    _suspected_since_s: dict[str, float] = field(factory=dict, init=False)
    _told: frozenset[str] = field(default=frozenset(), init=False)
    # Number of the latest delay: an earlier one must not ask, too, or each look of an outage would
    # begin another series of questions.
    _delay: int = field(default=0, init=False)

    def look(self, names: frozenset[str]) -> None:
        """Look for the topics of the subscription, and report those that are newly missing."""
        self.transport.later(0.0, partial(self._begin, names))

    def sight(self, topics: Iterable[str]) -> None:
        """Note the partitions of further topics, which are known to exist."""
        self.transport.later(0.0, partial(self._sight, tuple(topics)))

    def _sight(self, topics: Iterable[str]) -> None:
        unseen = self.first_look.unseen(topics)
        for start in range(0, len(unseen), _NAMES_MAX):
            self._send(tuple(unseen[start : start + _NAMES_MAX]), self._note)

    def _note(self, answer: Mapping[str, FoundTopic] | TransportFailure) -> None:
        if not isinstance(answer, TransportFailure):
            for name, found in answer.items():
                if not found.error_code:
                    self.first_look.note(name, found.partition_count)

    def _begin(self, names: frozenset[str]) -> None:
        self._names = names
        self._told &= names
        self._ask()

    def _ask(self) -> None:
        if not self._names:
            return
        self._send(tuple(sorted(self._names)[:_NAMES_MAX]), self._hear)

    def _send(self, names: tuple[str, ...], hear: Callable[..., None]) -> None:
        request = FindTopics(names=names)
        self.transport.send(Lane.COMMIT, request, hear, node=None, timeout_ms=self.timeout_ms)

    def _hear(self, answer: Mapping[str, FoundTopic] | TransportFailure) -> None:
        if isinstance(answer, TransportFailure):
            self._ask_after(_RETRY_S)
            return
        self._note(answer)
        codes = {name: one.error_code for name, one in answer.items() if one.error_code in _MISSING}
        missing, now = self._names & codes.keys(), now_s()
        since_s = {name: self._suspected_since_s.get(name, now) for name in missing - self._told}
        confirmed = {name for name, since in since_s.items() if now - since >= _CONFIRM_S}
        self._told = (self._told & missing) | confirmed
        self._suspected_since_s = {
            name: since for name, since in since_s.items() if name not in confirmed
        }
        if self._suspected_since_s:
            self._ask_after(_CONFIRM_S)
        for name in confirmed:
            if codes[name] == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self.first_look.note_missing(name)
        for code in sorted({codes[name] for name in confirmed}):
            self._tell(code, sorted(name for name in confirmed if codes[name] == code))

    def _ask_after(self, delay_s: float) -> None:
        """Ask again after a delay, which replaces an earlier delay."""
        self._delay = delay = self._delay + 1
        self.transport.later(delay_s, lambda: self._ask() if delay == self._delay else None)

    def _tell(self, code: int, topics: list[str]) -> None:
        error = KafkaError(code)
        self.warn("topics_missing", topics=topics, error=error.name())
        events = [_event(code, topic, f"{topic}: {error.str()}") for topic in topics]
        self.inbox.call_soon(partial(self._hand_out, events))

    def _hand_out(self, events: Iterable[Message]) -> None:
        """Let `poll` return the events; on the application's thread."""
        if not self.fetching.record_buffer.is_shared:  # awaits of asyncio return only records
            self.fetching.record_buffer.add(events)


def _event(code: int, topic: str, reason: str) -> Message:
    """Return confluent_kafka's event for a missing topic, with its text."""
    words = f"Subscribed topic not available: {reason}"
    fields: dict[str, Any] = {"topic": topic, "partition": 0, "timestamp": (0, -1)}
    return Message(value=words.encode(), error=KafkaError(code, words), **fields)
