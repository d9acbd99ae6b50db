"""`make soak` from its first seed to its output file, with a deliberate bug in the core."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mutants import MUTANTS, broken
from tests.support.soak import DRAWS, main
from tests.swarm.play import play
from tests.swarm.run_files import read_run

BUG = "granted before it is released"  # seed 7 finds it, and a soak plays it as this kind
PROGRAM = """
import sys
from tests.support.mutants import MUTANTS, broken
from tests.support.soak import main

name, *arguments = sys.argv[1:]
with broken(next(one for one in MUTANTS if one.name == name)):
    sys.exit(main(arguments))
"""
ROOT = Path(__file__).parents[2]


def _soak(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_soak_when_seeds_fail_leaves_a_small_run_that_shows_the_bug(tmp_path: Path) -> None:
    done = _soak(tmp_path, "-c", PROGRAM, BUG, "7", "1")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "SEED=7 failed: " in done.stdout
    failed = sum(line.startswith(tuple(f"{kind.upper()}=" for kind in DRAWS)) for line in lines)
    assert lines[-1] == f"soak: 1 seeds run, {failed} failed"
    path = Path("simulations/regressions/seed_7.toml")
    assert f"seed 7 is in {path}" in lines
    small = read_run(tmp_path / path)
    with broken(next(one for one in MUTANTS if one.name == BUG)):
        assert play(small).violations
    assert not play(small).violations


def test_soak_when_all_goes_well_says_so_in_one_line(tmp_path: Path) -> None:
    done = _soak(tmp_path, "-m", "tests.support.soak", "0", "2")
    assert (done.returncode, done.stdout.strip()) == (0, "soak: 2 seeds run, 0 failed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [("x", "2"), ("0", "0"), ("-1", "2"), ("1",)])
def test_soak_when_the_numbers_are_invalid_says_how_it_is_used(
    wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(wrong)) == 2
    out = capsys.readouterr().out
    assert out.startswith("usage: make soak SEEDS=n FIRST_SEED=k")
    assert out.count("\n") == 1
