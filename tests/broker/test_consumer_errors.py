"""Internal errors of a consumer on a real cluster: reported, and repaired by a new subscription."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from coopgroup.kafka.membership import driver as driver_module
from coopgroup.testing import KafkaCluster
from tests.support.live_group import Crew, produce, unique

pytestmark = pytest.mark.verify


def test_internal_error_is_raised_by_poll_until_the_application_subscribes_anew(
    kafka_cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application loses its partitions and gets the reason; the consumer is still usable."""
    topic = unique("internal-error")
    kafka_cluster.create_topic(topic, 2)
    lost: list[int] = []

    def fail(*_: object, **__: object) -> Any:  # noqa: ANN401  (never returns)
        raise LookupError("a bug")

    with Crew(kafka_cluster, tmp_path) as crew:
        consumer = crew.add("a")
        consumer.subscribe([topic], on_lost=lambda _, partitions: lost.append(len(partitions)))
        crew.until(lambda: crew.counts() == [2], "all is assigned")
        monkeypatch.setattr(driver_module, "step", fail)
        for _ in range(2):  # the error stays fatal
            with pytest.raises(KafkaException, match="internal error: LookupError: a bug"):
                crew.during(5.0)
        assert (lost, crew.counts()) == ([2], [0])
        monkeypatch.undo()
        consumer.subscribe([topic])
        crew.until(lambda: crew.counts() == [2], "it is back")
        produce(kafka_cluster, topic, [1, 1])
        crew.until(lambda: len(crew.messages["a"]) == 2, "work goes on")
