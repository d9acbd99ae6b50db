"""Greenlets instead of threads: no heartbeat would be sent while librdkafka waits.

Under `gunicorn -k gevent`, 30 records were handed out as 90 in 14 s.
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coopgroup import CooperativeConsumer, CooperativeGroup
from coopgroup.errors import ConfigurationError

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
PATCHED = (
    ("gevent", "monkey", "is_module_patched", "threading"),
    ("eventlet", "patcher", "is_monkey_patched", "thread"),
)


def group() -> CooperativeGroup:
    return CooperativeGroup(
        SETTINGS, catalogue=[("job", 0)], start=lambda _: None, stop=lambda _: None
    )


@pytest.mark.parametrize(("name", "module", "function", "of"), PATCHED)
@pytest.mark.parametrize("make", [lambda: CooperativeConsumer({**SETTINGS, "log_level": 0}), group])
def test_membership_on_greenlets_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], Any],
    name: str,
    module: str,
    function: str,
    of: str,
) -> None:
    patched = {of}
    tells = SimpleNamespace(**{function: lambda asked: asked in patched})
    monkeypatch.setitem(sys.modules, f"{name}.{module}", tells)
    with pytest.raises(ConfigurationError, match=f"^threads: got .* of {name}"):
        make()
    patched.clear()  # a program may use them without replacing threads
    make().close()
