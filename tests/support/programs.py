"""Short programs in a separate interpreter, for checks that must not depend on this one."""

import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 60
# What Linux alone has is deleted, and TCP_KEEPIDLE gets its name and number of macOS.
_AS_ON_MACOS = """
import os, signal, socket, time
del time.CLOCK_BOOTTIME, os.O_PATH, os.waitid, os.memfd_create
del signal.sigwaitinfo, signal.sigtimedwait
del socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.SO_PASSCRED, socket.SCM_CREDENTIALS
socket.TCP_KEEPALIVE = 0x10
import json, sys
"""


def output_of(program: str, **environment: str) -> str:
    """Run a program, which must succeed.

    Returns:
        Its output.
    """
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    ).stdout


def outputs_under_two_hash_seeds(program: str) -> set[str]:
    """Return the outputs of a program under two hash seeds of Python.

    The set has one element if the output does not depend on the order of a set of strings.
    """
    return {output_of(program, PYTHONHASHSEED=seed) for seed in ("0", "1")}


def result_on_macos(program: str, *arguments: str) -> Any:  # noqa: ANN401  (any JSON)
    """Run a program that finds the constants of macOS, and prints JSON.

    It shows that the code needs no name that Linux alone has. It does not show how macOS behaves.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _AS_ON_MACOS + program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return json.loads(ended.stdout)
