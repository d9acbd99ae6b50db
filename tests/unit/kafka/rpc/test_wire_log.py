"""kafka-python's log lines about our connections are hidden; all others appear."""

import logging
import threading
from collections.abc import Iterator

import pytest

from coopgroup.kafka.rpc.wire_log import THREAD_PREFIX, keep_quiet_about_connections

NAME = "kafka.net.transport"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (NAME, "kafka.net.connection")]
    before = [list(logger.filters) for logger in loggers]
    yield
    for logger, filters in zip(loggers, before, strict=True):
        logger.filters[:] = filters


def _log_on_thread(thread_name: str) -> None:
    thread = threading.Thread(
        target=lambda: logging.getLogger(NAME).error("Abort"), name=thread_name
    )
    thread.start()
    thread.join()


def test_errors_are_kept_back_when_the_connection_is_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keep_quiet_about_connections()
    keep_quiet_about_connections()
    _log_on_thread(f"{THREAD_PREFIX}orders")
    assert caplog.messages == []
    _log_on_thread("the application's own kafka-python")
    assert caplog.messages == ["Abort"]
    filters = [one for one in logging.getLogger(NAME).filters if callable(one)]
    assert len(filters) == len(set(filters)) == 2


def test_errors_are_shown_when_debug_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    keep_quiet_about_connections()
    with caplog.at_level(logging.DEBUG, logger="kafka"):
        _log_on_thread(f"{THREAD_PREFIX}orders")
    assert caplog.messages == ["Abort"]
