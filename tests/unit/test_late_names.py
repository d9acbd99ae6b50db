"""Names of a package that are imported on first use."""

import subprocess
import sys
import types
from collections.abc import Iterator

import pytest

from coopgroup.late_names import late_names


@pytest.fixture
def package() -> Iterator[types.ModuleType]:
    module = types.ModuleType("late_package_of_a_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_name_of_a_package_is_that_of_its_module_and_kept(package: types.ModuleType) -> None:
    get, names = late_names(package.__name__, {"subprocess": ("run", "PIPE")})
    assert {"run", "PIPE", "__name__"} <= set(names())
    assert not hasattr(package, "run")
    assert get("run") is subprocess.run
    assert package.run is subprocess.run
    with pytest.raises(
        AttributeError, match="module 'late_package_of_a_test' has no attribute 'Popen'"
    ):
        get("Popen")
