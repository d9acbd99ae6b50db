"""Names of a package that are imported on first use."""

import subprocess
import sys
import types
from collections.abc import Callable, Iterator

import pytest

from coopgroup.late_names import late_names


@pytest.fixture
def package() -> Iterator[types.ModuleType]:
    module = types.ModuleType("late_package_of_a_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def get(package: types.ModuleType) -> Callable[[str], object]:
    return late_names(package.__name__, {"subprocess": ("run", "PIPE")})[0]


def test_name_is_that_of_its_module_and_kept(
    package: types.ModuleType, get: Callable[[str], object]
) -> None:
    assert get("run") is subprocess.run
    assert package.run is subprocess.run


def test_unknown_name_is_an_attribute_error(get: Callable[[str], object]) -> None:
    with pytest.raises(
        AttributeError, match="module 'late_package_of_a_test' has no attribute 'Popen'"
    ):
        get("Popen")


def test_dir_lists_names_before_their_import(package: types.ModuleType) -> None:
    _, names = late_names(package.__name__, {"subprocess": ("run", "PIPE")})
    assert {"run", "PIPE", "__name__"} <= set(names())
    assert not hasattr(package, "run")
