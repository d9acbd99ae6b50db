"""The distribution of tests over several pytest processes, and their order."""

from types import SimpleNamespace
from typing import Any

from attrs import define, field

from tests.support.scheduling import FolderScheduling

TESTS = [
    *(f"tests/broker/test_{name}.py::test_{number}" for name in "ab" for number in range(4)),
    *(f"tests/interop/test_c.py::test_{number}" for number in range(4)),
    *(f"tests/property/test_d.py::test_{number}" for number in range(4)),
    *(f"tests/unit/model/test_{name}.py::test_{number}" for name in "efg" for number in range(4)),
    *(f"tests/spark/test_{name}.py::test_{number}" for name in "hij" for number in range(4)),
]
WHOLE = ("broker", "interop")
SPARK = {"test_h.py", "test_i.py", "test_j.py"}


@define(eq=False)
class Process:
    """A process that runs its tests one at a time.

    Attributes:
        waiting: numbers of tests that it has not run yet.
        given: its work in order: folders for tests on brokers, else files.
        shutting_down: whether it ends after its waiting tests.
    """

    waiting: list[int] = field(factory=list)
    given: list[str] = field(factory=list)
    shutting_down: bool = False
    gateway: Any = field(factory=lambda: SimpleNamespace(id="gw"))

    def send_runtest_some(self, numbers: list[int]) -> None:
        """Take tests of one folder or file."""
        self.waiting += numbers
        _, folder, *path = TESTS[numbers[0]].partition("::")[0].split("/")
        self.given.append(folder if folder in WHOLE else path[-1])

    def shutdown(self) -> None:
        self.shutting_down = True


def shared_out(*speeds: int) -> list[list[str]]:
    """Return the work of processes that run `speeds` tests per step, until all tests have run."""
    options: Any = SimpleNamespace(
        getvalue=lambda _: ["popen"] * len(speeds), option=SimpleNamespace(loadscopereorder=False)
    )
    log: Any = SimpleNamespace(loadscopesched=lambda *_: None)
    scheduling = FolderScheduling(options, log)
    processes: list[Any] = [Process() for _ in speeds]
    for one in processes:
        scheduling.add_node(one)
    for one in processes:
        scheduling.add_node_collection(one, TESTS)
    scheduling.schedule()
    ran: list[int] = []
    while any(one.waiting for one in processes):
        for one, speed in zip(processes, speeds, strict=True):
            for number in one.waiting[:speed]:
                one.waiting.remove(number)
                ran.append(number)
                scheduling.mark_test_complete(one, number)
    assert sorted(ran) == list(range(len(TESTS)))
    return [one.given for one in processes]


def test_one_process_runs_everything() -> None:
    """The folders that take longest come first."""
    (given,) = shared_out(1)
    assert given[:2] == ["broker", "interop"]
    assert set(given[2:5]) == SPARK


def test_brokers_are_shared_by_a_folder_and_spark_waits_for_them() -> None:
    """The process with the first broker folder takes all of Spark; the other one computes."""
    first, second = shared_out(1, 1)
    assert (first[0], set(first[1:])) == ("broker", SPARK)
    assert second == ["interop", "test_d.py", "test_e.py", "test_f.py", "test_g.py"]


def test_process_that_is_done_with_brokers_computes_until_the_other_is_done_too() -> None:
    """Only then does Spark start."""
    quick, slow = shared_out(4, 1)
    assert quick[0] == "broker"
    assert quick[1] not in SPARK
    assert (slow[0], slow[1] in SPARK) == ("interop", True)


def test_nobody_waits_when_only_spark_is_left() -> None:
    """Then Spark runs beside brokers, and in two processes."""
    slow, quick = shared_out(1, 4)
    assert slow[0] == "broker"
    assert quick[:5] == ["interop", "test_d.py", "test_e.py", "test_f.py", "test_g.py"]
    assert set(quick[5:]) | set(slow[1:]) == SPARK
