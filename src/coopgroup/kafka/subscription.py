"""Into the group and out of it.

What an application subscribes to is watched from then on (`watching`), and reaches the group as
soon as its topics are known.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from attrs import define, field
from confluent_kafka import KafkaError

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.driver import has_left
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.partitions import TOPIC_NAME_RULE, is_topic_name
from coopgroup.kafka.watching import TopicWish
from coopgroup.member import MemberState
from coopgroup.member.events import SubscriptionChanged

if TYPE_CHECKING:
    from coopgroup.kafka.committing import Committing
    from coopgroup.kafka.driver import GroupDriver
    from coopgroup.kafka.notices import Callbacks, GroupNotices
    from coopgroup.kafka.watching import TopicWatcher

__all__ = ["Subscription", "read_topics"]

_LEAVE_TIMEOUT_S: Final = 5.0
_STEP_S: Final = 0.01
_SHOWN_MAX: Final = 100  # characters of a name or a pattern that an error shows


@define(eq=False)
class Subscription:
    """The consumer's wish to be in the group.

    Attributes:
        driver: the group.
        watcher: looks for topics.
        notices: calls back.
        committing: commits by the clock while there is a subscription.
    """

    driver: GroupDriver
    watcher: TopicWatcher
    notices: GroupNotices
    committing: Committing
    _wish: TopicWish | None = field(default=None, init=False)
    _handed_over: bool = field(default=False, init=False)

    def enter(self, topics: list[str], callbacks: Callbacks) -> None:
        """Subscribe, in place of an earlier subscription.

        Raises:
            KafkaException: no topic, a name that no topic can have, a pattern that is none, or
                the group could not be left before.
            TypeError: no list of names.
        """
        wish = _read_wish(topics)
        self._leave_behind()
        self.notices.callbacks = callbacks
        if self._wish is None:
            self.driver.polled_at_s = now_s()  # the time without a subscription does not count
            self.committing.start_clock()
        self._wish = wish
        self._handed_over = False
        self.watcher.watch(wish)

    def leave(self, reason: str, *, for_good: bool) -> None:
        """Give up everything and leave the group.

        Args:
            reason: for logs and for the broker.
            for_good: whether a member that is kept beyond its process ends, too; one that has
                handed over always does.

        Raises:
            Exception: what a callback raised; the group is left all the same.
        """
        self.watcher.watch(None)
        self._wish = None
        self.committing.stop_clock()
        try:
            self.notices.give_up()
        finally:
            self.driver.leave(reason, for_good=for_good or self._handed_over)
            self._handed_over = False
            self._wait_left()

    def hand_over(self) -> None:
        """Subscribe to nothing while holding everything: the group takes over by rounds."""
        if self._wish is None:
            return
        self.watcher.watch(None)
        self._wish = None
        self._handed_over = True
        self.driver.post(SubscriptionChanged(topics=()))

    def _leave_behind(self) -> None:
        """End what an earlier subscription left: a member that failed, or that still leaves."""
        if self.driver.member.state is MemberState.FAILED:
            self.leave("subscribed anew", for_good=False)
        elif self.driver.member.state is MemberState.LEAVING and not self._wait_left():
            raise kafka_exception(
                KafkaError._TIMED_OUT,  # noqa: SLF001  (public constant of confluent_kafka)
                "Failed to set subscription: the group is still being left",
            )

    def _wait_left(self) -> bool:
        deadline = now_s() + _LEAVE_TIMEOUT_S
        while not has_left(self.driver.member) and now_s() < deadline:
            time.sleep(_STEP_S)
        return has_left(self.driver.member)


def read_topics(topics: list[str]) -> TopicWish:
    """Read what is to be subscribed to: names, and patterns that begin with ^.

    Kafka's rule for names is applied at once: a topic that breaks it would be waited for in vain,
    and the group's own messages have no room for a name of any length.

    Raises:
        ConfigurationError: a name that no topic can have, or a pattern that is none.
    """
    for topic in topics:
        _check_topic(topic)
    return TopicWish.read(topics)


def _check_topic(topic: str) -> None:
    if topic.startswith("^"):
        try:
            re.compile(topic)
        except (re.error, OverflowError, RecursionError) as cause:
            expected = f"a regular expression ({_shortened(str(cause))})"
            raise ConfigurationError("topics", _shortened(topic), expected) from None
    elif not is_topic_name(topic):
        raise ConfigurationError("topics", _shortened(topic), TOPIC_NAME_RULE)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _read_wish(topics: list[str]) -> TopicWish:
    if not isinstance(topics, list) or not all(isinstance(one, str) for one in topics):
        raise TypeError("expected list of topic unicode strings")
    try:
        if topics:
            return read_topics(topics)
        reason = "the list of topics is empty"
    except ConfigurationError as error:
        reason = str(error)
    raise kafka_exception(
        KafkaError._INVALID_ARG,  # noqa: SLF001  (public constant of confluent_kafka)
        f"Failed to set subscription: {reason}",
    )
