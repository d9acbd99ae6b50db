"""Short programs in a separate interpreter, for checks that must not depend on this one."""

import os
import subprocess
import sys

TIMEOUT_S = 60


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
