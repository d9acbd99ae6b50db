"""Names of a package, and modules, that are imported on first use."""

import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coopgroup.late_names import late_module, late_names


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


@pytest.fixture
def unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "late_module_of_a_test"
    (tmp_path / f"{name}.py").write_text("VALUE = 5")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_module_takes_its_place_in_all_scopes_at_its_first_use(unloaded: str) -> None:
    one: dict[str, Any] = {}
    two: dict[str, Any] = {}
    late_module(unloaded, one, "first")
    late_module(unloaded, two, "second")
    assert unloaded not in sys.modules
    assert one["first"].VALUE == 5
    assert one["first"] is two["second"] is sys.modules[unloaded]


def test_module_that_is_loaded_is_there_at_once() -> None:
    scope: dict[str, Any] = {}
    late_module("subprocess", scope, "sub")
    assert scope == {"sub": subprocess}
