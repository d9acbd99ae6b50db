"""`coopgroup demo` as a process: the whole story on a broker of its own, told and summed up."""

import subprocess
import sys

import pytest

TIMEOUT_S = 90
STOP_TIMEOUT_S = 15
PHASES = [
    "a producer writes a skewed backlog, then keeps its pace",
    "three members start",
    "a fourth member joins",
    "m1 is closed",
    "m2 is killed with SIGKILL",
    "m2 comes back as a new process",
    "the producer stops, the groups finish what is left",
]


@pytest.mark.slow
def test_demo_command_when_run_without_options_tells_the_story_and_keeps_the_promises() -> None:
    """What `make demo` runs: every phase in order, no record lost, never two owners, status 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "coopgroup.cli", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.terminate()  # if it still runs: it ends its broker and its members itself
        process.communicate(timeout=STOP_TIMEOUT_S)
    assert (process.returncode, errors) == (0, ""), output
    lines = output.splitlines()
    assert [line.split(" --- ")[1] for line in lines if " --- " in line] == PHASES
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line[:1] == "│"]
    summary = {name: ours for name, ours, _ in rows}
    assert (summary["records lost"], summary["time with two owners"]) == ("0", "0 ms")
    told = [line for line in lines if " coopgroup-simple: " in line]
    assert any("m4 gets" in line for line in told)
    assert int(summary["records consumed"].replace(",", "")) > 0
    assert int(summary["partitions moved"]) > 0
