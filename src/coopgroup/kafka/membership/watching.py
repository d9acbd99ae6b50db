"""Notices topics and partitions that appear or vanish.

A member with patterns evaluates them again. The member that led the last round compares the
existing partitions with those it assigned. Both request a round only after a change.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from attrs import define, field

from coopgroup.core.member.events import RejoinRequested, SubscriptionChanged
from coopgroup.core.telemetry.causes import Cause
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.membership.first_look import FirstLook
from coopgroup.kafka.membership.leading import RoundLeader
from coopgroup.kafka.membership.lookup import ClusterLookup
from coopgroup.kafka.trouble import Trouble
from coopgroup.worker import Worker

# A missing subscribed topic is looked up more often than the refresh interval.
_MISSING_TOPIC_MS: Final = 5_000
_RETRY_MS: Final = 1_000
# Only patterns need a look before the member joins. A look at names would delay its first record.
_FIRST_LOOK_S: Final = 0.5
_STOP_TIMEOUT_S: Final = 2.0
# After this time without a look-up its clients are freed. Rounds of a rebalance follow each other
# sooner, and a new client takes 20 ms longer for its first answer.
_GIVE_BACK_S: Final = 15.0
# For example `__consumer_offsets`: an application rarely wants them with all others.
_INTERNAL: Final = "__"
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
_SHOWN_MAX: Final = 100  # characters of a name or pattern shown in an error
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
            except (re.error, OverflowError, RecursionError) as cause:
                expected = f"a regular expression ({shortened(str(cause))})"
                raise ConfigurationError("topics", shortened(topic), expected) from None
        names = frozenset(one for one in wanted if not one.startswith("^"))
        return cls(names=names, patterns=tuple(patterns))

    def matching(self, existing: Iterable[str], hidden: Collection[str] = ()) -> tuple[str, ...]:
        """Return the subscribed names, ascending: given names and matches of patterns.

        Args:
            existing: names of topics.
            hidden: names that no pattern matches, beside Kafka's internal topics.
        """
        seen = [one for one in existing if not one.startswith(_INTERNAL) and one not in hidden]
        found = {one for one in seen for pattern in self.patterns if pattern.search(one)}
        return tuple(sorted(self.names | found))


def shortened(text: str) -> str:
    """Return a name, a pattern or a reason as an error shows it."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


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
    """Watches topics, and frees the clients of look-ups that nobody needs.

    A look-up may wait for brokers, so it is a job of a worker.

    Attributes:
        later: calls a function after a pause, in seconds, unless the member has ended.
        refresh_ms: interval; -1 to look only once.
        hidden: topics that no pattern matches.
        look_for_missing: reports those of the names that do not exist, at the same interval.
        sight: notes the partitions of the topics that patterns match.
        first_look: what this member saw first of each topic.
    """

    lookup: ClusterLookup
    leader: RoundLeader
    leads: Callable[[], bool]
    post: Callable[[SubscriptionChanged | RejoinRequested], None]
    later: Callable[[float, Callable[[], None]], object]
    refresh_ms: int
    hidden: Collection[str] = ()
    look_for_missing: Callable[[frozenset[str]], None] = lambda _: None
    sight: Callable[[Iterable[str]], None] = lambda _: None
    first_look: FirstLook = field(factory=FirstLook)
    _wish: TopicWish | None = field(default=None, init=False)
    _topics: tuple[str, ...] | None = field(default=None, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _stopped: bool = field(default=False, init=False)
    _worker: Worker = field(factory=lambda: Worker("coopgroup-watcher"), init=False)
    _number: int = field(default=0, init=False)  # of the latest planned look; no other one counts
    _trouble: Trouble = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = Trouble(self.leader.warn, "topics_unavailable", "topics_available")

    def stop(self) -> None:
        """End the watch; wait for a look-up in progress, within bounds."""
        self._stopped = True
        self.lookup.close()
        self._worker.close(_STOP_TIMEOUT_S)

    def finish(self, duty: Callable[[], None]) -> None:
        """End the watch without waiting; a thread of this watcher then does the caller's duty."""
        self._stopped = True
        self.later(0.0, partial(self._begin, duty))

    def watch(self, wish: TopicWish | None) -> None:
        """Watch other topics from now on; None to watch none."""
        with self._lock:
            self._wish = wish
            self._topics = None
            self.first_look.forget()
            if wish is not None and not wish.patterns:
                self._topics = wish.matching(())
                self.post(SubscriptionChanged(topics=self._topics))
            self._look_after(0.0 if self._topics is None else _FIRST_LOOK_S)

    def give_back_soon(self) -> None:
        """Free the clients of the look-ups when they are idle; the next look-up makes new ones.

        The client of librdkafka has four threads, and connections.
        """
        self.later(_GIVE_BACK_S, partial(self._begin, self._give_back))

    def _give_back(self) -> None:
        if not self._stopped and not self.lookup.give_back(_GIVE_BACK_S):
            self.give_back_soon()

    def _begin(self, work: Callable[[], None]) -> None:
        """Let the worker do something after all that it has to do already; this never waits."""
        try:
            self._worker.submit(work)
        except RuntimeError:  # no thread is available
            self.later(_RETRY_MS / 1000, partial(self._begin, work))

    def _look_after(self, pause_s: float) -> None:
        self._number += 1
        look = partial(self._look_and_plan, self._number, self._wish)
        self.later(pause_s, partial(self._begin, look))

    def _look_and_plan(self, number: int, wish: TopicWish | None) -> None:
        if self._stopped or number != self._number:
            return
        pause_ms = self._look(wish)
        with self._lock:
            if number == self._number and pause_ms >= 0:
                self._look_after(pause_ms / 1000)

    def _look(self, wish: TopicWish | None) -> int:
        self.look_for_missing(frozenset() if wish is None else wish.names)
        if wish is None:
            return -1
        try:
            if wish.patterns:
                self._evaluate(wish)
            else:
                self.lookup.forget_names()
            pause_ms = self._compare() if self.leads() else self.refresh_ms
            in_doubt = self.lookup.is_in_doubt
        except Exception as error:  # noqa: BLE001 -- a dead watcher would notice nothing any more
            if not self._stopped:
                self._trouble.fail(error=str(error))
            return _RETRY_MS
        self._trouble.succeed()
        return _RETRY_MS if in_doubt else pause_ms

    def _evaluate(self, wish: TopicWish) -> None:
        topics = wish.matching(self.lookup.topic_names(), self.hidden)
        with self._lock:
            if self._wish is wish and topics != self._topics:
                if self._topics is not None:
                    for one in set(topics).difference(self._topics):
                        self.first_look.note_missing(one)
                self._topics = topics
                self.post(SubscriptionChanged(topics=topics))
        self.sight(set(topics) - wish.names)

    def _compare(self) -> int:
        seen = self.leader.seen
        found = self.lookup.metadata(seen.topics).resources
        if found != seen.partitions:
            if not self.leader.replace_seen(seen, found):
                return _RETRY_MS  # a round was led meanwhile, perhaps with these partitions
            self.post(RejoinRequested(reason=Cause.PARTITIONS_CHANGED))
        if self.refresh_ms >= 0 and not set(seen.topics) <= set(found.names):
            return min(self.refresh_ms, _MISSING_TOPIC_MS)
        return self.refresh_ms
