"""Short programs in an interpreter of their own: for what must not depend on this one."""

import os
import subprocess
import sys

TIMEOUT_S = 60


def output_of(program: str, **environment: str) -> str:
    """Run a program, which must succeed.

    Args:
        program: Python source.
        environment: variables on top of those of this process.

    Returns:
        What it printed.
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
    """What a program prints as Python hashes strings in one way and in another.

    The set has one element where no order of a set of strings leaks into what is printed.
    """
    return {output_of(program, PYTHONHASHSEED=seed) for seed in ("0", "1")}
