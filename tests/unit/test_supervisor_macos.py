"""The supervisor with the constants of macOS."""

import json
from pathlib import Path

from tests.support.programs import result_on_macos


def test_supervisor_believes_the_process_that_a_note_names(tmp_path: Path) -> None:
    """There are no namespaces of processes, so the numbers are the same for both."""
    left = tmp_path / "left"
    worker = """
import json, os, signal
socket = int(os.environ["COOPGROUP_SUPERVISOR"].partition(":")[0])
note = {"process": os.getpid(), "member": 1, "id": "a"}
note |= {"returns": False, "leaves": True, "ssl.key.pem": "k" * 9000}
os.write(socket, json.dumps(note).encode())
os.kill(os.getpid(), signal.SIGKILL)
"""
    program = """
from coopgroup.supervisor import Supervisor
leaver = [sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"]
print(Supervisor([sys.executable, "-c", sys.argv[1]], [*leaver, sys.argv[2]]).run())
"""
    assert result_on_macos(program, worker, str(left)) == 128 + 9
    assert json.loads(left.read_text())["id"] == "a"
