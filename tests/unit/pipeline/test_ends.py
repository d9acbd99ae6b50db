"""A topic that the brokers hide."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from coopgroup.errors import PipelineError
from coopgroup.pipeline import ends
from coopgroup.pipeline.ends import Brokers


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "the user has no right to describe topic t"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "there is no topic t: no group has committed"),
    ],
)
def test_a_topic_without_rights_is_not_called_missing(
    code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists of topics have only those that the user may describe."""
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(code)))
    admin = SimpleNamespace(
        list_topics=lambda **_: SimpleNamespace(topics={}, cluster_id="c"),
        describe_topics=lambda *_, **__: {"t": answer},
    )
    monkeypatch.setattr(ends, "AdminClient", lambda _: admin)
    with pytest.raises(PipelineError) as raised:
        Brokers(config={"bootstrap.servers": "b"}).source("t", "no group has committed")
    assert str(raised.value) == said
