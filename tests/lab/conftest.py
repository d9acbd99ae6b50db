"""A trial on the broker inside the confluent-kafka wheel."""

from collections.abc import Iterator

import pytest

from tests.lab.controller import Trial
from tests.support.mock_broker import MOCK_PARTITIONS, mock_broker


@pytest.fixture(scope="package")
def mock_address() -> Iterator[str]:
    with mock_broker() as address:
        yield address


@pytest.fixture
def trial(mock_address: str, request: pytest.FixtureRequest) -> Iterator[Trial]:
    with Trial(
        client_config={"bootstrap.servers": mock_address},
        topics=[request.node.name],
        partitions_per_topic=MOCK_PARTITIONS,
    ) as running:
        yield running
