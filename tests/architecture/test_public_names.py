"""The names that `import coopgroup` offers."""

import importlib

import pytest

import coopgroup
from tests.support.programs import output_of


@pytest.mark.parametrize("name", coopgroup.__all__)
def test_public_name_is_that_of_its_home(name: str) -> None:
    """What the package offers is what the module it comes from offers, and is listed by dir()."""
    assert name in dir(coopgroup)
    if name != "__version__":
        assert name in importlib.import_module(getattr(coopgroup, name).__module__).__all__


def test_unknown_name_is_an_attribute_error() -> None:
    """Lazy names do not change what a wrong name gets."""
    with pytest.raises(AttributeError, match="module 'coopgroup' has no attribute 'nope'"):
        getattr(coopgroup, "nope")  # noqa: B009 - mypy would refuse the plain spelling


def test_import_when_no_name_is_used_imports_no_dependency() -> None:
    """`import coopgroup` alone costs no import of a Kafka client or of NumPy."""
    program = (
        "import sys\n"
        "import coopgroup\n"
        "heavy = {'attr', 'confluent_kafka', 'kafka', 'numpy', 'pyspark', 'structlog'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    assert output_of(program) == "[]\n"
