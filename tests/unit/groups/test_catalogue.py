"""Valid and invalid catalogues of an application."""

from typing import Any

import numpy as np
import pytest

from coopgroup.core.model import Resource, ResourceSet
from coopgroup.errors import ConfigurationError
from coopgroup.groups import Catalogue, GroupResource

PAIRS = [("sink", 1), ("sink", -1), ("sink", 0)]


def test_catalogue_of_connectors_has_each_with_its_tasks() -> None:
    catalogue = Catalogue.of_connectors({"light": 2, "heavy": [30, 10], "idle": 0}, version=7)
    assert catalogue.version == 7
    assert [(*one, weight) for one, weight in catalogue.weights] == [
        *[("heavy", -1, 1), ("heavy", 0, 30), ("heavy", 1, 10), ("idle", -1, 1)],
        *[("light", -1, 1), ("light", 0, 1), ("light", 1, 1)],
    ]


def test_catalogue_of_pairs_is_sorted_and_weighs_one_each() -> None:
    catalogue = Catalogue.of(PAIRS)
    assert catalogue.weights == tuple((Resource(*pair), 1) for pair in sorted(PAIRS))
    assert catalogue.resources == ResourceSet({"sink": [-1, 0, 1]})
    assert Catalogue.read(iter(PAIRS)) == Catalogue.read(catalogue) == catalogue
    assert catalogue != Catalogue.of(PAIRS, version=1)
    assert Catalogue.read({("a", 0): 5}) == Catalogue.of({("a", 0): 5})


def test_definitions_are_kept_beside_the_list() -> None:
    catalogue = Catalogue.of(PAIRS, definitions={("sink", 0): {"a": [1]}, ("sink", 1): b"raw"})
    assert [catalogue.mark(Resource("sink", one)) for one in (-1, 0, 1)] == [
        (None, 0),
        ('{"a": [1]}', 0),
        (b"raw", 0),
    ]
    assert catalogue == Catalogue.of(PAIRS)  # no round shares definitions
    connectors = Catalogue.of_connectors({"a": 1, "b": 1}, definitions={"a": "x"})
    assert connectors.marks == {("a", -1): ('"x"', 0), ("a", 0): ('"x"', 0)}


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        ({("sink", 7): 1}, "definition: got ('sink', 7), expected the definition of a resource"),
        ({("sink", 0): {1, 2}}, "definition of ('sink', 0): got {1, 2}, expected bytes or JSON"),
        ({("sink", 0): float("nan")}, "got nan, expected bytes or JSON"),
        ({("sink",): 1}, "resource: got ('sink',), expected a (name, index) pair"),
        ([1], "definitions: got [1], expected a mapping of (name, index) pairs to definitions"),
    ],
)
def test_invalid_definition_is_refused(definitions: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ConfigurationError) as refused:
        Catalogue.of(PAIRS, definitions=definitions)
    assert message in str(refused.value)


def test_what_is_no_collection_is_refused() -> None:
    no_list: Any = 5
    with pytest.raises(ConfigurationError, match="resources of the catalogue: got 5, expected"):
        Catalogue.of(no_list)
    names: Any = ["sink"]
    with pytest.raises(ConfigurationError, match="expected a mapping of names to def"):
        Catalogue.of_connectors({"sink": 1}, definitions=names)


def test_resource_that_was_made_from_another_one_has_no_definition() -> None:
    made = GroupResource("sink", 0, {"x": 1}, "moved")._replace(index=1)
    assert (made, made.definition, made.reason) == (("sink", 1), None, "")


def test_definition_of_an_unknown_connector_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="definition: got 'b', expected the definition"):
        Catalogue.of_connectors({"a": 1}, definitions={"b": 1})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["sink"], "resource: got 'sink'"),
        ([("*", 0)], "that is not '*'"),
        ([("\ud800", 0)], "a name of 1 to 32767 bytes"),
        ([("a" * 32_768, 0)], "a name of 1 to 32767 bytes"),
        ([("sink", -2)], "an index from -1 up"),
        ([("sink", 2**31)], "an index from -1 up"),
        ({("sink", 0): -1}, "weight of ('sink', 0): got -1, expected a whole number from 0 up"),
        ({("sink", 0): 1.5}, "weight of ('sink', 0): got 1.5"),
        ({("sink", 0): True}, "weight of ('sink', 0): got True"),
        ({("sink", 0): np.True_}, "weight of ('sink', 0): got np.True_"),
        ([("sink", True)], "an index from -1 up"),
        ([("sink", np.True_)], "an index from -1 up"),
        ("sink", "catalogue: got 'sink', expected a Catalogue, or (name, index) pairs"),
    ],
)
def test_catalogue_when_invalid_is_refused_in_one_line(given: object, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Catalogue.read(given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", [-1, 2**63, "7", True, np.True_])
def test_catalogue_when_its_version_is_no_int64_is_refused(version: object) -> None:
    """The version is an int64 on the wire."""
    with pytest.raises(ConfigurationError, match="version of the catalogue"):
        Catalogue.of(PAIRS, version=version)  # type: ignore[arg-type] # a user's mistake


@pytest.mark.parametrize("tasks", [-1, "three", None, True, 2**31, 2**62])
def test_connectors_when_their_tasks_are_invalid_are_refused(tasks: object) -> None:
    with pytest.raises(ConfigurationError, match="tasks of 'sink'"):
        Catalogue.of_connectors({"sink": tasks})  # type: ignore[dict-item] # a user's mistake
    with pytest.raises(ConfigurationError, match="tasks of connectors: got"):
        Catalogue.of_connectors(["sink"])  # type: ignore[arg-type] # names alone


def test_integers_of_numpy_are_integers() -> None:
    """Weights come from tables, and NumPy's integers were refused."""
    indexes, weights = np.arange(2, dtype=np.int32), np.array([3, 4])
    version: Any = np.uint8(7)
    count: Any = np.int64(2)
    given: Any = {("sink", index): weight for index, weight in zip(indexes, weights, strict=True)}
    plain = Catalogue.of({("sink", 0): 3, ("sink", 1): 4}, version=7)
    assert Catalogue.of(given, version=version) == plain
    assert Catalogue.of_connectors({"sink": weights}) == Catalogue.of_connectors({"sink": [3, 4]})
    assert Catalogue.of_connectors({"sink": count}) == Catalogue.of_connectors({"sink": 2})
