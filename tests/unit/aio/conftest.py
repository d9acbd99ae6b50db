"""The stage of each test, by hand. A test that is a coroutine runs on the loop of its stage."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from tests.unit.aio.aio_stage import AioStage, staged


@pytest.fixture
def stage() -> Iterator[AioStage]:
    with staged() as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    stage = pyfuncitem.funcargs["stage"]
    assert isinstance(stage, AioStage)
    stage.run(pyfuncitem.obj(**arguments))
    return True
