"""Valid names and patterns of a subscription. Tests with brokers cover the group itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaException

from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.subscribed import Callbacks
from coopgroup.kafka.membership.subscription import Subscription, read_topics
from coopgroup.kafka.membership.watching import TopicWish
from coopgroup.member import MemberState
from coopgroup.member.events import WarmSetDeclared
from coopgroup.model import ResourceSet
from tests.unit.kafka.fakes import FakeDriver

RULE = (
    "expected a name of 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-' "
    "that is neither '.' nor '..'"
)


@define
class Watcher:
    """Record the wishes."""

    wishes: list[TopicWish | None] = field(factory=list)

    def watch(self, wish: TopicWish | None) -> None:
        self.wishes.append(wish)


@define
class Silence:
    """Replace notices and commits, which do not matter here."""

    callbacks: Callbacks | None = None

    def give_up(self) -> None:
        pass

    def stop_clock(self) -> None:
        pass

    def start_clock(self) -> None:
        pass


def subscription() -> tuple[Subscription, Watcher]:
    watcher = Watcher()
    return subscription_of(FakeDriver(), watcher), watcher


def test_members_warm_set_is_declared_before_its_topics_are_watched() -> None:
    driver, wishes = FakeDriver(), list[str]()

    class Ordered:
        def watch(self, wish: TopicWish | None) -> None:
            wishes.append(f"watch after {len(driver.posted)}")

    made = subscription_of(driver, Ordered())
    made.enter(["o"], Callbacks())
    made.enter(["o"], Callbacks(), ResourceSet({"o": [1]}))
    made.enter(["o"], Callbacks())
    made.enter(["o"], Callbacks())
    assert driver.posted == [
        WarmSetDeclared(warm=ResourceSet({"o": [1]})),
        WarmSetDeclared(warm=None),
    ]
    assert wishes == ["watch after 0", "watch after 1", "watch after 2", "watch after 2"]


def subscription_of(driver: Any, watcher: Any) -> Subscription:  # noqa: ANN401  (stand-ins)
    driver.member.state = MemberState.UNSUBSCRIBED
    silence: Any = Silence()
    return Subscription(driver=driver, watcher=watcher, listener=silence, committing=silence)


@pytest.mark.parametrize("name", ["o", "a.b_c-D9", "...", "x" * 249, "__consumer_offsets"])
def test_topic_name_of_kafka_is_wished_for(name: str) -> None:
    made, watcher = subscription()
    made.enter([name, "^or.*"], Callbacks())
    (wish,) = watcher.wishes
    assert wish is not None
    assert (sorted(wish.names), [one.pattern for one in wish.patterns]) == ([name], ["^or.*"])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        (".", "'.'"),
        ("..", "'..'"),
        ("two words", "'two words'"),
        ("orders\n", r"'orders\n'"),
        ("bücher", "'bücher'"),
        ("a/b", "'a/b'"),
        ("\udcff", r"'\udcff'"),
        ("x" * 250, f"'{'x' * 100}…'"),
        ("x" * 40_000, f"'{'x' * 100}…'"),
    ],
)
def test_topic_name_that_kafka_cannot_have_is_refused(name: str, shown: str) -> None:
    made, watcher = subscription()
    with pytest.raises(KafkaException) as caught:
        made.enter(["orders", name], Callbacks())
    error = caught.value.args[0]
    assert error.name() == "_INVALID_ARG"
    assert error.str() == f"Failed to set subscription: topics: got {shown}, {RULE}"
    assert watcher.wishes == []


@pytest.mark.parametrize(
    ("pattern", "shown", "reason"),
    [
        ("^[", "'^['", "unterminated character set at position 1"),
        ("^a{99999999999}", "'^a{99999999999}'", "the repetition number is too large"),
        ("^(?P=" + "x" * 9_999 + ")", f"'^(?P={'x' * 95}…'", f"unknown group name '{'x' * 80}…"),
        ("^" + "(" * 9_999 + ")" * 9_999, f"'^{'(' * 99}…'", "maximum recursion depth exceeded"),
    ],
)
def test_pattern_that_does_not_compile_is_refused(pattern: str, shown: str, reason: str) -> None:
    made, watcher = subscription()
    with pytest.raises(KafkaException, match="_INVALID_ARG") as caught:
        made.enter([pattern], Callbacks())
    said = f"topics: got {shown}, expected a regular expression ({reason}"
    assert caught.value.args[0].str().startswith(f"Failed to set subscription: {said}")
    assert watcher.wishes == []


def test_list_without_topics_is_refused() -> None:
    """The same as in confluent_kafka; `unsubscribe` leaves the group."""
    made, _ = subscription()
    with pytest.raises(KafkaException, match=r"_INVALID_ARG.*the list of topics is empty"):
        made.enter([], Callbacks())


@pytest.mark.parametrize("wrong", ["orders", ("orders",), [b"orders"], None])
def test_topics_that_are_no_list_of_strings_are_refused(wrong: Any) -> None:  # noqa: ANN401
    made, _ = subscription()
    with pytest.raises(TypeError, match="expected list of topic unicode strings"):
        made.enter(wrong, Callbacks())


def test_read_topics_when_wrong_raises_what_a_command_line_shows() -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"topics: got '.', {RULE}")):
        read_topics(["."])


def test_member_that_handed_over_leaves_permanently() -> None:
    driver = FakeDriver()
    made = subscription_of(driver, Watcher())
    for takes_it_back in (False, True):
        made.enter(["orders"], Callbacks())
        made.hand_over()
        if takes_it_back:
            made.enter(["orders"], Callbacks())
        made.leave("consumer closed", for_good=False)
    assert driver.left == [("consumer closed", True), ("consumer closed", False)]
