"""How long a process takes until it has a consumer, and until it has its first record.

Until the consumer: imports and construction. The measure is a ratio to `import numpy`, so it means
the same on every machine. Each program runs in a process of its own, in turn, and its fastest run
counts. CPU time is less disturbed by other processes than wall-clock time; both are reported.

Until the first record: the only member of a group comes back, as a static member or with a kept
identity, and finds records. It needs no round.

Goals: import and construction take at most 4 times the CPU time of `import numpy`. The first record
comes within twice the time of a static member of confluent_kafka.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

from coopgroup.testing import KafkaCluster

RUNS: Final = 20
RETURNS: Final = 7
_CONFIGURATION: Final = "{'bootstrap.servers': '127.0.0.1:1', 'group.id': 'g', 'log_level': 0}"
# A process that ends with `_exit` does not wait for threads: only the start is measured.
_END: Final = "import os; os._exit(0)"
PROGRAMS: Final = {
    "python": _END,
    "numpy": f"import numpy; {_END}",
    "confluent_kafka": f"import confluent_kafka as c; c.Consumer({_CONFIGURATION}); {_END}",
    "coopgroup_import": f"from coopgroup import CooperativeConsumer; {_END}",
    "coopgroup": f"import coopgroup as c; c.CooperativeConsumer({_CONFIGURATION}); {_END}",
    "help": "import sys; sys.argv = ['coopgroup', '--help']\n"
    "from coopgroup.cli.app import main; main()",
}


# The member of each kind: how its consumer is made, and its settings.
MEMBERS: Final = {
    "confluent_kafka-static": ("confluent_kafka.Consumer", "group.instance.id"),
    "coopgroup-static": ("coopgroup.CooperativeConsumer", "group.instance.id"),
    "coopgroup-kept": ("coopgroup.CooperativeConsumer", "coopgroup.state.dir"),
}
_FIRST_RECORD: Final = """
import json, sys, time
made, settings = sys.argv[1], json.loads(sys.argv[2])
package, _, name = made.partition(".")
consumer = getattr(__import__(package), name)(settings)
consumer.subscribe(["first-records"])
while (message := consumer.poll(0.1)) is None or message.error():
    pass
print(time.monotonic(), time.process_time(), flush=True)
consumer.close()
"""
_RECORDS: Final = 1_000
_BYTECODE: Final = Path(__file__).parents[2] / "build" / "bytecode"


def _environment() -> dict[str, str]:
    """Return an environment with bytecode: without it, each start compiles all of our modules."""
    found = {**os.environ, "PYTHONPYCACHEPREFIX": str(_BYTECODE)}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def run(*, runs: int = RUNS, returns: int = RETURNS) -> dict[str, Any]:
    """Start each program several times, and let each member of a group come back.

    Returns:
        By program: the least CPU time and wall-clock time in ms, and both as multiples of those of
        `import numpy`, the start of Python excluded. `first_record`, by kind of member: the
        medians until the first record, the start of Python included.
    """
    found = until_consumer(runs)
    with KafkaCluster() as cluster:
        return {**found, "first_record": until_record(cluster, returns)}


def until_record(cluster: KafkaCluster, returns: int) -> dict[str, dict[str, float]]:
    """Return the medians until the first record in ms, by kind of member, on a running cluster."""
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in MEMBERS}
    with tempfile.TemporaryDirectory() as folder:
        cluster.create_topic("first-records", partitions=1)
        producer = Producer(cluster.client_config())
        for _ in range(_RECORDS):
            producer.produce("first-records", b"x" * 100)
        producer.flush()
        for kind in MEMBERS:
            _return(kind, cluster.bootstrap_servers, folder)  # the first time there is a round
        for _ in range(returns):
            for kind in MEMBERS:
                found[kind].append(_return(kind, cluster.bootstrap_servers, folder))
    return {
        kind: {
            "wall_ms": round(statistics.median(one for one, _ in rows), 1),
            "cpu_ms": round(statistics.median(one for _, one in rows), 1),
        }
        for kind, rows in found.items()
    }


def _return(kind: str, bootstrap: str, folder: str) -> tuple[float, float]:
    """Return the wall-clock time and the CPU time of a member until its first record, in ms."""
    made, key = MEMBERS[kind]
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": kind,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
        key: folder if key == "coopgroup.state.dir" else "one",
    }
    began_s = time.monotonic()
    program = [sys.executable, "-c", _FIRST_RECORD, made, json.dumps(settings)]
    ended = subprocess.run(
        program, check=True, capture_output=True, text=True, timeout=120, env=_environment()
    )
    at_s, cpu_s = map(float, ended.stdout.split())
    return 1_000 * (at_s - began_s), 1_000 * cpu_s


def until_consumer(runs: int) -> dict[str, Any]:
    """Return the least times until a process has a consumer, by program."""
    for program in PROGRAMS.values():
        _start(program)  # it writes the bytecode
    found = {name: _start(program) for name, program in PROGRAMS.items()}
    for _ in range(runs - 1):
        for name, program in PROGRAMS.items():
            found[name] = tuple(map(min, found[name], _start(program)))
    return {name: _row(found, name) for name in PROGRAMS}


def _start(program: str) -> tuple[float, ...]:
    """Return the CPU time and the wall-clock time of a process, in ms."""
    began = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=nowhere, stderr=nowhere, env=_environment()
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, program
    wall_s = time.perf_counter() - began
    return 1_000 * (usage.ru_utime + usage.ru_stime), 1_000 * wall_s


def _row(found: dict[str, tuple[float, ...]], name: str) -> dict[str, float]:
    row = {"cpu_ms": round(found[name][0], 1), "wall_ms": round(found[name][1], 1)}
    if name == "python":
        return row
    for place, kind in enumerate(("cpu", "wall")):
        ours, numpy, python = (found[one][place] for one in (name, "numpy", "python"))
        row[f"{kind}_to_numpy"] = round((ours - python) / (numpy - python), 2)
    return row
