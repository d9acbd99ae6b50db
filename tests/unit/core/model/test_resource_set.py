"""`ResourceSet`: order, errors, immutability, and a million resources."""

import pickle

import numpy as np
import pytest

from coopgroup.core.model import ResourceSet
from coopgroup.core.model.resource_set import FEW
from coopgroup.errors import ConfigurationError


def test_order_when_iterated_is_by_code_point_then_by_index() -> None:
    made = ResourceSet({"é": [0], "b": [3, -1, 0, 3], "B": [7], "none": []})
    assert list(made) == [("B", 7), ("b", -1), ("b", 0), ("b", 3), ("é", 0)]
    assert made != made.to_dict()
    assert made.starts.tolist() == [0, 1, 4, 5]
    assert made.name_numbers.tolist() == [0, 1, 1, 1, 2]


def test_arrays_when_read_are_int32_and_frozen() -> None:
    made = ResourceSet({"T": range(3)})
    assert (made.flat_indices.dtype.name, made.flat_indices.nbytes) == ("int32", 12)
    with pytest.raises(ValueError, match="read-only"):
        made.flat_indices[0] = 9
    with pytest.raises(AttributeError, match="ResourceSet is immutable, cannot set names"):
        made.names = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([2**31], "indices of T: got 2147483648, expected an index within int32"),
        ([0, -(2**31) - 1], "indices of T: got -2147483649, expected an index within int32"),
        ([0.5], "indices of T: got [0.5], expected integers"),
        (["0"], "indices of T: got ['0'], expected integers"),
        ([True], "indices of T: got [True], expected integers"),
        ([[1], [2]], "indices of T: got [[1], [2]], expected integers"),
        ([2**70], f"indices of T: got [{2**70}], expected integers"),
    ],
)
def test_build_when_an_index_is_no_int32_is_refused(indices: list[int], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ResourceSet({"T": indices})
    assert str(caught.value) == message


def test_build_when_given_arrays_and_iterators_takes_them_all() -> None:
    expected = ResourceSet({"T": [0, 1, 2]})
    assert ResourceSet({"T": range(3)}) == expected
    assert ResourceSet({"T": np.array([2, 1, 0], dtype=np.uint8)}) == expected
    assert ResourceSet({"T": iter((1, 0, 2))}) == expected
    assert ResourceSet({"T": {2, 0, 1}}) == expected


def test_build_when_given_an_array_does_not_keep_it() -> None:
    indices = np.arange(3, dtype=np.int32)
    made = ResourceSet({"T": indices})
    indices[0] = 9
    assert made == ResourceSet({"T": range(3)})


@pytest.mark.parametrize("stranger", ["T", ("T",), ("T", "0"), (0, "T"), ("T", 0, 0), 0, None])
def test_membership_when_asked_for_no_pair_is_false(stranger: object) -> None:
    assert stranger not in ResourceSet({"T": [0]})


def test_pickle_when_loaded_is_frozen() -> None:
    made = ResourceSet({"b": [1, 0], "a": [2]})
    loaded = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
    assert hash(loaded) == hash(made)
    with pytest.raises(ValueError, match="read-only"):
        loaded.flat_indices[0] = 9


@pytest.mark.parametrize("size", [1, FEW // 2, FEW // 2 + 1, 2 * FEW])
def test_algebra_of_few_and_of_many_indices_is_that_of_sets(size: int) -> None:
    left, right = set(range(0, 2 * size, 2)), set(range(0, 3 * size, 3))
    mine, theirs = ResourceSet({"T": left}), ResourceSet({"T": right})
    assert (mine | theirs).to_dict() == {"T": sorted(left | right)}
    assert (mine & theirs).to_dict() == {"T": sorted(left & right)}
    assert set(mine - theirs) == {("T", index) for index in left - right}
    assert mine | (mine & theirs) == mine == (mine - theirs) | (mine & theirs)
