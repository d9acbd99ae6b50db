"""Logs that survive the death of their writer."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.recording import Event, EventLog, EventReader, RowReader

KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from tests.lab.recording import RowLog
log = RowLog(Path(sys.argv[1]))
for offset in range(1000):
    log.append(1 + offset, 2, offset, 3, 4)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_row_log_when_the_writer_is_killed_has_every_row(tmp_path: Path) -> None:
    path = tmp_path / "x.records"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, str(path)], check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    assert RowReader(path).read_new()["offset"].tolist() == list(range(1000))


def test_event_log_when_read_while_written_gives_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.events"
    reader = EventReader(path)
    assert reader.read_new() == []
    log = EventLog(path)
    log.write("assigned", partitions=[1, 2])
    with path.open("ab") as file:
        file.write(b'{"at_ns": 7, "name"')
    (event,) = reader.read_new()
    assert (event.name, event.fields) == ("assigned", {"partitions": [1, 2]})
    with path.open("ab") as file:
        file.write(b': "closed", "fields": {}}\n')
    assert reader.read_new() == [Event(at_ns=7, name="closed", fields={})]
    log.close()
