"""Options of warm-ups that are lists: co-partitioned topics."""

import pytest

from coopgroup.errors import ConfigurationError
from coopgroup.policies import Warmup, create_policy


def test_topics_that_belong_together_may_be_any_lists() -> None:
    option = Warmup(co_partition=[["a", "b"], ("c", "d", "e")])
    assert option.co_partition == (("a", "b"), ("c", "d", "e"))
    assert Warmup(co_partition=()) == Warmup()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ab", "lists of two topics or more, for example ["),
        (5, "lists of two topics or more, for example ["),
        (["ab"], "lists of two topics or more, for example ["),
        ([["a"]], "lists of two topics or more, for example ["),
        ([["a", 1]], "lists of two topics or more, for example ["),
        ([["a", ""]], "lists of two topics or more, for example ["),
        ([["a", "b"], ["c", "a"]], "each topic once; 'a' occurs 2 times"),
    ],
)
def test_topics_when_wrong_are_refused_on_one_line(value: object, expected: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        create_policy("simple", {"warmup": {"co_partition": value}})
    message = str(refused.value)
    assert message.startswith(f"co_partition of warmup: got {value!r}, expected {expected}")
    assert "\n" not in message
