"""Valid names and patterns of a subscription. Tests with brokers cover the group itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from confluent_kafka import KafkaException

from coopgroup.core.member import GroupProtocol, MemberConfig, MemberState
from coopgroup.core.member.events import WarmSetDeclared
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.callbacks.listener import Callbacks
from coopgroup.kafka.membership.subscription import ApplicationSubscription
from coopgroup.kafka.membership.watching import TopicWish
from tests.unit.kafka.fakes import FakeDriver

RULE = (
    "expected a name of 1 to 249 characters out of a-z, A-Z, 0-9, '.', '_' and '-' "
    "that is neither '.' nor '..'"
)


@define
class Watcher:
    """Record the wishes, each with the number of events before."""

    driver: FakeDriver = field(factory=FakeDriver)
    wishes: list[tuple[int, TopicWish | None]] = field(factory=list)

    def watch(self, wish: TopicWish | None) -> None:
        self.wishes.append((len(self.driver.posted), wish))

    def subscription(self) -> ApplicationSubscription:
        """Return a subscription; notices and commits do not matter here."""
        self.driver.member.state = MemberState.UNSUBSCRIBED
        nothing = dict.fromkeys(("give_up", "stop_clock", "start_clock"), lambda: None)
        silence: Any = SimpleNamespace(callbacks=None, **nothing)
        given: Any = self
        return ApplicationSubscription(
            driver=given.driver, watcher=given, listener=silence, committing=silence
        )


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_what_needs_a_leader_is_refused_beside_kip_848(watcher: Watcher) -> None:
    watcher.driver.settings.member = MemberConfig(group_id="g", protocol=GroupProtocol.CONSUMER)
    made = watcher.subscription()
    with pytest.raises(ConfigurationError, match="expected classic: on_warmup needs a leader"):
        made.enter(["o"], Callbacks(), ResourceSet({"o": [1]}))
    made.enter(["o"], Callbacks())
    with pytest.raises(ConfigurationError, match="expected classic: hand_over needs a leader"):
        made.hand_over()
    assert (made.is_empty, watcher.driver.posted) == (False, [])


def test_members_warm_set_is_declared_before_its_topics_are_watched(watcher: Watcher) -> None:
    made = watcher.subscription()
    for warm in (None, ResourceSet({"o": [1]}), None, None):
        made.enter(["o"], Callbacks(), warm)
    assert watcher.driver.posted == [
        WarmSetDeclared(warm=ResourceSet({"o": [1]})),
        WarmSetDeclared(warm=None),
    ]
    assert [events for events, _ in watcher.wishes] == [0, 1, 2, 2]
    assert watcher.driver.listens


@pytest.mark.parametrize("name", ["o", "a.b_c-D9", "...", "x" * 249, "__consumer_offsets"])
def test_topic_name_of_kafka_is_wished_for(watcher: Watcher, name: str) -> None:
    watcher.subscription().enter([name, "^or.*"], Callbacks())
    ((_, wish),) = watcher.wishes
    assert wish is not None
    assert (sorted(wish.names), [one.pattern for one in wish.patterns]) == ([name], ["^or.*"])


def refusal(watcher: Watcher, *topics: str) -> str:
    """Return the reason for refusing topics."""
    with pytest.raises(KafkaException) as caught:
        watcher.subscription().enter(list(topics), Callbacks())
    error = caught.value.args[0]
    assert (error.name(), watcher.wishes) == ("_INVALID_ARG", [])
    return str(error.str()).removeprefix("Failed to set subscription: ")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("..", "'..'"),
        ("orders\n", r"'orders\n'"),
        ("bücher", "'bücher'"),
        ("\udcff", r"'\udcff'"),
        ("x" * 40_000, f"'{'x' * 100}…'"),
    ],
)
def test_topic_name_that_kafka_cannot_have_is_refused(
    watcher: Watcher, name: str, shown: str
) -> None:
    assert refusal(watcher, "orders", name) == f"topics: got {shown}, {RULE}"


@pytest.mark.parametrize(
    ("pattern", "shown", "reason"),
    [
        ("^[", "'^['", "unterminated character set at position 1"),
        ("^a{99999999999}", "'^a{99999999999}'", "the repetition number is too large"),
        ("^(?P=" + "x" * 9_999 + ")", f"'^(?P={'x' * 95}…'", f"unknown group name '{'x' * 80}…"),
        ("^" + "(" * 9_999 + ")" * 9_999, f"'^{'(' * 99}…'", "maximum recursion depth exceeded"),
    ],
)
def test_pattern_that_does_not_compile_is_refused(
    watcher: Watcher, pattern: str, shown: str, reason: str
) -> None:
    said = f"topics: got {shown}, expected a regular expression ({reason}"
    assert refusal(watcher, pattern).startswith(said)


def test_list_without_topics_is_refused(watcher: Watcher) -> None:
    """The same as in confluent_kafka; `unsubscribe` leaves the group."""
    assert refusal(watcher) == "the list of topics is empty"


@pytest.mark.parametrize("wrong", ["orders", ("orders",), [b"orders"], None])
def test_topics_that_are_no_list_of_strings_are_refused(watcher: Watcher, wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match="expected list of topic unicode strings"):
        watcher.subscription().enter(wrong, Callbacks())


def test_member_that_handed_over_leaves_permanently(watcher: Watcher) -> None:
    made = watcher.subscription()
    for takes_it_back in (False, True):
        made.enter(["orders"], Callbacks())
        made.hand_over()
        if takes_it_back:
            made.enter(["orders"], Callbacks())
        made.leave("consumer closed", for_good=False)
    assert watcher.driver.left == [("consumer closed", True), ("consumer closed", False)]
