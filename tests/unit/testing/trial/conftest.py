"""A trial on the broker inside the confluent-kafka wheel."""

from collections.abc import Iterator

import pytest

from coopgroup.testing.trial import Trial
from coopgroup.testing.trial.brokers import Stage, open_stage

PARTITIONS = 4


@pytest.fixture(scope="package")
def stage() -> Iterator[Stage]:
    with open_stage("mock", PARTITIONS, lambda _line: None) as opened:
        yield opened


@pytest.fixture
def trial(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Trial]:
    with Trial(
        client_config=stage.client_config,
        topics=[request.node.name],
        partitions_per_topic=stage.partitions_per_topic,
    ) as running:
        yield running
