"""The distribution of tests over several pytest processes, and their order."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from tests.support.scheduling import LONG_FILES, FolderScheduling

ROOT = Path(__file__).parents[2]

TESTS = [
    *(f"tests/broker/test_{name}.py::test_{number}" for name in "ab" for number in range(4)),
    *(f"tests/interop/test_c.py::test_{number}" for number in range(4)),
    *(f"tests/property/test_d.py::test_{number}" for number in range(4)),
    *(f"tests/unit/watch/test_{name}.py::test_{number}" for name in "efg" for number in range(4)),
    *(f"tests/spark/test_{name}.py::test_{number}" for name in "hij" for number in range(4)),
]
BROKERS = {"test_a.py", "test_b.py", "test_c.py"}
SPARK = {"test_h.py", "test_i.py", "test_j.py"}


@define(eq=False)
class Process:
    """A process that runs its tests one at a time; `given` are its files in order."""

    gateway: Any
    tests: Sequence[str]
    waiting: list[int] = field(factory=list)
    given: list[str] = field(factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.waiting += numbers
        files = (self.tests[number].partition("::")[0].split("/")[-1] for number in numbers)
        self.given += dict.fromkeys(files)

    def shutdown(self) -> None:
        self.shutting_down = True


def shared_out(*speeds: int, tests: Sequence[str] = TESTS) -> list[list[str]]:
    """Return the work of processes that run `speeds` tests per step, until all tests have run."""
    options: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * len(speeds), option=SimpleNamespace(loadscopereorder=False)
    )
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    scheduling = FolderScheduling(options, log)
    processes: list[Any] = [
        Process(SimpleNamespace(id=f"gw{number}"), tests) for number, _ in enumerate(speeds)
    ]
    for one in processes:
        scheduling.add_node(one)
    for one in processes:
        scheduling.add_node_collection(one, list(tests))
    scheduling.schedule()
    ran: list[int] = []
    while any(one.waiting for one in processes):
        for one, speed in zip(processes, speeds, strict=True):
            for number in one.waiting[:speed]:
                one.waiting.remove(number)
                ran.append(number)
                scheduling.mark_test_complete(one, number)
    assert sorted(ran) == list(range(len(tests)))
    return [one.given for one in processes]


def test_one_process_runs_everything() -> None:
    """The folders that take longest come first."""
    (given,) = shared_out(1)
    assert set(given[:3]) == BROKERS
    assert given[3:6] == ["test_h.py", "test_i.py", "test_j.py"]


def test_each_process_runs_files_on_brokers_and_spark_waits_for_them() -> None:
    """One process takes all of Spark; the other one computes."""
    first, second = shared_out(1, 1)
    assert {first[0], second[0]} < BROKERS
    assert {*first[:2], *second[:2]} > BROKERS
    assert (set(first) >= SPARK, SPARK & set(second)) == (True, set())


def test_last_of_four_runs_quick_tests_and_then_ends() -> None:
    """The third one runs Spark; both leave the brokers to the others."""
    first, second, on_spark, quick = shared_out(1, 1, 1, 40)
    assert {*first, *second} >= BROKERS
    assert on_spark[0] in SPARK
    assert quick[0] == "test_e.py"
    assert {*quick} <= {"test_e.py", "test_f.py", "test_g.py"}


def test_named_file_exists(subtests: pytest.Subtests) -> None:
    for file in sorted(LONG_FILES):
        with subtests.test(file=file):
            assert (ROOT / file).is_file()
