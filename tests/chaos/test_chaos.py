"""A minute of chaos, and positive controls that prove that the checkers work."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.chaos.run import control, play
from tests.chaos.stage import can_disturb_network
from tests.support.waiting import wait_for

pytestmark = pytest.mark.verify

BUILD = ROOT / "build" / "chaos"
SEED = 20_261_122


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(420)
def test_promises_hold_under_faults() -> None:
    """A failure leaves the logs of all processes in `build/chaos`."""
    report = play(SEED, BUILD / "test", seconds=25, network=can_disturb_network())
    assert report.is_good, [report.line(), *report.violations[:10]]
    assert report.records > 1_000
    assert report.faults.total() > 10


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ["coopgroup", "without lease", "confluent_kafka"])
def test_checkers_tell_a_lease_from_none(kind: str) -> None:
    """The two members that work beside their successor are caught; the healthy member is not."""
    network = can_disturb_network()
    if kind == "without lease" and not network:
        pytest.skip("a member is cut off by a network namespace, which needs root")
    folder = BUILD / f"test-{kind.replace(' ', '-')}"
    found = Counter(one.kind for one in control(kind, folder, network=network))
    if kind == "coopgroup":
        assert found == {}
    else:
        assert "two owners" in found


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_a_run_is_interrupted(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Brokers and members end with the run, also after a signal; namespaces have no names."""
    mark = f"COOPGROUP_CHAOS_TEST={os.getpid()}-{number}"
    name, value = mark.split("=")
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.chaos.run", "1", "1", "--no-controls"),
            *("--folder", str(tmp_path)),
        ],
        cwd=ROOT,
        env={**os.environ, name: value},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(list(tmp_path.glob("*/m6-1.events"))) == 1)
        assert len(_marked(mark)) > 6
        run.send_signal(number)
        run.wait(40)
        wait_for(lambda: not _marked(mark))
    finally:
        run.kill()
        run.wait()


def _marked(mark: str) -> list[str]:
    """Return processes with this environment variable, which children inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue  # it ended, or belongs to another user
    return found
