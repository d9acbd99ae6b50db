"""`coopgroup demo` as a process: the whole story on its own broker, with a summary."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.verify

TIMEOUT_S = 150
STOP_TIMEOUT_S = 15
POLICIES = ("simple", "deferred", "incremental", "eager")
PHASES = [
    "a producer writes a skewed backlog, then keeps its pace",
    "two members start",
    "a third member joins",
    "m1 is closed",
    "m1 comes back as a new process",
    "m2 is killed with SIGKILL",
    "m2 comes back as a new process",
    "the producer stops, the groups finish what is left",
]


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 2 * STOP_TIMEOUT_S)
def test_demo_command_when_run_without_options_tells_the_story_and_keeps_the_promises() -> None:
    """`make demo` plays all phases; no record is lost, no partition has two owners, status is 0."""
    process = subprocess.Popen(
        [sys.executable, "-m", "coopgroup", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        output, errors = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.terminate()  # if it still runs; it ends its broker and its members itself
        process.communicate(timeout=STOP_TIMEOUT_S)
    assert (process.returncode, errors) == (0, ""), output
    lines = output.splitlines()
    assert [line.split(" --- ")[1] for line in lines if " --- " in line] == PHASES
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line[:1] == "│"]
    tables = {name: dict(zip(POLICIES, cells, strict=True)) for name, *cells in rows}
    assert all(tables["m3"].values())  # its owned partitions
    summary = {name: cells for name, cells in tables.items() if " " in name}
    for policy in ("simple", "deferred", "incremental"):
        assert summary["records lost"][policy] == "0"
        assert summary["time with two owners"][policy] == "0 ms"
        told = [line for line in lines if f" coopgroup-{policy}: " in line]
        assert any("m3 gets" in line for line in told)
        assert int(summary["records consumed"][policy].replace(",", "")) > 0
    moved = {policy: int(count) for policy, count in summary["partitions moved"].items()}
    assert 0 < moved["deferred"] < moved["simple"]
