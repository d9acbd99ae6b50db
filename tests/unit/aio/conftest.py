"""The stage of each test, by hand. A test that is a coroutine runs on the loop of its stage."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from coopgroup.aio.polling import Polling
from coopgroup.kafka.parts import ConsumerParts
from tests.support.by_hand import by_hand
from tests.unit.aio.aio_stage import AioStage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[AioStage]:
    with by_hand() as hand:
        made = AioStage(hand)

        def start(polling: Polling) -> None:
            made.take(polling)

        monkeypatch.setattr(ConsumerParts, "build", lambda *_: made)
        monkeypatch.setattr(Polling, "start", start)
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine on the loop of its stage."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    stage = pyfuncitem.funcargs["stage"]
    assert isinstance(stage, AioStage)
    stage.run(pyfuncitem.obj(**arguments))
    return True
