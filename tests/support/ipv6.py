"""A network with IPv6 only, as in a cluster of Kubernetes without IPv4.

A thread in a network namespace of its own has one address, `::1`. All threads and processes that it
starts are in this network, too. Root is needed to make namespaces.

An idle thread of a worker may outlive the test. The next test would get it, and with it a network
without IPv4, so a test ends with its last thread.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Final, ParamSpec

import pytest

from tests.chaos.network import Namespace, enter_namespace
from tests.support.waiting import WAIT_S_MAX

_P = ParamSpec("_P")
_SIOCSIFADDR: Final = 0x8916

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make namespaces")


def with_ipv6_only(test: Callable[_P, None]) -> Callable[_P, None]:
    """Run a test on a thread whose network has no IPv4; fixtures are made outside of it."""

    @wraps(test)
    def run(*arguments: _P.args, **named: _P.kwargs) -> None:
        def inside() -> None:
            enter_namespace(namespace.path)
            _drop_ipv4()
            test(*arguments, **named)

        namespace, before = Namespace(), set(threading.enumerate())
        try:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(inside).result()
        finally:
            for one in set(threading.enumerate()) - before:
                one.join(WAIT_S_MAX)
            namespace.close()

    return needs_root(run)


def _drop_ipv4() -> None:
    """Remove 127.0.0.1, which the kernel gives to the loopback interface."""
    nothing = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, bytes(4))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFADDR, nothing)
