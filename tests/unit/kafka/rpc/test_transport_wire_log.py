"""kafka-python's log about our connections is hidden, or shown without the bytes of SASL."""

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from coopgroup.kafka.rpc.transport import THREAD_PREFIX, keep_quiet_about_connections

NAME = "kafka.net.transport"
SECRET = "hunter2-canary"  # noqa: S105 -- of nobody


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Add the filters to kafka-python's loggers, twice, and remove them at the end."""
    names = [one for one in logging.root.manager.loggerDict if one.startswith("kafka")]
    before = {name: list(logging.getLogger(name).filters) for name in {*names, NAME}}
    keep_quiet_about_connections()
    keep_quiet_about_connections()
    yield
    for name, filters in before.items():
        logging.getLogger(name).filters[:] = filters


def on_thread(call: Callable[[], object], *, is_ours: bool) -> None:
    name = f"{THREAD_PREFIX}orders" if is_ours else "the application's own kafka-python"
    thread = threading.Thread(target=call, name=name)
    thread.start()
    thread.join()


def abort() -> None:
    logging.getLogger(NAME).error("Abort")


@pytest.mark.parametrize(("is_ours", "is_debug"), [(True, False), (True, True), (False, False)])
def test_errors_of_our_connections_are_hidden_unless_debug_is_asked_for(
    caplog: pytest.LogCaptureFixture, is_ours: bool, is_debug: bool
) -> None:
    with caplog.at_level(logging.DEBUG if is_debug else logging.WARNING, logger="kafka"):
        on_thread(abort, is_ours=is_ours)
    assert caplog.messages == ([] if is_ours and not is_debug else ["Abort"])
    filters = [one for one in logging.getLogger(NAME).filters if callable(one)]
    assert len(filters) == len(set(filters)) == 2


def log_in() -> None:
    parser = KafkaProtocol(client_id="c", ident="i")
    parser.send_request(SaslHandshakeRequest(mechanism="PLAIN", version=1))
    parser.send_request(SaslAuthenticateRequest(SECRET.encode(), version=1))
    assert SECRET.encode() in parser.send_bytes()
    log = logging.getLogger("kafka.net.connection")
    log.debug("%s Request %d: %s", "c", 2, SaslAuthenticateRequest(SECRET.encode(), version=1))
    log.debug("%s Request %d: %s", "c", 3, SaslHandshakeRequest(mechanism="PLAIN", version=1))


def test_debug_log_of_our_connections_has_no_sasl_bytes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="kafka"):
        on_thread(log_in, is_ours=True)
        ours = list(caplog.messages)
        caplog.clear()
        on_thread(log_in, is_ours=False)
    assert SECRET not in "".join(ours)
    assert SECRET in "".join(caplog.messages)
    assert len(ours) == len(caplog.messages) >= 5
    assert any("SaslAuthenticateRequest" in line for line in ours)
    assert any("mechanism='PLAIN'" in line for line in ours)
