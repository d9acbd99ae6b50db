"""The public names of `import coopgroup`."""

import importlib

import pytest

import coopgroup
from tests.support.programs import output_of


@pytest.mark.parametrize("name", coopgroup.__all__)
def test_public_name_is_that_of_its_home(name: str) -> None:
    """Each name is the same object as in its module, and dir() lists it."""
    assert name in dir(coopgroup)
    if name != "__version__":
        assert name in importlib.import_module(getattr(coopgroup, name).__module__).__all__


def test_unknown_name_is_an_attribute_error() -> None:
    """Lazy imports do not change the error for a wrong name."""
    with pytest.raises(AttributeError, match="module 'coopgroup' has no attribute 'nope'"):
        getattr(coopgroup, "nope")  # noqa: B009 - mypy would refuse the plain spelling


def test_import_when_no_name_is_used_imports_no_dependency() -> None:
    """`import coopgroup` alone must not import a Kafka client or NumPy."""
    program = (
        "import sys\n"
        "import coopgroup\n"
        "heavy = {'attr', 'confluent_kafka', 'kafka', 'numpy', 'pyspark', 'structlog'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    assert output_of(program) == "[]\n"
