"""Enter and leave the group.

The topics of a subscription are watched from then on (`watching`). They reach the group as soon as
they are known.
"""

from __future__ import annotations

from attrs import define, field
from confluent_kafka import KafkaError

from coopgroup.core.member import MemberState
from coopgroup.core.member.events import SubscriptionChanged, WarmSetDeclared
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.listener import Callbacks, GroupListener
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.exceptions import kafka_exception
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.kafka.membership.watching import TopicWatcher, TopicWish, shortened
from coopgroup.kafka.records.committing import Committing
from coopgroup.kafka.records.partitions import TOPIC_NAME_RULE, is_topic_name


@define(eq=False)
class ApplicationSubscription:
    """The application's subscription, and whether it is in the group."""

    driver: GroupDriver
    watcher: TopicWatcher
    listener: GroupListener
    committing: Committing
    _wish: TopicWish | None = field(default=None, init=False)
    _handed_over: bool = field(default=False, init=False)
    _warms_up: bool = field(default=False, init=False)

    @property
    def is_empty(self) -> bool:
        """Return whether the member has no topics and is not handing over its partitions."""
        return self._wish is None and not self._handed_over

    def enter(
        self, topics: list[str], callbacks: Callbacks, warm: ResourceSet | None = None
    ) -> None:
        """Subscribe, in place of an earlier subscription.

        Args:
            topics: names and patterns.
            callbacks: of the application.
            warm: partitions whose state the application has; None if it takes no part in warm-ups.

        Raises:
            ConfigurationError: warm-ups, and the broker assigns.
            KafkaException: the list is empty, a name or a pattern is invalid, or the group could
                not be left before.
            TypeError: not a list of names.
        """
        wish = _read_wish(topics)
        if warm is not None:
            self.driver.settings.member.require_leader("on_warmup")
        self._leave_behind()
        self.driver.listen()
        self.listener.callbacks = callbacks
        if self._wish is None:
            self.driver.polled_at_s = now_s()  # the time without a subscription does not count
            self.committing.start_clock()
        self._wish = wish
        self._handed_over = False
        if warm is not None or self._warms_up:
            self._warms_up = warm is not None
            self.driver.post(WarmSetDeclared(warm=warm))
        self.watcher.watch(wish)

    def leave(self, reason: str, *, for_good: bool) -> None:
        """Give up all partitions and leave the group.

        Raises:
            Exception: raised by a callback; the group is left nevertheless.
        """
        self.watcher.watch(None)
        self._wish = None
        self.committing.stop_clock()
        try:
            self.listener.give_up()
        finally:
            self.driver.leave(reason, for_good=for_good or self._handed_over)
            self._handed_over = False
            self.driver.wait_left()

    def hand_over(self) -> None:
        """Subscribe to nothing but keep all partitions: the group takes them over in rounds.

        Raises:
            ConfigurationError: the broker assigns.
        """
        self.driver.settings.member.require_leader("hand_over")
        if self._wish is None:
            return
        self.watcher.watch(None)
        self._wish = None
        self._handed_over = True
        self.driver.post(SubscriptionChanged(topics=(), hands_over=True))

    def _leave_behind(self) -> None:
        """End an earlier member that has failed or is still leaving."""
        if self.driver.member.state is MemberState.FAILED:
            self.leave("subscribed anew", for_good=False)
        elif self.driver.member.state is MemberState.LEAVING and not self.driver.wait_left():
            raise kafka_exception(
                KafkaError._TIMED_OUT, "Failed to set subscription: the group is still being left"
            )


def read_topics(topics: list[str]) -> TopicWish:
    """Read the topics to subscribe to: names, and patterns that begin with ^.

    Names are checked immediately. A topic with an invalid name would never appear, and the group's
    messages limit the length of a name.

    Raises:
        ConfigurationError: a name or a pattern is invalid.
    """
    wish = TopicWish.read(topics)
    for name in topics:
        if not name.startswith("^") and not is_topic_name(name):
            raise ConfigurationError("topics", shortened(name), TOPIC_NAME_RULE)
    return wish


def _read_wish(topics: list[str]) -> TopicWish:
    if not isinstance(topics, list) or not all(isinstance(one, str) for one in topics):
        raise TypeError("expected list of topic unicode strings")
    try:
        if topics:
            return read_topics(topics)
        reason = "the list of topics is empty"
    except ConfigurationError as error:
        reason = str(error)
    raise kafka_exception(KafkaError._INVALID_ARG, f"Failed to set subscription: {reason}")
