"""A consumer refuses an invalid policy or assignor before it opens anything."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen
from confluent_kafka import Consumer, KafkaError, KafkaException

from coopgroup import (
    CooperativeConsumer,
    IncrementalPolicy,
    RangeAssignor,
    SimplePolicy,
    StickyAssignor,
)
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.plugins import check_plugins
from coopgroup.policies import EagerPolicy
from tests.support.inner import inner
from tests.support.programs import output_of

CONFIGURATION = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
AN_OBJECT = "expected an object, not its class"
ASSIGNOR = (
    "an assignor: an object with name, needs_lags and assign(group, lags), or create_assignor(name)"
)
POLICY = "a policy: an object with name, offer(group, context) and stage(group, target, context)"
EAGER = "a policy for members that hold on to what they have: EagerPolicy is the baseline of "


@frozen
class Duck:
    """A stand-in with the attributes of an assignor and of a policy."""

    name: Any = "duck"
    needs_lags: bool = False

    def assign(self, group: object, lags: object) -> object:
        return group, lags

    def offer(self, group: object, context: object) -> object:
        return group, context

    def stage(self, group: object, target: object, context: object, offer: object) -> object:
        return group, target, context


def test_iteration_without_a_subscription_is_refused() -> None:
    """No record can ever come: the iteration waited without end."""
    with CooperativeConsumer(CONFIGURATION) as consumer:
        assert consumer.poll(0) is None
        with pytest.raises(RuntimeError, match=r"^the consumer is not subscribed: call subscribe"):
            next(iter(consumer))
    assert list(consumer) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"policy": 5}, f"policy: got 5, expected {POLICY}"),
        ({"policy": Duck(name=3)}, "policy.name: got 3, expected a string"),
        ({"policy": EagerPolicy()}, f"policy: got EagerPolicy(), expected {EAGER}"),
        ({"policy": "eager"}, f"policy: got EagerPolicy(), expected {EAGER}"),
        ({"policy": "eventual"}, "policy: got 'eventual', expected one of deferred, eager, incre"),
        ({"policy": {"delay_ms": 1}}, "policy.name: got None, expected a name, with "),
        ({"policy": {"name": "simple", "delay": 1}}, "option of policy simple: got 'delay', "),
        ({"assignor": SimplePolicy()}, f"assignor: got {SimplePolicy()!r}, expected {ASSIGNOR}"),
        ({"assignor": 7}, f"assignor: got 7, expected {ASSIGNOR}"),
        ({"assignor": StickyAssignor}, f"assignor: got {StickyAssignor!r}, {AN_OBJECT}: Sticky"),
        ({"assignor": "uniform"}, "assignor: got 'uniform', expected one of cooperative-sticky, "),
    ],
)
def test_consumer_when_a_plugin_is_invalid_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        CooperativeConsumer(CONFIGURATION, **arguments)
    assert str(caught.value).startswith(said)


def test_lags_that_nobody_reads_are_not_looked_at() -> None:
    """It is refused: the group would wait for a balance forever."""
    with pytest.raises(ConfigurationError) as caught:
        check_plugins(RangeAssignor(), IncrementalPolicy(lag_check_interval_ms=9))
    assert str(caught.value) == (
        "lag_check_interval_ms: got 9, "
        f"expected an assignor that reads lags beside it, which {RangeAssignor()} does not"
    )


def test_consumer_without_a_token_says_so_as_confluent_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token service that is down is not a wrong configuration. Callers may retry."""
    code = KafkaError.SASL_AUTHENTICATION_FAILED
    refusal = KafkaException(KafkaError(code, "OAuth token not set within 10 seconds timeout"))

    def refuse(_: object) -> None:
        raise refusal

    monkeypatch.setattr("coopgroup.kafka.consumer.Consumer", refuse)
    with pytest.raises(KafkaException) as caught:
        CooperativeConsumer(CONFIGURATION)
    assert caught.value is refusal


def test_credentials_that_change_during_a_replacement_reach_the_new_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The polling thread replaces the client of librdkafka while another thread sets them."""
    made: list[Client] = []

    class Client(Consumer):
        def __init__(self, configuration: Any) -> None:  # noqa: ANN401
            super().__init__(configuration)
            self.given: list[tuple[str, str]] = []
            made.append(self)

        def set_sasl_credentials(self, username: str, password: str) -> None:
            self.given.append((username, password))

    monkeypatch.setattr("coopgroup.kafka.consumer.Consumer", Client)
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "old"}
    configuration = {**CONFIGURATION, **login, "security.protocol": "SASL_PLAINTEXT"}
    with CooperativeConsumer({**configuration, "log_level": 0}) as consumer:
        with inner(consumer, "_parts", "fetching").renew():
            consumer.set_sasl_credentials("me", "new")
        assert [one.given[-1:] for one in made] == [[("me", "new")]] * 2
        made[1].close()


def test_instrumentation_of_confluent_kafka_does_not_see_our_fetches() -> None:
    """OpenTelemetry replaces confluent_kafka.Consumer, and would make a span of every fetch."""
    program = (
        "import confluent_kafka\n"
        "class Instrumented(confluent_kafka.Consumer):\n"
        "    def __init__(self, *args, **kwargs):\n"
        "        raise SystemExit('a consumer of ours is instrumented')\n"
        "confluent_kafka.Consumer = Instrumented\n"
        "from coopgroup import CooperativeConsumer\n"
        f"CooperativeConsumer({CONFIGURATION!r}).close()\n"
        "print('plain')\n"
    )
    assert output_of(program) == "plain\n"
