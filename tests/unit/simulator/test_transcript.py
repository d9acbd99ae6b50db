"""Transcripts: golden ones of the scenarios, the same under any hash seed, in readable lines.

After a change of behaviour, `pytest tests/unit/simulator/test_transcript.py --rewrite-transcripts`
writes the golden files again. The diff shows the change.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from coopgroup.simulator import read_scenario, simulate
from coopgroup.simulator.transcript import Transcript
from tests.support.simulated import quiet_group
from tests.swarm.checkers.policy import check_policy_of

SIMULATIONS = Path(__file__).parents[3] / "simulations"
PROCESSES_MAX = 50
LINES_MAX = 2_000
SCENARIOS = tuple(
    path
    for path in sorted(SIMULATIONS.glob("*.toml"))
    # The transcript of very many processes is too long to read.
    if sum(one.count or 1 for one in read_scenario(path).members) <= PROCESSES_MAX
)
IN_A_PROCESS = """
import sys
from pathlib import Path
from coopgroup.simulator import read_scenario, simulate
print(*simulate(read_scenario(Path(sys.argv[1])), transcript=True).transcript, sep="\\n")
"""


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transcript_is_the_golden_one(path: Path, pytestconfig: pytest.Config) -> None:
    """The behaviour of a scenario changes only on purpose, and breaks no rule of its policy."""
    golden = SIMULATIONS / "transcripts" / f"{path.stem}.txt"
    run = simulate(read_scenario(path), transcript=True)
    assert (*run.violations, *check_policy_of(run)) == ()
    text = "".join(f"{line}\n" for line in run.transcript[:LINES_MAX])
    if pytestconfig.getoption("--rewrite-transcripts"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text(), "see the module's docstring"


def test_golden_transcripts_are_of_scenarios() -> None:
    golden = {path.stem for path in (SIMULATIONS / "transcripts").glob("*")}
    assert golden - {path.stem for path in SCENARIOS} == set()


def test_transcript_is_the_same_under_any_hash_seed() -> None:
    path = SIMULATIONS / "coordinator_lost.toml"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, str(path)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert b"RoundDecided" in outputs.pop()


def test_lines_tell_the_story_of_a_round() -> None:
    group = quiet_group(partitions=2)
    group.world.transcript = transcript = Transcript()
    group.start("a", ("T",))
    group.run(400)
    words = [line.split(maxsplit=1)[1] for line in transcript.lines]
    story = (
        "a   ProcessStarted topics=(T)",
        "a > JoinGroup of a new member, claims nothing",
        "a < JoinGroup: MEMBER_ID_REQUIRED, a-00000000-0000-0000-0000-000000000001",
        "a > JoinGroup of a-00000000-0000-0000-0000-000000000001, claims nothing",
        "a < JoinGroup: generation 1, led by a-00000000-0000-0000-0000-000000000001",
        "a > SyncGroup of generation 1, decides for 1",
        "a < SyncGroup: T 0-1",
        "a   AssignmentReceived leader gained=[T 0-1]",
        "a   state syncing -> stable: assigned",
    )
    assert [line for line in words if line in story] == list(story)
    assert not any("Heartbeat" in line for line in words)
