"""Distribution of tests over several processes (`make pytest`).

Tests on brokers mostly wait, and some of them measure time. So all processes but one run them. With
three or more processes the last one runs what computes, at a low priority: it takes the time that
the others leave, and a test that measures time hardly notices it.

Spark uses both cores, so with fewer processes its tests do not run beside brokers while other tests
remain.
"""

import os
from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = [
    "LONG_FILES",
    "ON_BROKERS",
    "ON_SPARK",
    "TOGETHER",
    "FolderScheduling",
    "yield_to_brokers",
]

ON_BROKERS: Final = ("broker", "interop", "chaos")
ON_SPARK: Final = "spark"
# A long file at the end would keep one process busy while the others have nothing left.
LONG_FILES: Final = frozenset(
    f"tests/{ON_SPARK}/test_{name}.py"
    for name in (
        *("follow", "history", "lag", "pipeline_page", "pipeline_run_command", "scope"),
        *("sweep_run", "tables", "upkeep"),
    )
)
# File by file: the stories of these files take half a minute to play, once in each process.
TOGETHER: Final = {
    f"tests/broker/test_{name}.py": "tests/broker/test_policy_deaths.py"
    for name in ("policy_deployments", "prediction")
}
_WITH_BACKGROUND: Final = 3
_NICENESS: Final = 10


class FolderScheduling(LoadScopeScheduling):
    """Hand out the tests by file; each process has one broker that its tests share.

    A few files have their stories in common, so they go to the same process.

    Files on Spark go to a process with a running Spark. If no other files are left, another process
    takes some too: that is quicker than to wait for the first.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return TOGETHER.get(file, file)

    def _reschedule(self, node: WorkerController) -> None:
        if self._is_background(node) and all(map(_is_on_brokers, self.workqueue)):
            node.shutdown()
        else:
            super()._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [scopes for other, scopes in self.assigned_work.items() if other is not node]
        elsewhere = [one for scopes in others for one in scopes if not all(scopes[one].values())]
        computing = [one for one in self.workqueue if not _is_on_brokers(one)]
        on_spark = [one for one in computing if _folder(one) == ON_SPARK]
        if self._is_background(node):
            for scope in reversed(on_spark or computing):
                self.workqueue.move_to_end(scope, last=False)
        else:
            on_brokers = any(map(_is_on_brokers, (*self.workqueue, *elsewhere)))
            is_last = on_brokers or ON_SPARK in map(_folder, elsewhere)
            for scope in on_spark if is_last else reversed(on_spark):
                self.workqueue.move_to_end(scope, last=is_last)
            for scope in reversed([one for one in self.workqueue if _is_on_brokers(one)]):
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _is_background(self, node: WorkerController) -> bool:
        return _computes(self.numnodes, node.gateway.id)


def yield_to_brokers() -> None:
    """Lower the priority of this process if it is the one that computes."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if _computes(workers, os.environ.get("PYTEST_XDIST_WORKER", "gw0")):
        os.nice(_NICENESS)


def _computes(workers: int, worker: str) -> bool:
    return workers >= _WITH_BACKGROUND and worker == f"gw{workers - 1}"


def _is_on_brokers(scope: str) -> bool:
    return _folder(scope) in ON_BROKERS


def _folder(scope: str) -> str:
    """Return the folder of a scope: `broker` of `broker`, `spark` of `tests/spark/test_ends.py`."""
    return scope.removeprefix("tests/").partition("/")[0]
