"""The command line in a container with a read-only root, for a user without a home."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT
from tests.support.ipv6 import needs_root
from tests.support.pod import in_pod, python_in_pod

pytestmark = needs_root

WAIT_S = 100
SWEEP = str(ROOT / "simulations" / "sweeps" / "time_outs.toml")
SCENARIO = str(ROOT / "simulations" / "process_death.toml")


def ended(*command: str) -> tuple[int, str, str]:
    """Return the exit status and the output of a command, and its complaints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    return done.returncode, done.stdout, done.stderr


def test_page_is_drawn_into_a_volume() -> None:
    """Bokeh looks for its settings in the home of the user."""
    draw = f"{sys.executable} -m coopgroup simulate {SCENARIO} --html $VOLUME/page.html >/dev/null"
    status, size, said = ended(*in_pod("sh", "-c", f"{draw}; wc -c $VOLUME/*", has_volume=True))
    assert (said, status) == ("", 0)
    assert int(size.split()[0]) > 100_000


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("demo",), "TMPDIR: got '', expected a folder to write in"),
        (("sweep", SWEEP), "TMPDIR: got '', expected a folder to write in"),
        (("simulate", SCENARIO, "--html", "/page.html"), "expected a file that may be written"),
    ],
)
def test_missing_folder_is_one_line(arguments: tuple[str, ...], line: str) -> None:
    status, _, said = ended(*python_in_pod("-m", "coopgroup", *arguments))
    assert status in {2, 74}
    assert said.startswith("coopgroup: ")
    assert line in said
    assert said.count("\n") == 1
