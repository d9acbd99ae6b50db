"""The last bytes of a broker, and the end of its stream, are two reads."""

import socket

import pytest

from coopgroup.kafka.rpc.sockets import BrokerSocket, discard_unsent_bytes


@pytest.mark.parametrize("is_reset", [False, True])
def test_end_is_reported_with_the_read_after_the_last_bytes(*, is_reset: bool) -> None:
    """kafka-python drops bytes that it reads together with the end."""
    with socket.create_server(("127.0.0.1", 0)) as server, BrokerSocket() as own:
        own.connect(server.getsockname())
        own.settimeout(0)
        broker, _ = server.accept()
        if is_reset:
            discard_unsent_bytes(broker)
        broker.send(b"refused")
        assert own.recv(4096) == b"refused"
        broker.close()
        with pytest.raises(BlockingIOError):
            own.recv(4096)
        if is_reset:
            with pytest.raises(ConnectionResetError):  # the reason is for the log
                own.recv(4096)
        assert [own.recv(4096), own.recv(4096)] == [b"", b""]
