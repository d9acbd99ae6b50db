"""Notices topics and partitions that appear or vanish.

A member with patterns evaluates them again. The member that led the last round compares the
existing partitions with those it assigned. Both request a round only after a change.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from attrs import Factory, define, field

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.membership.telemetry_sink import TelemetrySink
from coopgroup.member.events import RejoinRequested, SubscriptionChanged

__all__ = ["TopicWatcher", "TopicWish"]

# A missing subscribed topic is looked up more often than the refresh interval.
_MISSING_TOPIC_MS: Final = 5_000
_RETRY_MS: Final = 1_000
_STOP_TIMEOUT_S: Final = 2.0
# Rounds follow each other, and the leader of the next one may be this member again.
_GIVE_BACK_S: Final = 5.0
# Characters of topic names, and the remaining printable ASCII characters.
_POSIX_CLASSES: Final = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_POSIX_CLASS: Final = re.compile(rf"\[:({'|'.join(_POSIX_CLASSES)}):\]")
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# A set begins with its bracket; a `]` directly after the bracket belongs to the set.
_ESCAPED_OR_SET: Final = re.compile(r"\\.|\[\^?\]?", re.DOTALL)


@define(eq=False)
class TopicWish:
    """The topics of a subscription: names, and patterns that begin with ^.

    Raises:
        ConfigurationError: a pattern is not a regular expression.
    """

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]

    @classmethod
    def read(cls, topics: Iterable[str]) -> TopicWish:
        """Read names and patterns as librdkafka's subscribe takes them."""
        wanted = list(topics)
        patterns = []
        for topic in sorted({one for one in wanted if one.startswith("^")}):
            try:
                patterns.append(re.compile(_python_pattern(topic)))
            except re.error as cause:
                raise ConfigurationError(
                    "topics", topic, f"a regular expression ({cause})"
                ) from None
        names = frozenset(one for one in wanted if not one.startswith("^"))
        return cls(names=names, patterns=tuple(patterns))

    def matching(self, existing: Iterable[str]) -> tuple[str, ...]:
        """Return the subscribed names, ascending: given names and matches of patterns."""
        found = {one for one in existing for pattern in self.patterns if pattern.search(one)}
        return tuple(sorted(self.names | found))


def _python_pattern(pattern: str) -> str:
    """Replace POSIX character classes, which librdkafka's patterns have, by Python's ranges.

    Python would read `[[:digit:]]` as the characters of `[:digt` before a `]`, and match nothing.
    """
    written: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        found = _POSIX_CLASS.match(pattern, at) if inside else None
        if found is not None:
            written.append(_POSIX_CLASSES[found.group(1)])
            at = found.end()
            continue
        one = _ESCAPED_OR_SET.match(pattern, at) if not inside else _ESCAPED.match(pattern, at)
        part = pattern[at] if one is None else one.group()
        inside = part != "]" if inside else part.startswith("[")
        written.append(part)
        at += len(part)
    return "".join(written)


@define(eq=False)
class TopicWatcher:
    """Watches topics on a separate thread.

    Attributes:
        refresh_ms: interval; -1 to look only once.
        look_for_missing: reports those of the names that do not exist, at the same interval.
    """

    lookup: ClusterLookup
    leader: RoundLeader
    leads: Callable[[], bool]
    post: Callable[[SubscriptionChanged | RejoinRequested], None]
    sink: TelemetrySink
    refresh_ms: int
    look_for_missing: Callable[[frozenset[str]], None] = lambda _: None
    _wish: TopicWish | None = field(default=None, init=False)
    _topics: tuple[str, ...] | None = field(default=None, init=False)
    # Entered instead of the condition, whose `__enter__` is Python code: a signal's exception could
    # end it with the lock held.
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _changed: threading.Condition = field(
        default=Factory(lambda self: threading.Condition(self._lock), takes_self=True), init=False
    )
    _stopped: bool = field(default=False, init=False)
    _last_duty: Callable[[], None] | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _giving_back: threading.Timer | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._run, name="coopgroup-topic-watcher", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; wait for a look-up in progress, within bounds."""
        with self._lock:
            self._stopped = True
            self._changed.notify_all()
            if self._giving_back is not None:
                self._giving_back.cancel()
        self.lookup.close()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def finish(self, duty: Callable[[], None]) -> None:
        """End the thread without waiting for it; its last action is the caller's duty."""
        with self._lock:
            self._last_duty = duty
            self._stopped = True
            self._changed.notify_all()

    def watch(self, wish: TopicWish | None) -> None:
        """Watch other topics from now on; None to watch none."""
        with self._lock:
            self._wish = wish
            self._topics = None
            if wish is not None and not wish.patterns:
                self._topics = wish.matching(())
                self.post(SubscriptionChanged(topics=self._topics))
            self._changed.notify_all()

    def give_back_soon(self) -> None:
        """Free the clients of the look-ups a little later, unless the member leads again by then.

        A follower needs none. The leader's client of librdkafka has four threads and connections.
        """
        with self._lock, suppress(RuntimeError):  # no thread is available
            if self._stopped or (self._giving_back is not None and self._giving_back.is_alive()):
                return
            self._giving_back = threading.Timer(_GIVE_BACK_S, self._give_back)
            self._giving_back.daemon = True
            self._giving_back.name = "coopgroup-give-back"
            self._giving_back.start()

    def _give_back(self) -> None:
        if not self.leads():
            self.lookup.give_back()

    def _run(self) -> None:
        self._watch()
        if self._last_duty is not None:
            self._last_duty()

    def _watch(self) -> None:
        pause_ms = 0
        wish: TopicWish | None = None
        while True:
            with self._lock:
                # The subscription changed during the last look-up, which missed the notification.
                if self._wish is not wish:
                    pause_ms = 0
                # Look up patterns immediately, and names at their time.
                urgent = self._wish is not None and self._topics is None
                if not self._stopped and not (urgent and pause_ms == 0):
                    self._changed.wait(None if pause_ms < 0 else max(pause_ms, 1) / 1000)
                if self._stopped:
                    return
                wish = self._wish
            pause_ms = self._look(wish)

    def _look(self, wish: TopicWish | None) -> int:
        self.look_for_missing(frozenset() if wish is None else wish.names)
        if wish is None:
            return -1
        try:
            if wish.patterns:
                self._evaluate(wish)
                self.give_back_soon()
            else:
                self.lookup.forget_names()
            pause_ms = self._compare() if self.leads() else self.refresh_ms
            in_doubt = self.lookup.is_in_doubt
        except Exception as error:  # noqa: BLE001 -- a dead watcher would notice nothing any more
            self.sink.warn("topics_unavailable", error=str(error))
            return _RETRY_MS
        return _RETRY_MS if in_doubt else pause_ms

    def _evaluate(self, wish: TopicWish) -> None:
        topics = wish.matching(self.lookup.topic_names())
        with self._lock:
            if self._wish is wish and topics != self._topics:
                self._topics = topics
                self.post(SubscriptionChanged(topics=topics))

    def _compare(self) -> int:
        seen = self.leader.seen
        found = self.lookup.metadata(seen.topics).resources
        if found != seen.partitions:
            if not self.leader.replace_seen(seen, found):
                return _RETRY_MS  # a round was led meanwhile, perhaps with these partitions
            self.post(RejoinRequested(reason="partitions changed"))
        if self.refresh_ms >= 0 and not set(seen.topics) <= set(found.names):
            return min(self.refresh_ms, _MISSING_TOPIC_MS)
        return self.refresh_ms
