"""Arguments of `subscribe`: callbacks, and the warm set."""

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from coopgroup.kafka.callbacks.subscribed import Callbacks, as_resources
from coopgroup.model import EMPTY, ResourceSet

NAMES = ("on_assign", "on_revoke", "on_lost", "on_warmup", "on_warmup_cancelled")


def hear(*_: object) -> None:
    pass


@pytest.mark.parametrize("name", NAMES)
def test_callback_that_cannot_be_called_is_refused(name: str) -> None:
    wrong: Any = {**dict.fromkeys(NAMES), name: 5}
    with pytest.raises(TypeError, match=f"^{name} expects a callable$"):
        Callbacks(**wrong)


def test_end_of_warmups_without_warmups_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^on_warmup_cancelled expects on_warmup beside it$"):
        Callbacks(on_warmup_cancelled=hear)


def test_warm_set_without_on_warmup_takes_no_part() -> None:
    assert Callbacks(hear).warm_set(None) is None
    with pytest.raises(TypeError, match=r"^warm expects on_warmup beside it$"):
        Callbacks(hear).warm_set([])


def test_warm_set_with_on_warmup_is_what_the_application_found() -> None:
    callbacks = Callbacks(on_warmup=hear)
    assert callbacks.warm_set(None) == EMPTY
    warm = [TopicPartition("t", 1), TopicPartition("t", 0)]
    assert callbacks.warm_set(warm) == ResourceSet({"t": [0, 1]})


@pytest.mark.parametrize("wrong", [5, ["t"], "t-0"])
def test_partitions_of_another_type_are_refused(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(TypeError, match=r"^requires list of TopicPartition$"):
        as_resources(wrong)
