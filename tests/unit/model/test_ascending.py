"""Unique numbers of an array, in ascending order."""

import numpy as np
import pytest

from coopgroup.model.ascending import numbers_in


@pytest.mark.parametrize("numbers", [[], [-1, -1], [0], [3, -1, 0, 3, 7], [5, 5, 4]])
def test_numbers_in_an_array_are_distinct_and_ascend(numbers: list[int]) -> None:
    found = numbers_in(np.array(numbers, dtype=np.int32))
    assert found.tolist() == sorted({number for number in numbers if number >= 0})
