"""Assignment strategies of other clients: their names, and the assignors that they choose."""

from __future__ import annotations

import pytest

from coopgroup.assignors import assignor_names
from coopgroup.errors import ConfigurationError
from coopgroup.kafka.config.strategy import assignor_of, read_strategy
from coopgroup.protocol import KafkaProtocol


@pytest.mark.parametrize("protocol", KafkaProtocol)
def test_each_strategy_has_an_assignor(protocol: KafkaProtocol) -> None:
    strategies = read_strategy({"partition.assignment.strategy": protocol.value})
    assert strategies == (protocol,)
    assert assignor_of(strategies) in assignor_names()


@pytest.mark.parametrize("given", ["", "uniform", "range,range", "range,", 5])
def test_wrong_strategies_are_refused(given: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_strategy({"partition.assignment.strategy": given})
    expected = "any of cooperative-sticky, range, roundrobin, sticky, each once; for others pass"
    assert expected in str(caught.value)
